//! Each algorithm as a client meets it, and several limits on one request.

use crate::beside_others;
use crate::servers::envoy_server::Setup;
use crate::servers::http_client::Client;
use crate::servers::redis_server::Redis;
use crate::servers::wait_by_the_clock;
use redis::Value;
use std::time::{Duration, Instant, SystemTime};

const ALGORITHMS: [&str; 4] = ["token_bucket", "fixed_window", "sliding_log", "sliding_window"];

/// A configuration with a rule for each of these: a name, a key and the limits.
fn rules(rules: &[(&str, &str, &[&str])]) -> String {
    let rules: Vec<String> = rules
        .iter()
        .map(|(name, key, limits)| {
            let limits: Vec<String> = limits.iter().map(|limit| format!(r#""{limit}""#)).collect();
            format!(r#"{{"name":"{name}","key":["{key}"],"limits":[{}]}}"#, limits.join(","))
        })
        .collect();
    format!(r#"{{"store":{{"cluster":"weir-redis"}},"rules":[{}]}}"#, rules.join(","))
}

#[test]
fn every_algorithm_limits_and_tells_an_honest_wait() {
    let _machine = beside_others();
    let redis = Redis::start();
    let headers: Vec<String> = ALGORITHMS.iter().map(|algorithm| format!("header:x-{algorithm}")).collect();
    let limits: Vec<[String; 1]> = ALGORITHMS.iter().map(|algorithm| [format!("3/2s {algorithm}")]).collect();
    let limits: Vec<[&str; 1]> = limits.iter().map(|limit| [limit[0].as_str()]).collect();
    let each: Vec<(&str, &str, &[&str])> = ALGORITHMS
        .iter()
        .zip(&headers)
        .zip(&limits)
        .map(|((name, header), limits)| (*name, header.as_str(), &limits[..]))
        .collect();
    let envoy = Setup::redis(redis.port, &rules(&each)).start();
    std::thread::scope(|scope| {
        for algorithm in ALGORITHMS {
            let envoy = &envoy;
            scope.spawn(move || {
                let mut client = Client::connect(envoy.port);
                let header = format!("x-{algorithm}");
                let mut get = || client.get("/", &[(&header, b"a")]).unwrap();
                for remaining in [2, 1, 0] {
                    let response = get();
                    assert_eq!((response.status, response.number("ratelimit-limit")), (200, Some(3)), "{algorithm}");
                    assert_eq!(response.number("ratelimit-remaining"), Some(remaining), "{algorithm}");
                    assert!(response.number("ratelimit-reset").is_some_and(|s| (1..=4).contains(&s)), "{algorithm}");
                }
                let (denied, since) = (get(), SystemTime::now());
                assert_eq!((denied.status, denied.number("ratelimit-remaining")), (429, Some(0)), "{algorithm}");
                let wait = denied.number("retry-after").unwrap();
                assert!((1..=4).contains(&wait), "{algorithm}: {wait}");
                wait_by_the_clock(since, Duration::from_secs(wait));
                assert_eq!(get().status, 200, "{algorithm} after {wait} s");
            });
        }
    });
}

#[test]
fn a_leaky_bucket_spaces_requests_out_and_denies_what_it_cannot_hold() {
    let _machine = beside_others();
    let redis = Redis::start();
    let limits: &[&str] = &["2/s burst 4 leaky_bucket"];
    let envoy = Setup::redis(redis.port, &rules(&[("paced", "header:x-api-key", limits)])).start();
    envoy.statuses("warm", 1);
    let start = Instant::now();
    let mut ended: Vec<(u16, Duration)> = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    let response = envoy.get("/", &[("x-api-key", "a")]);
                    (response.status, start.elapsed())
                })
            })
            .collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    });
    ended.sort();
    let (passed, denied) = ended.split_at(5);
    assert!(passed.iter().all(|(status, _)| *status == 200) && denied.iter().all(|(status, _)| *status == 429), "{ended:?}");
    let (first, last) = (passed[0].1, passed[4].1);
    // They begin at nearly the same time, and the fifth leaves two seconds after the first.
    assert!(last >= Duration::from_millis(1995) && last - first >= Duration::from_millis(1500), "{ended:?}");
    assert!(last < Duration::from_millis(3000), "{ended:?}");
    assert_eq!((envoy.metric("rule.paced.delayed"), envoy.metric("rule.paced.denied")), (4, 3));
    // One after the other, each waits for the one before, and none is denied.
    assert_eq!(envoy.statuses("b", 3), [200; 3]);
}

#[test]
fn the_limits_of_a_rule_are_charged_together_or_not_at_all() {
    let _machine = beside_others();
    let redis = Redis::start();
    let limits: &[&str] = &["1/d burst 40", "5/d sliding_log", "100/h fixed_window", "50/min sliding_window"];
    let envoy = Setup::redis(redis.port, &rules(&[("layered", "header:x-api-key", limits)])).start();
    assert_eq!(envoy.statuses("a", 12), [[200; 5].as_slice(), &[429; 7]].concat());
    let denied = envoy.get("/", &[("x-api-key", "a")]);
    assert_eq!((denied.number("ratelimit-limit"), denied.number("ratelimit-remaining")), (Some(5), Some(0)));
    let day = 24 * 60 * 60;
    assert!(denied.number("retry-after").is_some_and(|s| (day - 60..=day).contains(&s)), "{denied:?}");
    let key = |suffix: &str| format!("rl:{{layered:a}}:{suffix}");
    assert_eq!(redis.run(&["HGET", &key("tb:86400000"), "tokens"]), Value::BulkString("35".into()));
    assert_eq!(redis.run(&["ZCARD", &key("sl:86400000")]), Value::Int(5));
    assert_eq!(redis.run(&["GET", &key("fw:3600000")]), Value::BulkString("5".into()));
    assert_eq!(redis.run(&["DBSIZE"]), Value::Int(4), "a key for each limit, and no more");
}

#[test]
fn what_one_rule_denies_costs_nothing_under_another() {
    let _machine = beside_others();
    let redis = Redis::start();
    let both: [(&str, &str, &[&str]); 2] =
        [("user", "header:x-api-key", &["1/d"]), ("global", "const:all", &["10/d sliding_window"])];
    let envoy = Setup::redis(redis.port, &rules(&both)).start();
    assert_eq!(envoy.statuses("a", 20), [[200; 1].as_slice(), &[429; 19]].concat());
    assert_eq!(envoy.get("/", &[("x-api-key", "b")]).status, 200);
    assert_eq!((envoy.metric("rule.user.denied"), envoy.metric("rule.global.denied")), (19, 0));
    assert_eq!(envoy.metric("rule.global.allowed"), 2);
}
