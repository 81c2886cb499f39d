//! Many connections at full speed, clients that break off, and Redis going away under all of it.

use crate::servers::envoy_server::{Envoy, Setup};
use crate::servers::redis_server::Redis;
use crate::servers::{Process, until};
use crate::{alone, with_store};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const CONNECTIONS: usize = 600;

/// What wrk says of a run.
#[derive(Debug)]
struct Run {
    requests: u64,
    not_2xx: u64,
    text: String,
}

/// 600 connections that send requests as fast as they are answered.
fn wrk(envoy: &Envoy, key: &str, seconds: u32) -> Command {
    let mut command = Command::new("wrk");
    command.args(["-t2", &format!("-c{CONNECTIONS}"), &format!("-d{seconds}s"), "--timeout", "10s"]).args([
        "-H",
        &format!("x-api-key: {key}"),
        &format!("http://127.0.0.1:{}/", envoy.port),
    ]);
    command
}

fn run(command: &mut Command) -> Run {
    let output = command.output().unwrap_or_else(|error| panic!("wrk: {error}; `make setup` installs it"));
    parsed(&String::from_utf8_lossy(&output.stdout))
}

fn parsed(text: &str) -> Run {
    let number = |marker: &str, before: bool| -> Option<u64> {
        let line = text.lines().find(|line| line.contains(marker))?.trim();
        let number = if before { line.split(' ').next() } else { line.rsplit(' ').next() };
        number?.parse().ok()
    };
    Run {
        requests: number("requests in", true).unwrap_or_else(|| panic!("{text}")),
        not_2xx: number("Non-2xx", false).unwrap_or(0),
        text: text.to_owned(),
    }
}

impl Run {
    fn assert_no_socket_error(&self) {
        assert!(!self.text.contains("Socket errors"), "{}", self.text);
        assert!(self.requests > CONNECTIONS as u64, "{}", self.text);
    }
}

/// Every request that came in is in one of these counters; those that were on the way when the clients left may be or not.
fn assert_none_lost(envoy: &Envoy, requests: u64, counters: [&str; 2]) {
    let counted: u64 = counters.iter().map(|counter| envoy.metric(&format!("rule.per-key.{counter}"))).sum();
    let most = requests + 2 * CONNECTIONS as u64;
    assert!((requests..=most).contains(&counted), "{counted} of {requests}");
    until(
        Duration::from_secs(5),
        || (envoy.metric("store.pending") == 0).then_some(()),
        || format!("nothing waits: {}", envoy.metric("store.pending")),
    );
}

