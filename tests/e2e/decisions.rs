//! What is let in and what clients are told.

use crate::servers::envoy_server::{Envoy, Setup};
use crate::servers::http_client::Client;
use crate::servers::redis_server::Redis;
use crate::servers::wait_by_the_clock;
use crate::{beside_others, with_store};
use std::time::{Duration, SystemTime};

const BURST_OF_THREE: &str = r#""limits":["100/min burst 3"]"#;

#[test]
fn three_pass_and_the_fourth_is_told_an_honest_wait() {
    let _machine = beside_others();
    let redis = Redis::start();
    let envoy = Setup::redis(redis.port, &with_store(BURST_OF_THREE)).start();
    let mut client = Client::connect(envoy.port);
    let mut get = |key: &str| client.get("/", &[("x-api-key", key.as_bytes())]).unwrap();
    for remaining in [2, 1, 0] {
        let response = get("a");
        assert_eq!((response.status, response.body.as_str()), (200, "ok"));
        assert_eq!(response.number("ratelimit-limit"), Some(3));
        assert_eq!(response.number("ratelimit-remaining"), Some(remaining));
        assert!(response.number("ratelimit-reset").is_some_and(|reset| reset <= 2), "{response:?}");
    }
    let denied = get("a");
    let since = SystemTime::now();
    assert_eq!((denied.status, denied.body.as_str()), (429, r#"{"message":"Too many requests"}"#));
    assert_eq!(denied.header("content-type"), Some("application/json"));
    assert_eq!((denied.number("ratelimit-limit"), denied.number("ratelimit-remaining")), (Some(3), Some(0)));
    assert_eq!(denied.number("retry-after"), Some(1), "0.6 s, rounded up");
    assert_eq!(get("b").status, 200, "another key is not affected");
    wait_by_the_clock(since, Duration::from_secs(1));
    assert_eq!(get("a").status, 200);
}

#[test]
fn the_very_first_request_is_decided_by_redis() {
    let _machine = beside_others();
    let redis = Redis::start();
    let envoy = Setup::redis(redis.port, &with_store(BURST_OF_THREE)).start();
    assert_eq!(envoy.get("/", &[("x-api-key", "a")]).status, 200);
    let lines = envoy.accesses(1);
    assert!(lines[0].ends_with("verdict=allowed rule=per-key subject=a source=redis"), "{}", lines[0]);
}

/// How many of so many requests, by clients at once to some Envoys, are let in.
fn admitted(envoys: &[&Envoy], clients: usize, each: usize) -> usize {
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..clients)
            .map(|client| {
                let envoy = envoys[client % envoys.len()];
                scope.spawn(move || envoy.statuses("shared", each))
            })
            .collect();
        let statuses = clients.into_iter().flat_map(|client| client.join().unwrap());
        statuses.filter(|status| *status == 200).count()
    })
}

