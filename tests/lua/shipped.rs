//! The script as it is shipped, with Redis's own clock.

use crate::servers::redis_server::Redis;
use crate::servers::until;
use redis::{Connection, RedisResult};
use std::time::{Duration, Instant};
use weir_core::limit::{Algorithm, MAX_COUNT, MAX_WINDOW_MS};
use weir_core::store::script::{SHA1, SOURCE};

const DAY_MS: u64 = 86_400_000;

/// A limit: algorithm, count, window in milliseconds, burst; and the cost.
#[derive(Clone, Copy, Debug)]
struct Limit(Algorithm, [u64; 4]);

/// So many per window, and a cost.
fn limit(algorithm: Algorithm, count: u64, window_ms: u64, cost: u64) -> Limit {
    Limit(algorithm, [count, window_ms, count, cost])
}

fn bucket(count: u64, window_ms: u64, burst: u64, cost: u64) -> Limit {
    Limit(Algorithm::TokenBucket, [count, window_ms, burst, cost])
}

fn call(redis: &mut Connection, limits: &[(&str, Limit)]) -> RedisResult<Vec<i64>> {
    let mut command = redis::cmd("EVALSHA");
    command.arg(SHA1).arg(limits.len());
    limits.iter().for_each(|(key, _)| {
        command.arg(key);
    });
    for (_, Limit(algorithm, numbers)) in limits {
        command.arg(algorithm.code()).arg(&numbers[..]);
    }
    command.query(redis)
}

/// The four integers of a call for one limit.
fn one(redis: &mut Connection, key: &str, limit: Limit) -> [i64; 4] {
    call(redis, &[(key, limit)]).unwrap().try_into().unwrap()
}

fn loaded(server: &Redis) -> Connection {
    let mut redis = server.connect();
    let sha: String = redis::cmd("SCRIPT").arg("LOAD").arg(SOURCE).query(&mut redis).unwrap();
    assert_eq!(sha, SHA1, "the digest that is computed at build time");
    redis
}

/// All texts that a key of that algorithm holds.
fn stored(redis: &mut Connection, algorithm: Algorithm, key: &str) -> Vec<String> {
    let (command, arguments): (&str, &[&str]) = match algorithm {
        Algorithm::TokenBucket | Algorithm::SlidingWindow => ("HVALS", &[]),
        Algorithm::FixedWindow => ("MGET", &[]),
        Algorithm::SlidingLog => ("ZRANGE", &["0", "-1", "WITHSCORES"]),
    };
    redis::cmd(command).arg(key).arg(arguments).query(redis).unwrap()
}

/// A key's value as Redis writes it into a file.
fn dump(redis: &mut Connection, key: &str) -> Option<Vec<u8>> {
    redis::cmd("DUMP").arg(key).query(redis).unwrap()
}

fn ttl_ms(redis: &mut Connection, key: &str) -> i64 {
    redis::cmd("PTTL").arg(key).query(redis).unwrap()
}

fn forget(redis: &mut Connection, key: &str) {
    redis::cmd("DEL").arg(key).exec(redis).unwrap();
}

#[test]
fn it_is_known_by_its_digest_once_it_was_brought_along() {
    let server = Redis::start();
    let mut redis = server.connect();
    let error = call(&mut redis, &[("k", bucket(1, 1000, 1, 1))]).unwrap_err();
    assert_eq!(error.code(), Some("NOSCRIPT"));
    let mut redis = loaded(&server);
    assert_eq!(one(&mut redis, "k", bucket(1, 60_000, 3, 1)), [1, 2, 0, 60_000]);
}

