//! Whatever bytes a client sends, requests are told apart by them, and nothing but RESP goes to Redis.

use crate::servers::envoy_server::{Envoy, Setup};
use crate::servers::http_client::Client;
use crate::servers::redis_server::Redis;
use crate::{beside_others, with_store};

fn status(envoy: &Envoy, key: &[u8]) -> u16 {
    Client::connect(envoy.port).get("/", &[("x-api-key", key)]).unwrap().status
}

fn keys(redis: &Redis) -> Vec<String> {
    let mut keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut redis.connect()).unwrap();
    keys.sort();
    keys
}

#[test]
fn keys_of_any_bytes_have_a_bucket_each() {
    let _machine = beside_others();
    let redis = Redis::start();
    let envoy = Setup::redis(redis.port, &with_store(r#""limits":["1/d"]"#)).start();
    let long = [vec![b'x'; 8191], vec![b'x'; 8192]];
    let values: [&[u8]; 16] = [
        b"\xff",
        b"\xfe",
        b"\xc3\x28",
        b"\xe9t\xe9",
        b"a:b",
        b"a",
        b"{a}",
        b"{",
        b"}",
        b"a%0d%0a",
        b"a\x09b",
        b"*1",
        b"$4",
        b"'; FLUSHALL",
        &long[0],
        &long[1],
    ];
    for value in values {
        let shown = String::from_utf8_lossy(&value[..value.len().min(20)]).into_owned();
        assert_eq!((status(&envoy, value), status(&envoy, value)), (200, 429), "{shown}");
    }
    let keys = keys(&redis);
    assert_eq!(keys.len(), values.len(), "{keys:?}");
    assert!(keys.iter().all(|key| key.len() <= 256 && key.starts_with("rl:{per-key:") && key.ends_with("}:tb:86400000")));
    assert_eq!(envoy.metric("rule.per-key.errors"), 0);
}

#[test]
fn bytes_in_headers_and_paths_that_no_rule_asks_for_do_no_harm() {
    let _machine = beside_others();
    let redis = Redis::start();
    let envoy = Setup::redis(redis.port, &with_store(r#""limits":["1/d"],"match":{"path":{"prefix":"/a"}}"#)).start();
    let mut client = Client::connect(envoy.port);
    let odd: &[(&str, &[u8])] = &[("x-api-key", b"k"), ("x-odd", b"\xff\xfe\x80"), ("cookie", b"\xf0\x28\x8c")];
    // Envoy itself refuses raw bytes beyond ASCII in a path.
    assert_eq!(client.get("/b/%ff/%00", odd).unwrap().status, 200, "not matched");
    assert_eq!(client.get("/a%c3%a9", odd).unwrap().status, 200, "not below /a");
    assert_eq!(client.get("/a/%ff%00%0d%0a", odd).unwrap().status, 200);
    assert_eq!(client.get("/x/../a/?%ff", odd).unwrap().status, 429);
}

#[test]
fn values_that_look_alike_when_joined_do_not_share_a_bucket() {
    let _machine = beside_others();
    let redis = Redis::start();
    let configuration = r#"{"store":{"cluster":"weir-redis"},"rules":[
        {"name":"r","key":["header:a | header:c","header:b"],"limits":["1/d"]}]}"#;
    let envoy = Setup::redis(redis.port, configuration).start();
    let get = |headers: &[(&str, &str)]| envoy.get("/", headers).status;
    assert_eq!(get(&[("a", "a:b"), ("b", "c")]), 200);
    assert_eq!(get(&[("a", "a"), ("b", "b:c")]), 200);
    assert_eq!(get(&[("a", "a,b"), ("b", "c")]), 200);
    assert_eq!(get(&[("a", "a"), ("b", "b,c")]), 200);
    assert_eq!(get(&[("c", "a"), ("b", "b,c")]), 200, "another alternative");
    assert_eq!(get(&[("a", "2~a"), ("b", "b,c")]), 200, "that spells the alternative's mark");
    assert_eq!(get(&[("A", "a"), ("B", "b,c")]), 429, "names are told apart by no case");
    assert_eq!(get(&[("a", "  a\t"), ("b", "b,c")]), 429, "nor values by blanks around them");
}

#[test]
fn several_lines_of_a_header_are_one_value() {
    let _machine = beside_others();
    let redis = Redis::start();
    let envoy = Setup::redis(redis.port, &with_store(r#""limits":["1/d"]"#)).start();
    assert_eq!(envoy.get("/", &[("x-api-key", "a"), ("x-api-key", "b")]).status, 200);
    assert_eq!(keys(&redis), ["rl:{per-key:a%2Cb}:tb:86400000"]);
    assert_eq!(envoy.get("/", &[("x-api-key", "a")]).status, 200, "a second line doesn't hide the first");
}

#[test]
fn credentials_show_neither_in_redis_nor_in_the_log() {
    let _machine = beside_others();
    let redis = Redis::start();
    let configuration =
        r#"{"store":{"cluster":"weir-redis"},"rules":[{"name":"r","key":["header:Authorization"],"limits":["1/d"]}]}"#;
    let envoy = Setup::redis(redis.port, configuration).start();
    assert_eq!(envoy.get("/", &[("authorization", "Bearer hunter2")]).status, 200);
    assert_eq!(envoy.get("/", &[("authorization", "Bearer hunter2")]).status, 429);
    assert_eq!(envoy.get("/", &[("authorization", "Bearer hunter3")]).status, 200);
    let lines = envoy.accesses(3).join("\n");
    assert!(keys(&redis).len() == 2 && !format!("{:?}{lines}", keys(&redis)).contains("hunter"), "{lines}");
}

#[test]
fn spellings_of_a_path_do_not_get_around_a_rule() {
    let _machine = beside_others();
    let redis = Redis::start();
    let configuration = r#"{"store":{"cluster":"weir-redis"},"rules":[
        {"name":"login","match":{"path":{"exact":"/login"}},"key":["ip","path"],"limits":["1/d"]}]}"#;
    let envoy = Setup::redis(redis.port, configuration).start();
    assert_eq!(envoy.get("/login", &[]).status, 200);
    for path in ["/login", "/login?x=1", "//login", "/./login", "/x/../login", "/%6Cogin", "/%6cog%69n"] {
        assert_eq!(envoy.get(path, &[]).status, 429, "{path}");
    }
    for path in ["/login/", "/Login", "/login%2F", "/loginx"] {
        assert_eq!(envoy.get(path, &[]).status, 200, "{path}");
    }
}
