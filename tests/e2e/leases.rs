//! Requests that are paid for ahead.

use crate::servers::envoy_server::{Envoy, Setup};
use crate::servers::http_client::Client;
use crate::servers::redis_server::Redis;
use crate::{alone, beside_others, with_store};
use std::time::{Duration, Instant};

/// How many of a client's requests are let in until the time is over.
fn let_in(envoy: &Envoy, end: Instant) -> u64 {
    let (mut client, mut let_in) = (Client::connect(envoy.port), 0);
    while Instant::now() < end {
        let_in += u64::from(client.get("/", &[("x-api-key", b"a")]).unwrap().status == 200);
    }
    let_in
}

#[test]
fn four_envoys_let_in_all_of_a_limit_and_not_one_more() {
    const SECONDS: u64 = 3;
    // How many there are at once, and how many come a second.
    let cases = [
        (r#""4000/d fixed_window""#, 4000, 0),
        (r#""1/d burst 4000""#, 4000, 0),
        (r#""4000/d sliding_window""#, 4000, 0),
        (r#""8000/d fixed_window","1/d burst 4000","9000/h sliding_window""#, 4000, 0),
        (r#""1000/s burst 2000""#, 2000, 1000),
    ];
    let _machine = alone();
    for (limits, at_once, a_second) in cases {
        let redis = Redis::start();
        let rule = with_store(&format!(r#""limits":[{limits}],"lease":{{"max":50}}"#));
        let envoys: Vec<Envoy> = (0..4).map(|_| Setup::redis(redis.port, &rule).start()).collect();
        let begun_ms = redis.now_ms();
        let end = Instant::now() + Duration::from_secs(SECONDS);
        let counts: Vec<u64> = std::thread::scope(|scope| {
            let clients = envoys.iter().flat_map(|envoy| [envoy, envoy]);
            let clients: Vec<_> = clients.map(|envoy| scope.spawn(move || let_in(envoy, end))).collect();
            clients.into_iter().map(|client| client.join().unwrap()).collect()
        });
        let passed_ms = redis.now_ms() - begun_ms;
        let counted: u64 = counts.iter().sum();
        let leased: u64 = envoys.iter().map(|envoy| envoy.metric("rule.per-key.lease_allowed")).sum();
        let most = at_once + a_second * passed_ms / 1000;
        assert!(counted <= most, "{limits}: {counted} of {most} in {passed_ms} ms");
        // What the last leases had left over, two of each of the four at most.
        assert!(counted + 4 * 2 * 50 >= at_once, "{limits}: {counted} of {most}");
        assert!(leased * 4 >= at_once, "{limits}: {leased} of {counted} by leases");
        assert_eq!(counted, envoys.iter().map(|envoy| envoy.metric("rule.per-key.allowed")).sum::<u64>(), "{limits}");
    }
}

#[test]
fn a_client_at_full_speed_costs_few_calls() {
    let _machine = alone();
    let redis = Redis::start();
    let rule = r#""limits":["100000/s","10000000/min sliding_window"],"lease":{}"#;
    let envoy = Setup::redis(redis.port, &with_store(rule)).start();
    let end = Instant::now() + Duration::from_secs(2);
    let counted: u64 = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..4).map(|_| scope.spawn(|| let_in(&envoy, end))).collect();
        clients.into_iter().map(|client| client.join().unwrap()).sum()
    });
    assert_eq!(envoy.metric("rule.per-key.allowed"), counted);
    let (leased, calls) = (envoy.metric("rule.per-key.lease_allowed"), envoy.metric("store.requests"));
    assert!(leased * 10 >= counted * 9, "{leased} of {counted} by leases");
    assert!(calls * 8 <= counted, "{calls} calls for {counted} requests");
    assert!(envoy.accesses(1).iter().any(|line| line.ends_with("verdict=allowed rule=per-key subject=a source=lease")));
}

#[test]
fn a_client_that_comes_seldom_is_asked_for_each_time() {
    let _machine = beside_others();
    let redis = Redis::start();
    let envoy = Setup::redis(redis.port, &with_store(r#""limits":["1000/min"],"lease":{}"#)).start();
    for _ in 0..12 {
        assert_eq!(envoy.statuses("a", 1), [200]);
        std::thread::sleep(Duration::from_millis(80));
    }
    assert_eq!((envoy.metric("rule.per-key.lease_allowed"), envoy.metric("store.requests")), (0, 12));
}