#[test]
fn a_key_expires_when_it_counts_no_more() {
    let server = Redis::start();
    let mut redis = loaded(&server);
    assert_eq!(one(&mut redis, "k", bucket(100, 60_000, 3, 2)), [1, 1, 0, 1200]);
    let ttl = ttl_ms(&mut redis, "k");
    assert!((1..=1200).contains(&ttl), "{ttl}");
    for algorithm in Algorithm::ALL {
        let [_, _, _, reset] = one(&mut redis, algorithm.name(), limit(algorithm, 9, 60_000, 1));
        let ttl = ttl_ms(&mut redis, algorithm.name());
        assert!((reset - 1000..=reset).contains(&ttl), "{algorithm:?}: {ttl} of {reset}");
        one(&mut redis, "fast", limit(algorithm, MAX_COUNT, 1, 1));
        let mut gone = || redis::cmd("EXISTS").arg("fast").query::<u8>(&mut redis).unwrap() == 0;
        until(Duration::from_secs(5), || gone().then_some(()), || format!("{algorithm:?}: the key expires"));
    }
}

#[test]
fn a_key_without_a_ttl_gets_one() {
    let server = Redis::start();
    let mut redis = loaded(&server);
    for algorithm in Algorithm::ALL {
        for cost in [0, 1, 3, 4] {
            one(&mut redis, "k", limit(algorithm, 3, 60_000, 1));
            redis::cmd("PERSIST").arg("k").exec(&mut redis).unwrap();
            one(&mut redis, "k", limit(algorithm, 3, 60_000, cost));
            let ttl = ttl_ms(&mut redis, "k");
            assert!((1..=120_000).contains(&ttl), "{algorithm:?}, cost {cost}: {ttl}");
            forget(&mut redis, "k");
        }
    }
}

#[test]
fn cost_nothing_stores_nothing() {
    let server = Redis::start();
    let mut redis = loaded(&server);
    for algorithm in Algorithm::ALL {
        assert_eq!(one(&mut redis, "k", limit(algorithm, 3, 1000, 0)), [1, 3, 0, 0], "{algorithm:?}");
        assert_eq!(redis::cmd("DBSIZE").query::<u64>(&mut redis).unwrap(), 0);
    }
}

#[test]
fn a_denied_limit_leaves_every_limit_untouched() {
    let server = Redis::start();
    let mut redis = loaded(&server);
    for narrow in Algorithm::ALL {
        let mut wide: Vec<(&str, Limit)> = Algorithm::ALL.map(|wide| (wide.name(), limit(wide, 10, DAY_MS, 2))).to_vec();
        wide.push(("narrow", limit(narrow, 3, DAY_MS, 2)));
        let reply = call(&mut redis, &wide).unwrap();
        assert!(reply.iter().step_by(4).all(|status| *status == 1), "{narrow:?}: {reply:?}");
        let keys: Vec<&str> = wide.iter().map(|(key, _)| *key).collect();
        let before: Vec<_> = keys.iter().map(|key| dump(&mut redis, key)).collect();
        assert!(before.iter().all(Option::is_some));
        for (cost, status) in [(2, 0), (4, 2)] {
            wide[4].1 = limit(narrow, 3, DAY_MS, cost);
            let reply = call(&mut redis, &wide).unwrap();
            let statuses: Vec<i64> = reply.iter().step_by(4).copied().collect();
            assert_eq!(statuses, [1, 1, 1, 1, status], "{narrow:?}");
            assert_eq!((reply[1], reply[17]), (8, 1), "{narrow:?}: what is left");
            let after: Vec<_> = keys.iter().map(|key| dump(&mut redis, key)).collect();
            assert_eq!(after, before, "{narrow:?}");
        }
        keys.iter().for_each(|key| forget(&mut redis, key));
    }
}

#[test]
fn a_client_that_waits_as_told_is_let_in() {
    let server = Redis::start();
    let mut redis = loaded(&server);
    for algorithm in Algorithm::ALL {
        let two = limit(algorithm, 2, 300, 1);
        for _ in 0..3 {
            let (mut told, mut at) = ([1; 4], Instant::now());
            while told[0] == 1 {
                told = one(&mut redis, "k", two);
                at = Instant::now();
            }
            assert!((1..=600).contains(&told[2]), "{algorithm:?}: {told:?}");
            std::thread::sleep(Duration::from_millis(told[2].unsigned_abs()).saturating_sub(at.elapsed()));
            assert_eq!(one(&mut redis, "k", two)[0], 1, "{algorithm:?} after {told:?}");
        }
        forget(&mut redis, "k");
    }
}