#[test]
fn two_workers_and_two_envoys_on_one_redis_admit_what_one_would() {
    let _machine = beside_others();
    let redis = Redis::start();
    let setup = Setup::redis(redis.port, &with_store(r#""limits":["1/d burst 50"]"#)).with_workers(2);
    let (one, other) = (setup.clone().start(), setup.start());
    assert_eq!(admitted(&[&one, &other], 8, 20), 50);
    assert_eq!(one.metric("rule.per-key.errors") + other.metric("rule.per-key.errors"), 0);
}

#[test]
fn two_workers_without_redis_admit_what_one_would() {
    let _machine = beside_others();
    let rule = r#"{"rules":[{"name":"per-key","key":["header:x-api-key"],"limits":["1/d burst 50"]}]}"#;
    let envoy = Setup::local(rule).with_workers(2).start();
    assert_eq!(admitted(&[&envoy], 8, 20), 50);
}

#[test]
fn metrics_and_access_log_say_what_happened() {
    let _machine = beside_others();
    let redis = Redis::start();
    let configuration = r#"{"store":{"cluster":"weir-redis"},"rules":[
        {"name":"per-key","key":["header:x-api-key"],"limits":["1/d burst 2"]},
        {"name":"needs","match":{"path":{"prefix":"/needs"}},"key":["header:x-user"],"limits":["1/d"],"on_missing":"deny"}]}"#;
    let envoy = Setup::redis(redis.port, configuration).start();
    assert_eq!(envoy.statuses("a", 3), [200, 200, 429]);
    let nobody = envoy.get("/", &[]);
    assert_eq!((nobody.status, nobody.header("ratelimit-limit")), (200, None), "no rule applies");
    let refused = envoy.get("/needs", &[]);
    assert_eq!((refused.status, refused.header("retry-after")), (429, None), "no wait helps");
    let metrics = envoy.metrics();
    let wanted = [
        ("rule.per-key.allowed", 2),
        ("rule.per-key.denied", 1),
        ("rule.per-key.near_limit", 1),
        ("rule.per-key.missing_key", 2),
        ("rule.per-key.errors", 0),
        ("rule.needs.denied", 1),
        ("rule.needs.missing_key", 1),
        ("rule.needs.allowed", 0),
        ("store.requests", 3),
        ("store.noscript", 1),
        ("store.failures", 0),
        ("store.connected", 1),
        ("local.slots_used", 0),
    ];
    for (name, value) in wanted {
        assert_eq!(metrics.get(name), Some(&value), "{name}");
    }
    let lines = envoy.accesses(5);
    assert_eq!(
        lines,
        [
            "GET / 200 direct_response verdict=allowed rule=per-key subject=a source=redis",
            "GET / 200 direct_response verdict=allowed rule=per-key subject=a source=redis",
            "GET / 429 weir_denied:per-key verdict=denied rule=per-key subject=a source=redis",
            "GET / 200 direct_response verdict=- rule=- subject=- source=-",
            "GET /needs 429 weir_denied:needs verdict=denied rule=needs subject=- source=-",
        ]
    );
}

#[test]
fn the_client_is_told_apart_by_its_address() {
    let _machine = beside_others();
    let redis = Redis::start();
    let configuration = r#"{"store":{"cluster":"weir-redis"},"rules":[{"name":"ip","key":["ip"],"limits":["1/d"]}]}"#;
    let envoy = Setup::redis(redis.port, configuration).start();
    let spoofed = envoy.get("/", &[("x-forwarded-for", "203.0.113.9")]);
    assert_eq!(spoofed.status, 200);
    assert_eq!(envoy.get("/", &[("x-forwarded-for", "203.0.113.10")]).status, 429, "a header doesn't change the address");
    let behind = Setup::redis(redis.port, configuration)
        .replace("use_remote_address: true ", "use_remote_address: true\n          xff_num_trusted_hops: 1 ")
        .start();
    assert_eq!(behind.get("/", &[("x-forwarded-for", "203.0.113.9")]).status, 200, "but a trusted proxy's does");
    assert_eq!(behind.get("/", &[("x-forwarded-for", "203.0.113.9")]).status, 429);
    assert_eq!(behind.get("/", &[("x-forwarded-for", "198.51.100.1, 203.0.113.10")]).status, 200);
}

#[test]
fn layers_of_rules_are_charged_together_or_not_at_all() {
    let _machine = beside_others();
    let redis = Redis::start();
    for scope in ["request", "rule"] {
        let configuration = format!(
            r#"{{"store":{{"cluster":"weir-redis","scope":"{scope}","key_prefix":"{scope}"}},"rules":[
            {{"name":"all","key":["const:all"],"limits":["1/d burst 10"]}},
            {{"name":"per-key","key":["header:x-api-key"],"limits":["1/d burst 2"],"cache_denials":"0s"}}]}}"#
        );
        let envoy = Setup::redis(redis.port, &configuration).start();
        assert_eq!(envoy.statuses("a", 5), [200, 200, 429, 429, 429], "{scope}");
        let left = envoy.get("/", &[("x-api-key", "b")]).number("ratelimit-remaining");
        assert_eq!(left, Some(1), "{scope}: of the limit with the least left");
        let tokens = redis.run(&["HGET", &format!("{scope}:{{all:all}}:tb:86400000"), "tokens"]);
        // One script for the request charges nothing that it denies; a script for each rule can't take back.
        let wanted = if scope == "request" { "7" } else { "4" };
        assert_eq!(tokens, redis::Value::BulkString(wanted.into()), "{scope}");
    }
}
