//! Redis goes, stalls, refuses, forgets, and comes back.

use crate::servers::envoy_server::{Envoy, Setup};
use crate::servers::faulty::{Faulty, Mode};
use crate::servers::http_client::Client;
use crate::servers::redis_server::Redis;
use crate::servers::{free_port, until};
use crate::{StopAtEnd, alone, assert_in_time, beside_others, with_store};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const PLENTY: &str = r#""limits":["1000000/s"]"#;

/// What a request's access log line says of who decided it.
fn source(envoy: &Envoy) -> String {
    let before = envoy.accesses(0).len();
    envoy.get("/", &[("x-api-key", "probe")]);
    let lines = envoy.accesses(before + 1);
    lines.last().unwrap().rsplit_once("source=").unwrap().1.to_owned()
}

/// Clients that send requests without pause while something happens. Each request's status and how long it took.
fn under_load(envoy: &Envoy, clients: usize, happens: impl FnOnce()) -> Vec<(u16, Duration)> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..clients)
            .map(|_| {
                scope.spawn(|| {
                    let mut client = Client::connect(envoy.port);
                    let mut answers = Vec::new();
                    while !stop.load(Ordering::Relaxed) {
                        let start = Instant::now();
                        let response = client.get("/", &[("x-api-key", b"a")]).expect("every request is answered");
                        answers.push((response.status, start.elapsed()));
                    }
                    answers
                })
            })
            .collect();
        let at_end = StopAtEnd(&stop); // the scope waits for the clients, so a panic in between must stop them too
        happens();
        drop(at_end);
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    })
}

