//! What is counted.

use crate::beside_others;
use crate::servers::envoy_server::{Envoy, Setup};
use crate::servers::redis_server::Redis;
use crate::servers::until;
use std::collections::BTreeMap;
use std::time::Duration;

/// The metrics that differ, and by how much.
fn moved(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> Vec<String> {
    let by = |name: &String, value: &u64| i128::from(*value) - i128::from(before.get(name).copied().unwrap_or(0));
    let moved = after.iter().map(|(name, value)| (name, by(name, value))).filter(|(_, by)| *by != 0);
    moved.map(|(name, by)| format!("{name} {by:+}")).collect()
}

fn all(envoy: &Envoy) -> BTreeMap<String, u64> {
    envoy.metrics().into_iter().collect()
}

/// What moves when that is done.
fn moves(envoy: &Envoy, act: impl FnOnce()) -> Vec<String> {
    let before = all(envoy);
    act();
    let pending = || envoy.metric("store.pending") == 0;
    until(Duration::from_secs(5), || pending().then_some(()), || "nothing is under way".to_owned());
    moved(&before, &all(envoy))
}

const RULES: &str = r#"
    {"name":"plenty","match":{"path":{"prefix":"/plenty"}},"key":["const:a"],"limits":["1/d burst 100"]},
    {"name":"one","match":{"path":{"prefix":"/one"}},"key":["const:a"],"limits":["1/d"]},
    {"name":"shadow","match":{"path":{"prefix":"/shadow"}},"key":["const:a"],"limits":["1/d"],"mode":"shadow"},
    {"name":"queue","match":{"path":{"prefix":"/queue"}},"key":["const:a"],"limits":["1/2s burst 4 leaky_bucket"]},
    {"name":"keyed","match":{"path":{"prefix":"/keyed"}},"key":["header:x-none"],"limits":["1/d"]},
    {"name":"open","match":{"path":{"prefix":"/open"}},"key":["const:a"],"limits":["1/d burst 100"],"on_error":"allow"},
    {"name":"closed","match":{"path":{"prefix":"/closed"}},"key":["const:a"],"limits":["1/d burst 100"],"on_error":"deny"}"#;

fn configuration(store: &str, more: &str) -> String {
    let before = r#""exempt":[{"path":{"exact":"/exempt"}}],"block":[{"path":{"exact":"/blocked"}}]"#;
    format!(r#"{{{store}{before},"rules":[{RULES}{more}]}}"#)
}

#[test]
fn each_moves_by_one_in_the_case_that_is_its_own() {
    let _machine = beside_others();
    let redis = Redis::start();
    let store = r#""store":{"cluster":"weir-redis","timeout":"500ms"},"#;
    let live = r#",{"name":"live","match":{"path":{"prefix":"/live"}},"key":["const:a"],"limits":["1/d"],"live_overrides":{"every":"1s"}}"#;
    let faulty = "              routes:\n              - {match: {prefix: /faulty}, metadata: {filter_metadata: {weir: {cost: x}}}, direct_response: {status: 200}}\n";
    let envoy = Setup::redis(redis.port, &configuration(store, live)).replace("              routes:\n", faulty).start();
    let statuses = |path: &str| envoy.get(path, &[]).status;
    // The first request of a worker brings the connection and the script.
    assert_eq!(
        moves(&envoy, || assert_eq!(statuses("/plenty"), 200)),
        ["rule.plenty.allowed +1", "store.connected +1", "store.noscript +1", "store.requests +1",]
    );
    let table: [(&str, u16, &[&str]); 11] = [
        ("/elsewhere", 200, &[]),
        ("/plenty", 200, &["rule.plenty.allowed +1", "store.requests +1"]),
        ("/one", 200, &["rule.one.allowed +1", "rule.one.near_limit +1", "store.requests +1"]),
        ("/one", 429, &["rule.one.denied +1", "store.requests +1"]),
        ("/shadow", 200, &["rule.shadow.allowed +1", "rule.shadow.near_limit +1", "store.requests +1"]),
        ("/shadow", 200, &["rule.shadow.shadow_denied +1", "store.requests +1"]),
        ("/keyed", 200, &["rule.keyed.missing_key +1"]),
        ("/queue", 200, &["rule.queue.allowed +1", "store.requests +1"]),
        ("/exempt", 200, &["request.exempt +1"]),
        ("/blocked", 403, &["request.blocked +1"]),
        ("/faulty", 200, &["config.route_errors +1"]),
    ];
    for (path, status, wanted) in table {
        let seen = moves(&envoy, || assert_eq!(statuses(path), status, "{path}"));
        assert_eq!(seen, wanted, "{path}");
    }
    let delayed = moves(&envoy, || assert_eq!(statuses("/queue"), 200));
    assert_eq!(delayed, ["rule.queue.allowed +1", "rule.queue.delayed +1", "store.requests +1"]);
    let flushed = moves(&envoy, || {
        redis.run(&["SCRIPT", "FLUSH"]);
        statuses("/plenty");
    });
    assert_eq!(flushed, ["rule.plenty.allowed +1", "store.noscript +1", "store.requests +1"]);
    let bad = moves(&envoy, || {
        redis.run(&["HSET", "rl:overrides:live", "a", "many"]);
        let counted = || (envoy.metric("config.override_errors") > 0).then_some(());
        until(Duration::from_secs(5), counted, || "the override is read".to_owned());
        redis.run(&["DEL", "rl:overrides:live"]);
    });
    assert_eq!(bad, ["config.override_errors +1"]);
    // A key of another type: Redis answers with an error.
    redis.run(&["SET", "rl:{open:a}:tb:86400000", "x"]);
    redis.run(&["SET", "rl:{closed:a}:tb:86400000", "x"]);
    let open = moves(&envoy, || assert_eq!(statuses("/open"), 200));
    assert_eq!(open, ["rule.open.allowed +1", "rule.open.errors +1", "store.failures +1", "store.requests +1"]);
    let closed = moves(&envoy, || assert_eq!(statuses("/closed"), 503));
    assert_eq!(closed, ["rule.closed.errors +1", "store.failures +1", "store.requests +1"]);
    redis.run(&["DEL", "rl:{open:a}:tb:86400000"]);
    let late = moves(&envoy, || {
        redis.run(&["CLIENT", "PAUSE", "1000", "ALL"]);
        assert_eq!(statuses("/open"), 200);
    });
    assert_eq!(
        late,
        ["rule.open.allowed +1", "rule.open.errors +1", "store.failures +1", "store.requests +1", "store.timeouts +1"]
    );
    let latencies = envoy.metric_text("store.latency_us");
    assert!(latencies.contains("wasmcustom.weir.store.latency_us"), "{latencies}");
}

#[test]
fn a_store_that_fails_and_comes_back_is_counted() {
    let _machine = beside_others();
    let redis = Redis::start();
    let store = r#""store":{"cluster":"weir-redis","breaker":{"failures":1,"open":"200ms"}},"#;
    let envoy = Setup::redis(redis.port, &configuration(store, "")).start();
    let get = |path: &str| envoy.get(path, &[]).status;
    get("/plenty");
    redis.run(&["SET", "rl:{open:a}:tb:86400000", "x"]);
    let opened = moves(&envoy, || assert_eq!(get("/open"), 200));
    assert!(
        opened.contains(&"store.breaker_open +1".to_owned()) && opened.contains(&"store.failures +1".to_owned()),
        "{opened:?}"
    );
    redis.run(&["DEL", "rl:{open:a}:tb:86400000"]);
    // Redis decides again once the breaker lets it.
    let decided = || {
        let requests = envoy.metric("store.requests");
        get("/plenty");
        (envoy.metric("store.requests") > requests && envoy.metric("store.connected") == 1).then_some(())
    };
    until(Duration::from_secs(5), decided, || "Redis decides again".to_owned());
    let dropped = moves(&envoy, || {
        redis.run(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        let back = || (envoy.metric("store.reconnects") > 0 && envoy.metric("store.connected") == 1).then_some(());
        until(
            Duration::from_secs(5),
            || {
                get("/plenty");
                back()
            },
            || "it is connected again".to_owned(),
        );
    });
    assert!(dropped.contains(&"store.reconnects +1".to_owned()), "{dropped:?}");
}

#[test]
fn the_local_buckets_are_counted() {
    let _machine = beside_others();
    let envoy = Setup::local(&configuration("", "")).start();
    let get = |path: &str| moved_by(&envoy, path);
    let allowed = ["local.slots_used +1", "rule.one.allowed +1", "rule.one.local_allowed +1", "rule.one.near_limit +1"];
    assert_eq!(get("/one"), allowed);
    assert_eq!(get("/one"), ["rule.one.denied +1", "rule.one.local_denied +1"]);
}

fn moved_by(envoy: &Envoy, path: &str) -> Vec<String> {
    let before = all(envoy);
    envoy.get(path, &[]);
    moved(&before, &all(envoy))
}
