//! Good and bad plugin configurations in Envoy.

use crate::servers::envoy_server::{Delivery, Setup};
use crate::servers::redis_server::Redis;
use crate::servers::until;
use crate::{beside_others, with_store};
use std::process::Command;
use std::time::Duration;

const RULE: &str = r#"{"rules":[{"name":"per-key","key":["header:x-api-key"],"limits":[{"count":1,"window":"day","burst":2}],"local":{"share":0.5}}]}"#;

#[test]
fn it_comes_as_text_bytes_or_a_struct() {
    let _machine = beside_others();
    let encoded = Command::new("bash").args(["-c", "printf %s \"$0\" | base64 -w0", RULE]).output().unwrap();
    let values = [
        ("StringValue", serde_json::to_string(RULE).unwrap()),
        ("BytesValue", String::from_utf8(encoded.stdout).unwrap()),
        ("Struct", RULE.to_owned()),
    ];
    for (message, value) in values {
        let envoy = Setup::sample("quickstart.yaml").with_configuration(message, &value).start();
        assert_eq!(envoy.statuses("a", 2), [200, 429], "{message}: half of a burst of two");
    }
}

#[test]
fn a_bad_one_stops_the_start_with_a_line_for_each_fault() {
    let _machine = beside_others();
    let bad = r#"{"store":{"clutser":"c"},"rules":[{"name":"Per Key","key":["ip"],"limits":["0/s"],"on_eror":"deny"}]}"#;
    let lines = [
        r#"store.clutser: unknown field (did you mean "cluster"?); allowed: transport, cluster, timeout, key_prefix, scope, path, authority, auth, breaker"#,
        "store.cluster: missing; the name of the Envoy cluster that leads to Redis is wanted",
        r#"rules[0].name: "Per Key": 1 to 64 of a-z, 0-9, _ and - are wanted"#,
        r#"rules[0].limits[0]: "0/s": a count of 0 would deny every request; allowed: 1 to 9007199254740991"#,
        r#"rules[0].on_eror: "deny": unknown field (did you mean "on_error"?)"#,
    ];
    for (message, value) in [("StringValue", serde_json::to_string(bad).unwrap()), ("Struct", bad.to_owned())] {
        let (status, log) = Setup::sample("quickstart.yaml").with_configuration(message, &value).refused();
        assert!(!status.success(), "{status}");
        for line in lines {
            let found: Vec<&str> = log.lines().filter(|found| found.contains(line)).collect();
            assert_eq!(found.len(), 1, "{message}: {line}\n{log}");
            assert!(found[0].contains("weir: configuration: "), "{}", found[0]);
        }
    }
}

#[test]
fn none_at_all_stops_the_start_and_shows_the_smallest() {
    let _machine = beside_others();
    let (status, log) = Setup::local("").refused();
    assert!(!status.success(), "{status}");
    let smallest = r#"the smallest valid one is {"rules":[{"name":"all","key":["ip"],"limits":["10/s"]}]}"#;
    assert!(log.contains(smallest), "{log}");
    let smallest = r#"{"rules":[{"name":"all","key":["ip"],"limits":["10/s"]}]}"#;
    assert_eq!(Setup::local(smallest).start().get("/", &[]).status, 200);
}

const TAKEN: &str = "listener_manager.listener_modified";

#[test]
fn a_new_configuration_holds_at_once_and_keeps_what_was_counted() {
    let _machine = beside_others();
    let of_filter = |what: &str| format!("extension_config_discovery.http_filter.weir.{what}");
    let deliveries = [
        (Delivery::Listener, TAKEN.to_owned(), "listener_manager.lds.update_rejected".to_owned()),
        (Delivery::Filter, of_filter("update_success"), of_filter("update_rejected")),
    ];
    for (part, taken, refused) in deliveries {
        let redis = Redis::start();
        let limits =
            |limits: &str| Setup::redis(redis.port, &with_store(&format!(r#""limits":["{limits}"]"#))).delivered(part);
        let envoy = limits("1/d burst 3").start();
        assert_eq!(envoy.statuses("a", 2), [200; 2]);
        envoy.deliver(&limits("2/d burst 10"), &taken);
        let response = envoy.get("/", &[("x-api-key", "a")]);
        assert_eq!((response.status, response.number("ratelimit-limit")), (200, Some(10)));
        assert_eq!(response.number("ratelimit-remaining"), Some(0), "of three there was one left");
        assert_eq!(envoy.statuses("a", 1), [429]);
        envoy.deliver(&limits("0/d"), &refused);
        assert!(envoy.log().contains("a count of 0 would deny every request"), "{}", envoy.log());
        assert_eq!((envoy.statuses("a", 1), envoy.statuses("b", 1)), (vec![429], vec![200]), "the old one goes on");
        envoy.deliver(&limits("1/d burst 2"), &taken);
        let smaller = envoy.get("/", &[("x-api-key", "b")]);
        assert_eq!((smaller.status, smaller.number("ratelimit-limit")), (200, Some(2)), "after a bad one too");
        assert_eq!(envoy.statuses("b", 2), [200, 429], "of ten nine were left, and there is room for two");
        // The old one goes once it has been drained, and what it had in the gauge goes with it.
        let connected = || envoy.metric("store.connected");
        until(Duration::from_secs(15), || (connected() == 1).then_some(()), || format!("{} are connected", connected()));
    }
}

#[test]
fn requests_that_wait_when_a_new_configuration_comes_are_answered() {
    let _machine = beside_others();
    let redis = Redis::start();
    let rule = |limits: &str| {
        let store = r#""weir-redis","timeout":"5s""#;
        let text = with_store(&format!(r#""limits":[{limits}],"on_error":"deny""#)).replace(r#""weir-redis""#, store);
        Setup::redis(redis.port, &text).delivered(Delivery::Listener)
    };
    // One waits for Redis, which stalls; another is held back.
    for (limits, stall) in [(r#""100/min""#, "CLIENT PAUSE 1500 ALL"), (r#""1/2s leaky_bucket""#, "PING")] {
        let envoy = rule(limits).start();
        assert_eq!(envoy.statuses("a", 1), [200]);
        redis.run(&stall.split(' ').collect::<Vec<_>>());
        let status = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| envoy.get("/", &[("x-api-key", "a")]).status);
            let pending = || envoy.metric("store.pending") + envoy.metric("rule.per-key.delayed");
            until(Duration::from_secs(5), || (pending() > 0).then_some(()), || "a request waits".to_owned());
            envoy.deliver(&rule(r#""7/s""#), TAKEN);
            waiting.join().unwrap()
        });
        assert_eq!(status, 200, "{limits}");
        assert_eq!(envoy.get("/", &[("x-api-key", "b")]).number("ratelimit-limit"), Some(7));
    }
}
