//! Denials that cost Redis nothing.

use crate::servers::envoy_server::Setup;
use crate::servers::http_client::Client;
use crate::servers::redis_server::Redis;
use crate::servers::until;
use crate::{alone, beside_others, with_store};
use std::time::{Duration, Instant, SystemTime};

/// How often Redis was asked for a decision.
fn asked(redis: &Redis) -> u64 {
    let info: String = redis::from_redis_value(redis.run(&["INFO", "commandstats"])).unwrap();
    let calls = info.lines().filter_map(|line| line.strip_prefix("cmdstat_eval")?.split_once("calls=")?.1.split_once(','));
    calls.map(|(calls, _)| calls.parse::<u64>().unwrap()).sum()
}

#[test]
fn a_denied_client_at_full_speed_costs_redis_two_calls_a_second() {
    const CLIENTS: u64 = 8;
    const SECONDS: u64 = 5;
    let _machine = alone();
    let redis = Redis::start();
    let envoy = Setup::redis(redis.port, &with_store(r#""limits":["1/d"]"#)).start();
    assert_eq!(envoy.statuses("a", 2), [200, 429]);
    let before = asked(&redis);
    let end = Instant::now() + Duration::from_secs(SECONDS);
    let denied: u64 = std::thread::scope(|scope| {
        let client = || {
            let (mut client, mut denied) = (Client::connect(envoy.port), 0);
            while Instant::now() < end {
                assert_eq!(client.get("/", &[("x-api-key", b"a")]).unwrap().status, 429);
                denied += 1;
            }
            denied
        };
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(client)).collect();
        clients.into_iter().map(|client| client.join().unwrap()).sum()
    });
    let asked = asked(&redis) - before;
    assert!((SECONDS..=2 * SECONDS + 1).contains(&asked), "{asked} calls for {denied} denials");
    assert!(denied > 100 * asked, "{asked} calls for {denied} denials");
    assert_eq!(envoy.metric("rule.per-key.denied"), denied + 1);
    assert!(envoy.metric("rule.per-key.cache_denied") >= denied - asked);
    assert!(
        envoy.accesses(1).iter().any(|line| line.ends_with("verdict=denied rule=per-key subject=a source=denial_cache"))
    );
}

#[test]
fn who_asks_all_the_time_is_let_in_at_the_very_time_that_redis_told() {
    let _machine = alone();
    let redis = Redis::start();
    for cache in ["1s", "0s"] {
        let rule = format!(r#""limits":["100/min burst 1"],"cache_denials":"{cache}""#);
        let envoy = Setup::redis(redis.port, &with_store(&rule)).start();
        let mut client = Client::connect(envoy.port);
        let mut let_in = Vec::new();
        while let_in.len() < 6 {
            let asked = SystemTime::now();
            if client.get("/", &[("x-api-key", cache.as_bytes())]).unwrap().status == 200 {
                let_in.push((asked, SystemTime::now()));
            }
        }
        // From before it was asked for one to after it was told of the next there are 600 ms, and the way here and there. The machine
        // may stall once.
        let waits = let_in.windows(2).skip(1).map(|pair| pair[1].1.duration_since(pair[0].0).unwrap());
        let waits: Vec<u128> = waits.map(|wait| wait.as_millis()).collect();
        assert!(waits.iter().all(|wait| *wait >= 599), "{cache}: {waits:?}");
        assert!(waits.iter().filter(|wait| **wait > 640).count() <= 1, "{cache}: {waits:?}");
    }
}

#[test]
fn a_bucket_that_is_emptied_by_hand_counts_within_the_time_of_the_cache() {
    let _machine = beside_others();
    let redis = Redis::start();
    let envoy = Setup::redis(redis.port, &with_store(r#""limits":["1/d"]"#)).start();
    assert_eq!(envoy.statuses("a", 3), [200, 429, 429]);
    redis.run(&["FLUSHALL"]);
    let start = Instant::now();
    until(Duration::from_secs(5), || (envoy.statuses("a", 1) == [200]).then_some(()), || "let in again".to_owned());
    assert!(start.elapsed() <= Duration::from_millis(1050), "{:?}", start.elapsed());
}