/// So many connections on two cores wait for their turn longer than the usual 50 ms.
fn with_timeout(timeout: &str, rule: &str) -> String {
    with_store(rule).replace(r#""weir-redis""#, &format!(r#""weir-redis","timeout":"{timeout}""#))
}

#[test]
fn all_denied_and_none_lost() {
    let _machine = alone();
    let redis = Redis::start();
    let envoy = Setup::redis(redis.port, &with_timeout("10s", r#""limits":["1/d"]"#)).start();
    let run = run(&mut wrk(&envoy, "a", 5));
    run.assert_no_socket_error();
    assert_eq!(run.requests - run.not_2xx, 1, "{}", run.text);
    assert_none_lost(&envoy, run.requests, ["allowed", "denied"]);
    assert_eq!(envoy.metric("rule.per-key.errors"), 0, "{:?}", envoy.metrics());
}

#[test]
fn all_allowed_and_none_lost() {
    let _machine = alone();
    let redis = Redis::start();
    let envoy = Setup::redis(redis.port, &with_timeout("10s", r#""limits":["1000000000/s"]"#)).with_workers(2).start();
    let run = run(&mut wrk(&envoy, "a", 5));
    run.assert_no_socket_error();
    assert_eq!(run.not_2xx, 0, "{}", run.text);
    assert_none_lost(&envoy, run.requests, ["allowed", "denied"]);
    assert_eq!(envoy.metric("rule.per-key.errors"), 0, "{:?}", envoy.metrics());
}

/// 600 connections at full speed, and while they wait for Redis, something happens to it.
fn under_600_connections(on_error: &str, happens: impl FnOnce(&mut Redis)) -> (Envoy, Run) {
    let mut redis = Redis::start();
    let rule = format!(r#""limits":["1000000000/s"],"on_error":"{on_error}""#);
    let envoy = Setup::redis(redis.port, &with_timeout("2s", &rule)).start();
    let child = wrk(&envoy, "a", 5).stdout(Stdio::piped()).spawn().unwrap();
    until(
        Duration::from_secs(5),
        || (envoy.metric("rule.per-key.allowed") > 2000).then_some(()),
        || "requests are let in".to_owned(),
    );
    happens(&mut redis);
    let output = child.wait_with_output().unwrap();
    let run = parsed(&String::from_utf8_lossy(&output.stdout));
    run.assert_no_socket_error();
    assert!(envoy.metric("rule.per-key.errors") >= CONNECTIONS as u64, "{}", envoy.metric("rule.per-key.errors"));
    // What `on_error: deny` refuses is an error and not a denial.
    assert_none_lost(&envoy, run.requests, ["allowed", if on_error == "deny" { "errors" } else { "denied" }]);
    (envoy, run)
}

#[test]
fn redis_killed_under_it_and_none_lost() {
    let _machine = alone();
    let (_envoy, run) = under_600_connections("local", Redis::kill);
    assert_eq!(run.not_2xx, 0, "{}", run.text);
    let (_envoy, run) = under_600_connections("deny", Redis::kill);
    assert!(run.not_2xx >= CONNECTIONS as u64, "{}", run.text);
}

#[test]
fn redis_silent_under_it_and_none_lost() {
    let _machine = alone();
    let pause = |redis: &mut Redis| drop(redis.run(&["CLIENT", "PAUSE", "60000", "ALL"])); // past the end of the run
    let (envoy, run) = under_600_connections("deny", pause);
    assert!(envoy.metric("store.timeouts") > 0 && run.not_2xx >= CONNECTIONS as u64, "{}", run.text);
}

#[test]
fn clients_that_reset_their_streams_at_random_do_no_harm() {
    let _machine = alone();
    let seconds = std::env::var("WEIR_E2E_SECONDS").map_or(30, |seconds| seconds.parse().unwrap());
    let redis = Redis::start();
    let envoy = Setup::redis(redis.port, &with_timeout("2s", r#""limits":["1000/s burst 1000"]"#)).start();
    let url = format!("http://127.0.0.1:{}/", envoy.port);
    let (start, mut rounds) = (Instant::now(), 0_u32);
    while start.elapsed() < Duration::from_secs(seconds) {
        let mut client = Process::start(
            Command::new("h2load")
                .args(["-n", "1000000", "-c", "20", "-m", "50", "-H", "x-api-key: a", &url])
                .stdout(Stdio::null())
                .stderr(Stdio::null()),
        );
        // Killed after a time that is another one each round, with a thousand streams open.
        let answered = envoy.metric("rule.per-key.denied") + envoy.metric("rule.per-key.allowed");
        until(
            Duration::from_secs(10),
            || {
                let now = envoy.metric("rule.per-key.denied") + envoy.metric("rule.per-key.allowed");
                (now > answered + u64::from(rounds * 97 % 1500)).then_some(())
            },
            || "requests are answered".to_owned(),
        );
        client.kill();
        rounds += 1;
    }
    assert!(rounds >= 5, "{rounds} rounds");
    assert!(envoy.metric("rule.per-key.denied") > 0 && envoy.metric("rule.per-key.allowed") > 0);
    assert_eq!(envoy.statuses("fresh", 3), [200, 200, 200]);
    until(Duration::from_secs(5), || (envoy.metric("store.pending") == 0).then_some(()), || "nothing waits".to_owned());
}
