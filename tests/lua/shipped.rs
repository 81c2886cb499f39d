//! The script as it is shipped, with Redis's own clock.

use crate::servers::redis_server::Redis;
use crate::servers::until;
use redis::{Connection, RedisResult};
use std::time::Duration;
use weir_core::store::script::{SHA1, SOURCE};

/// A limit: count, window in milliseconds, burst, cost.
type Limit = [u64; 4];

fn call(redis: &mut Connection, limits: &[(&str, Limit)]) -> RedisResult<Vec<i64>> {
    let mut command = redis::cmd("EVALSHA");
    command.arg(SHA1).arg(limits.len());
    limits.iter().for_each(|(key, _)| {
        command.arg(key);
    });
    for (_, numbers) in limits {
        command.arg("tb").arg(&numbers[..]);
    }
    command.query(redis)
}

fn loaded(server: &Redis) -> Connection {
    let mut redis = server.connect();
    let sha: String = redis::cmd("SCRIPT").arg("LOAD").arg(SOURCE).query(&mut redis).unwrap();
    assert_eq!(sha, SHA1, "the digest that is computed at build time");
    redis
}

fn stored(redis: &mut Connection, key: &str) -> Vec<(String, String)> {
    let mut fields: Vec<(String, String)> = redis::cmd("HGETALL").arg(key).query(redis).unwrap();
    fields.sort();
    fields
}

fn ttl_ms(redis: &mut Connection, key: &str) -> i64 {
    redis::cmd("PTTL").arg(key).query(redis).unwrap()
}

#[test]
fn it_is_known_by_its_digest_once_it_was_brought_along() {
    let server = Redis::start();
    let mut redis = server.connect();
    let error = call(&mut redis, &[("k", [1, 1000, 1, 1])]).unwrap_err();
    assert_eq!(error.code(), Some("NOSCRIPT"));
    let mut redis = loaded(&server);
    assert_eq!(call(&mut redis, &[("k", [1, 60_000, 3, 1])]).unwrap(), [1, 2, 0, 60_000]);
}

#[test]
fn a_key_expires_when_its_bucket_is_full() {
    let server = Redis::start();
    let mut redis = loaded(&server);
    let reply = call(&mut redis, &[("k", [100, 60_000, 3, 2])]).unwrap();
    assert_eq!(reply, [1, 1, 0, 1200]);
    let ttl = ttl_ms(&mut redis, "k");
    assert!((1..=1200).contains(&ttl), "{ttl}");
    call(&mut redis, &[("fast", [9_007_199_254_740_991, 1, 9_007_199_254_740_991, 1])]).unwrap();
    let mut gone = || redis::cmd("EXISTS").arg("fast").query::<u8>(&mut redis).unwrap() == 0;
    until(Duration::from_secs(5), || gone().then_some(()), || "the key expires".to_owned());
}

#[test]
fn a_key_without_a_ttl_gets_one() {
    let server = Redis::start();
    let mut redis = loaded(&server);
    for cost in [0, 1, 3] {
        let limit = [1, 60_000, 3, cost];
        call(&mut redis, &[("k", [1, 60_000, 3, 1])]).unwrap();
        redis::cmd("PERSIST").arg("k").exec(&mut redis).unwrap();
        call(&mut redis, &[("k", limit)]).unwrap();
        assert!(ttl_ms(&mut redis, "k") >= 1, "cost {cost}");
        redis::cmd("DEL").arg("k").exec(&mut redis).unwrap();
    }
}

#[test]
fn cost_nothing_stores_nothing() {
    let server = Redis::start();
    let mut redis = loaded(&server);
    assert_eq!(call(&mut redis, &[("k", [1, 1000, 3, 0])]).unwrap(), [1, 3, 0, 0]);
    assert_eq!(redis::cmd("DBSIZE").query::<u64>(&mut redis).unwrap(), 0);
}