#[test]
fn killed_under_load_each_rules_on_error_decides_in_time_and_redis_does_again_within_a_second() {
    let _machine = alone();
    for (on_error, status) in [("local", 200), ("allow", 200), ("deny", 503)] {
        let mut redis = Redis::start();
        let rule = format!(r#"{PLENTY},"on_error":"{on_error}""#);
        let envoy = Setup::redis(redis.port, &with_store(&rule)).start();
        let mut back = Duration::MAX;
        let answers = under_load(&envoy, 8, || {
            let decided = || redis.run(&["DBSIZE"]) == redis::Value::Int(1);
            until(Duration::from_secs(5), || decided().then_some(()), || "Redis decides".to_owned());
            redis.kill();
            let errors = || envoy.metric("rule.per-key.errors");
            until(Duration::from_secs(5), || (errors() > 100).then_some(()), || "the rule's on_error decides".to_owned());
            // By then the pauses between two tries are as long as they get.
            let tries = || envoy.metric("store.reconnects");
            until(Duration::from_secs(5), || (tries() >= 8).then_some(()), || format!("{} tries to reconnect", tries()));
            redis.restart();
            let start = Instant::now();
            let decided = || redis.run(&["DBSIZE"]) == redis::Value::Int(1);
            until(Duration::from_secs(5), || decided().then_some(()), || "Redis decides again".to_owned());
            back = start.elapsed();
        });
        assert!(back <= Duration::from_secs(1), "{on_error}: Redis decides again after {back:?}");
        assert_in_time(&answers, Duration::from_millis(50));
        assert!(answers.iter().all(|(given, _)| *given == 200 || *given == status), "{on_error}");
        let unavailable = answers.iter().filter(|(given, _)| *given == 503).count();
        assert_eq!(unavailable > 0, status == 503, "{on_error}: {unavailable}");
        assert_eq!(envoy.metric("rule.per-key.local_allowed") > 0, on_error == "local");
    }
}

#[test]
fn the_answer_of_a_failed_store_says_so() {
    let _machine = beside_others();
    let envoy = Setup::redis(free_port(), &with_store(r#""limits":["1/s"],"on_error":"deny""#)).start();
    let response = envoy.get("/", &[("x-api-key", "a")]);
    assert_eq!((response.status, response.body.as_str()), (503, r#"{"message":"Service unavailable"}"#));
    assert!(envoy.accesses(1)[0].ends_with("503 weir_failed:per-key verdict=error rule=per-key subject=a source=-"));
}

#[test]
fn without_redis_from_the_start_the_fallback_limits_and_redis_takes_over_when_it_comes() {
    let _machine = beside_others();
    let mut redis = Redis::start();
    redis.kill();
    let envoy = Setup::redis(redis.port, &with_store(r#""limits":["1/d burst 3"]"#)).start();
    assert_eq!(envoy.statuses("a", 5), [200, 200, 200, 429, 429]);
    assert_eq!(source(&envoy), "local");
    assert_eq!(envoy.metric("rule.per-key.local_denied"), 2);
    redis.restart();
    until(Duration::from_secs(5), || (source(&envoy) == "redis").then_some(()), || envoy.log());
    assert_eq!(envoy.metric("store.connected"), 1);
}

#[test]
fn through_the_listener_redis_goes_and_comes_back_too() {
    let _machine = beside_others();
    let mut redis = Redis::start();
    let rule = with_store(r#""limits":["1/d burst 3"]"#);
    let envoy = Setup::sample("redis-listener.yaml").with_redis(redis.port).with_text(&rule).start();
    assert_eq!(envoy.statuses("a", 4), [200, 200, 200, 429]);
    assert_eq!(source(&envoy), "redis");
    redis.kill();
    assert_eq!(envoy.statuses("b", 4), [200, 200, 200, 429]);
    assert_eq!(source(&envoy), "local");
    redis.restart();
    until(Duration::from_secs(5), || (source(&envoy) == "redis").then_some(()), || envoy.log());
}

#[test]
fn clients_that_go_away_while_redis_stalls_leave_no_trace() {
    let _machine = beside_others();
    let redis = Redis::start();
    let configuration =
        with_store(r#""limits":["1/d burst 3"]"#).replace(r#""weir-redis""#, r#""weir-redis","timeout":"5s""#);
    let envoy = Setup::redis(redis.port, &configuration).start();
    assert_eq!(envoy.statuses("warm", 1), [200]);
    redis.run(&["CLIENT", "PAUSE", "700", "ALL"]);
    for i in 0..50 {
        let mut client = Client::connect(envoy.port);
        client.send("/", &[("x-api-key", format!("gone{i}").as_bytes())]).unwrap();
    } // and here each goes away
    let mut staying = Client::connect(envoy.port);
    let start = Instant::now();
    assert_eq!(staying.get("/", &[("x-api-key", b"staying")]).unwrap().number("ratelimit-remaining"), Some(2));
    assert!(start.elapsed() > Duration::from_millis(300), "it has waited for Redis: {:?}", start.elapsed());
    assert_eq!(envoy.statuses("later", 4), [200, 200, 200, 429], "each reply is its own call's");
    assert_eq!(envoy.metric("rule.per-key.errors"), 0);
}

#[test]
fn when_redis_stalls_a_request_times_out_and_its_late_reply_is_nobodys() {
    let _machine = beside_others();
    let redis = Redis::start();
    let rule = with_store(r#""limits":["1/d burst 3"],"on_error":"allow","cache_denials":"0s""#);
    let rule = rule.replace(r#""weir-redis""#, r#""weir-redis","timeout":"1s","breaker":{"failures":1000}"#);
    let envoy = Setup::redis(redis.port, &rule).start();
    assert_eq!(envoy.statuses("a", 4), [200, 200, 200, 429]);
    redis.run(&["CLIENT", "PAUSE", "1500", "ALL"]);
    let allowed = envoy.get("/", &[("x-api-key", "a")]);
    assert_eq!((allowed.status, allowed.header("ratelimit-limit")), (200, None), "let in by on_error");
    // Redis still stalls, and the first reply to come, a denial, is that of the request that has been let in.
    assert_eq!(envoy.statuses("b", 4), [200, 200, 200, 429]);
    assert_eq!((envoy.metric("store.timeouts"), envoy.metric("rule.per-key.errors")), (1, 1));
    assert_eq!(envoy.metric("store.reconnects"), 0);
}

#[test]
fn a_script_that_was_flushed_is_brought_along_and_nobody_is_charged_twice() {
    let _machine = beside_others();
    let redis = Redis::start();
    let envoy = Setup::redis(redis.port, &with_store(r#""limits":["1/d burst 1000"]"#)).start();
    let mut client = Client::connect(envoy.port);
    for i in 0..20 {
        let response = client.get("/", &[("x-api-key", b"a")]).unwrap();
        assert_eq!(response.number("ratelimit-remaining"), Some(999 - i));
        redis.run(&["SCRIPT", "FLUSH"]);
    }
    assert_eq!(envoy.metric("store.noscript"), 20);
    assert_eq!(envoy.metric("rule.per-key.errors"), 0);
}

#[test]
fn a_password_that_is_wanted_is_a_failure_at_once() {
    let _machine = beside_others();
    let redis = Redis::start_with(&["--requirepass", "secret"]);
    let rule = with_store(r#""limits":["1/d burst 3"]"#).replace(r#""weir-redis""#, r#""weir-redis","timeout":"5s""#);
    let envoy = Setup::redis(redis.port, &rule).start();
    let start = Instant::now();
    assert_eq!(envoy.statuses("a", 4), [200, 200, 200, 429]);
    assert!(start.elapsed() < Duration::from_secs(2), "not one timeout: {:?}", start.elapsed());
    assert_eq!(source(&envoy), "local");
    until(
        Duration::from_secs(5),
        || {
            source(&envoy);
            envoy.log().contains("NOAUTH").then_some(())
        },
        || format!("the log says why:\n{}", envoy.log()),
    );
}

#[test]
fn clusters_that_lead_nowhere_are_a_failure_at_once() {
    let _machine = beside_others();
    let rule = with_store(r#""limits":["1/d burst 3"]"#).replace(r#""weir-redis""#, r#""weir-redis","timeout":"5s""#);
    let sample = Setup::sample("redis.yaml");
    let nobody = sample.clone().without_endpoints("weir-redis").with_text(&rule);
    let unknown = sample.with_text(&rule.replace("weir-redis", "no-such-cluster"));
    let refused = Setup::redis(free_port(), &rule);
    for (what, setup) in [("no endpoint", nobody), ("unknown cluster", unknown), ("refused", refused)] {
        let envoy = setup.start();
        let start = Instant::now();
        assert_eq!(envoy.statuses("a", 4), [200, 200, 200, 429], "{what}");
        assert!(start.elapsed() < Duration::from_secs(2), "{what}: not one timeout: {:?}", start.elapsed());
        assert_eq!(source(&envoy), "local", "{what}");
        let told = envoy.log().lines().filter(|line| line.contains("Redis can't be asked")).count();
        assert_eq!(told, 1, "{what}: it is told once, and not by the main thread:\n{}", envoy.log());
    }
}

#[test]
fn a_black_hole_costs_a_timeout_and_then_nothing() {
    let _machine = alone();
    let hole = Faulty::redis(Mode::Silent);
    let envoy = Setup::redis(hole.port, &with_store(r#""limits":["1000000/s"]"#)).start();
    let mut client = Client::connect(envoy.port);
    let mut took: Vec<Duration> = (0..60)
        .map(|_| {
            let start = Instant::now();
            assert_eq!(client.get("/", &[("x-api-key", b"a")]).unwrap().status, 200);
            start.elapsed()
        })
        .collect();
    took.sort();
    assert!(took[took.len() / 2] < Duration::from_millis(10), "most are decided at once: {took:?}");
    let waited = took.iter().filter(|took| **took > Duration::from_millis(40)).count();
    assert!((5..=8).contains(&waited), "five timeouts open the breaker, and a probe may be among them: {took:?}");
    // The machine may stall the slowest two.
    assert!(took[took.len() - 3] <= Duration::from_millis(50 + 20), "within the timeout and 20 ms: {took:?}");
    assert_eq!(envoy.metric("store.breaker_open"), 1);
}

#[test]
fn replies_that_are_not_the_scripts_are_failures_and_the_next_good_one_counts() {
    let _machine = beside_others();
    let replies: [&[u8]; 20] = [
        b"-LOADING Redis is loading the dataset in memory\r\n",
        b"-OOM command not allowed when used memory > 'maxmemory'.\r\n",
        b"-NOAUTH Authentication required.\r\n",
        b"-WRONGPASS invalid username-password pair\r\n",
        b"-BUSY Redis is busy running a script.\r\n",
        b"-MOVED 3999 127.0.0.1:6381\r\n",
        b"-READONLY You can't write against a read only replica.\r\n",
        b"-NOSCRIPT No matching script.\r\n",
        b"-upstream failure\r\n",
        b"-ERR \xff\xfe\x00 bytes\r\n",
        b"+OK\r\n",
        b":1\r\n",
        b"$-1\r\n",
        b"*-1\r\n",
        b"*0\r\n",
        b"*4\r\n:1\r\n:-8\r\n:0\r\n:0\r\n",
        b"*4\r\n:7\r\n:1\r\n:0\r\n:0\r\n",
        b"*4\r\n$1\r\n1\r\n:1\r\n:0\r\n:0\r\n",
        b"*1\r\n*1\r\n*1\r\n:1\r\n",
        b"*8\r\n:1\r\n:1\r\n:0\r\n:0\r\n:1\r\n:1\r\n:0\r\n:0\r\n",
    ];
    let mut fake = Faulty::redis(Mode::Silent);
    let rule = with_store(r#""limits":["1/d burst 3"],"on_error":"deny","cache_denials":"0s""#);
    let rule = rule.replace(r#""weir-redis""#, r#""weir-redis","breaker":{"failures":1000}"#);
    let envoy = Setup::redis(fake.port, &rule).start();
    for reply in replies {
        let shown = String::from_utf8_lossy(reply).into_owned();
        fake.is(Mode::Bytes(reply.to_vec()));
        assert_eq!(envoy.statuses("a", 1), [503], "{shown}");
        fake.is(Mode::Bytes(b"*4\r\n:1\r\n:1\r\n:0\r\n:7\r\n".to_vec()));
        assert_eq!(envoy.statuses("a", 1), [200], "{shown}");
        fake.is(Mode::Bytes(b"*4\r\n:0\r\n:0\r\n:5000\r\n:7\r\n".to_vec()));
        let denied = envoy.get("/", &[("x-api-key", "a")]);
        assert_eq!((denied.status, denied.number("retry-after")), (429, Some(5)), "{shown}");
    }
}

#[test]
fn bytes_that_are_not_resp_or_break_off_end_the_stream_and_not_the_filter() {
    let _machine = beside_others();
    let replies: [&[u8]; 9] = [
        b"HTTP/1.1 400 Bad Request\r\n\r\n<html>",
        b"*2147483647\r\n",
        b"*9999999999999999999999\r\n",
        b"$9223372036854775807\r\n",
        b"$-5\r\n",
        b"\x00\x01\x02\x03",
        b"*4\r\n:1\r\n:1x\r\n",
        b":99999999999999999999\r\n",
        b"\r\n\r\n",
    ];
    let good = b"*4\r\n:1\r\n:1\r\n:0\r\n:7\r\n";
    let cuts = (0..good.len()).map(|at| Mode::BytesAndClose(good[..at].to_vec()));
    let mut fake = Faulty::redis(Mode::Bytes(good.to_vec()));
    let rule = with_store(r#""limits":["1/d burst 3"],"on_error":"deny""#);
    let rule = rule.replace(r#""weir-redis""#, r#""weir-redis","breaker":{"failures":1000}"#);
    let envoy = Setup::redis(fake.port, &rule).start();
    for reply in replies.iter().map(|reply| Mode::Bytes(reply.to_vec())).chain(cuts) {
        let decided = || (envoy.statuses("a", 1) == [200]).then_some(());
        fake.is(Mode::Bytes(good.to_vec()));
        until(Duration::from_secs(5), decided, || envoy.log());
        fake.is(reply);
        assert_eq!(envoy.statuses("a", 1), [503]);
    }
}

#[test]
fn a_hundred_thousand_subjects_without_redis_take_no_more_memory_and_an_honest_client_is_limited() {
    let _machine = alone();
    let envoy = Setup::redis(free_port(), &with_store(r#""limits":["1/d burst 5"]"#)).with_workers(2).start();
    assert_eq!(envoy.statuses("honest", 6), [200, 200, 200, 200, 200, 429]);
    let many = |from: usize, to: usize| {
        std::thread::scope(|scope| {
            for part in 0..4 {
                let envoy = &envoy;
                scope.spawn(move || {
                    let mut client = Client::connect(envoy.port);
                    for i in (from..to).filter(|i| i % 4 == part) {
                        let status = client.get("/", &[("x-api-key", format!("s{i}").as_bytes())]).unwrap().status;
                        assert_eq!(status, 200);
                    }
                });
            }
        });
    };
    many(0, 30_000); // by now every slot is full
    let before = envoy.resident_bytes();
    many(30_000, 100_000);
    let grown = envoy.resident_bytes().saturating_sub(before);
    assert!(grown < 8 << 20, "{grown} bytes more for 70,000 subjects more");
    assert!(envoy.metric("local.slots_used") <= 1024, "{}", envoy.metric("local.slots_used"));
    assert_eq!(envoy.statuses("honest", 1), [429]);
}