#[test]
fn nothing_is_ever_in_exponent_notation() {
    let server = Redis::start();
    let mut redis = loaded(&server);
    let limits = [
        bucket(999_999_999_999_999, 1000, 999_999_999_999_999, 1),
        bucket(MAX_COUNT, 1, MAX_COUNT, 1 << 31),
        bucket(1, MAX_WINDOW_MS, MAX_COUNT, 1),
        bucket(1, MAX_WINDOW_MS, 1_000_000_000_000_000, 100_000_000),
        bucket(MAX_COUNT, MAX_WINDOW_MS, MAX_COUNT, MAX_COUNT),
    ];
    let others = Algorithm::ALL.into_iter().flat_map(|algorithm| {
        [(999_999_999_999_999, 1000, 1), (MAX_COUNT, 1000, 1 << 31), (MAX_COUNT, MAX_WINDOW_MS, MAX_COUNT)]
            .map(|(count, window_ms, cost)| limit(algorithm, count, window_ms, cost))
    });
    for limit in limits.into_iter().chain(others) {
        let Limit(algorithm, [_, _, burst, cost]) = limit;
        forget(&mut redis, "k");
        let reply = one(&mut redis, "k", limit);
        assert_eq!(reply[..2], [1, i64::try_from(burst - cost).unwrap()], "{limit:?}");
        let texts = stored(&mut redis, algorithm, "k");
        let plain = |text: &String| text.bytes().all(|b| b.is_ascii_digit() || b".:".contains(&b));
        assert!(!texts.is_empty() && texts.iter().all(plain), "{limit:?}: {texts:?}");
    }
}

#[test]
fn a_key_of_another_type_is_an_error_and_nothing_is_charged() {
    let server = Redis::start();
    let mut redis = loaded(&server);
    redis::cmd("SADD").arg("set").arg("x").exec(&mut redis).unwrap();
    for algorithm in Algorithm::ALL {
        let other = ("set", limit(algorithm, 3, 1000, 1));
        let error = call(&mut redis, &[("good", bucket(1, 1000, 3, 1)), other]).unwrap_err();
        assert_eq!(error.code(), Some("WRONGTYPE"), "{algorithm:?}");
        assert_eq!(redis::cmd("DBSIZE").query::<u64>(&mut redis).unwrap(), 1);
    }
}

#[test]
fn an_integer_of_another_spelling_fails_nothing_half_way() {
    let server = Redis::start();
    let mut redis = loaded(&server);
    redis::cmd("SET").arg("k").arg("1e1").arg("EX").arg(60).exec(&mut redis).unwrap();
    let limits = [("first", bucket(1, 1000, 3, 1)), ("k", limit(Algorithm::FixedWindow, 20, 60_000, 1))];
    assert_eq!(call(&mut redis, &limits).unwrap()[4..6], [1, 9]);
    assert_eq!(redis::cmd("GET").arg("k").query::<String>(&mut redis).unwrap(), "11");
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
    for algorithm in Algorithm::ALL {
        // A window that doesn't end meanwhile: the sliding one's would at midnight if it were a day's.
        let hundred = limit(algorithm, 100, MAX_WINDOW_MS, 1);
        let admitted: usize = std::thread::scope(|scope| {
            let clients: Vec<_> = (0..64)
                .map(|_| {
                    scope.spawn(|| {
                        let mut redis = server.connect();
                        (0..20).filter(|_| one(&mut redis, algorithm.name(), hundred)[0] == 1).count()
                    })
                })
                .collect();
            clients.into_iter().map(|client| client.join().unwrap()).sum()
        });
        assert_eq!(admitted, 100, "{algorithm:?}");
    }
}