#[test]
fn a_denied_limit_leaves_every_limit_untouched() {
    let server = Redis::start();
    let mut redis = loaded(&server);
    let both = [("wide", [1, 86_400_000, 10, 2]), ("narrow", [1, 86_400_000, 3, 2])];
    assert_eq!(call(&mut redis, &both).unwrap()[0], 1);
    let before = [stored(&mut redis, "wide"), stored(&mut redis, "narrow")];
    let reply = call(&mut redis, &both).unwrap();
    assert_eq!((reply[0], reply[1], reply[4], reply[5]), (1, 8, 0, 1));
    assert_eq!([stored(&mut redis, "wide"), stored(&mut redis, "narrow")], before);
    let never = [("wide", [1, 86_400_000, 10, 2]), ("narrow", [1, 86_400_000, 3, 4])];
    assert_eq!(call(&mut redis, &never).unwrap()[4..6], [2, 1]);
    assert_eq!([stored(&mut redis, "wide"), stored(&mut redis, "narrow")], before);
}

#[test]
fn nothing_is_ever_in_exponent_notation() {
    let server = Redis::start();
    let mut redis = loaded(&server);
    let most = (1_u64 << 53) - 1;
    let limits = [
        [999_999_999_999_999, 1000, 999_999_999_999_999, 1],
        [most, 1, most, 1 << 31],
        [1, 2_678_400_000, most, 1],
        [1, 2_678_400_000, 100_000_000_000_000_000 / 100, 100_000_000],
        [most, 2_678_400_000, most, most],
    ];
    for limit in limits {
        redis::cmd("DEL").arg("k").exec(&mut redis).unwrap();
        let reply = call(&mut redis, &[("k", limit)]).unwrap();
        assert_eq!((reply[0], reply[1]), (1, i64::try_from(limit[2] - limit[3]).unwrap()), "{limit:?}");
        for (field, value) in stored(&mut redis, "k") {
            assert!(value.bytes().all(|b| b.is_ascii_digit()), "{limit:?}: {field} = {value}");
        }
    }
}

#[test]
fn a_key_of_another_type_is_an_error_and_nothing_is_charged() {
    let server = Redis::start();
    let mut redis = loaded(&server);
    redis::cmd("SET").arg("text").arg("x").exec(&mut redis).unwrap();
    let error = call(&mut redis, &[("good", [1, 1000, 3, 1]), ("text", [1, 1000, 3, 1])]).unwrap_err();
    assert_eq!(error.code(), Some("WRONGTYPE"));
    assert_eq!(redis::cmd("EXISTS").arg("good").query::<u8>(&mut redis).unwrap(), 0);
}

#[test]
fn bad_arguments_are_an_error_and_nothing_is_charged() {
    let server = Redis::start();
    let mut redis = loaded(&server);
    for arguments in [["xx", "1", "1", "1", "1"], ["tb", "x", "1", "1", "1"], ["tb", "1", "", "1", "1"]] {
        let mut command = redis::cmd("EVALSHA");
        command.arg(SHA1).arg(2).arg("k").arg("l").arg(&["tb", "1", "1000", "1", "1"]).arg(&arguments);
        let error = command.query::<Vec<i64>>(&mut redis).unwrap_err();
        assert!(error.to_string().contains("bad arguments for limit 2"), "{error}");
        assert_eq!(redis::cmd("DBSIZE").query::<u64>(&mut redis).unwrap(), 0);
    }
}

#[test]
fn sixty_four_clients_at_once_admit_exactly_the_limit() {
    let server = Redis::start();
    loaded(&server);
    let admitted: usize = std::thread::scope(|scope| {
        let clients: Vec<_> = (0..64)
            .map(|_| {
                scope.spawn(|| {
                    let mut redis = server.connect();
                    (0..20).filter(|_| call(&mut redis, &[("k", [1, 86_400_000, 100, 1])]).unwrap()[0] == 1).count()
                })
            })
            .collect();
        clients.into_iter().map(|client| client.join().unwrap()).sum()
    });
    assert_eq!(admitted, 100);
}
