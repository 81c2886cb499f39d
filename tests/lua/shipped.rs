//! The script as it is shipped, with Redis's own clock.

use crate::Engine;
use crate::servers::{until, wait_by_the_clock};
use redis::{Connection, FromRedisValue, RedisResult};
use std::time::{Duration, SystemTime};
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

/// A connection, and the hash tag of a test's keys.
struct Db<'t> {
    redis: Connection,
    tag: &'t str,
}

impl<'t> Db<'t> {
    fn connect(engine: &impl Engine, tag: &'t str) -> Db<'t> {
        Db { redis: engine.connect(tag), tag }
    }

    /// With the script brought along.
    fn loaded(engine: &impl Engine, tag: &'t str) -> Db<'t> {
        let mut db = Db::connect(engine, tag);
        let sha: String = redis::cmd("SCRIPT").arg("LOAD").arg(SOURCE).query(&mut db.redis).unwrap();
        assert_eq!(sha, SHA1, "the digest that is computed at build time");
        db
    }

    fn name(&self, key: &str) -> String {
        format!("{{{}}}{key}", self.tag)
    }

    /// A command on a key.
    fn run<T: FromRedisValue>(&mut self, command: &str, key: &str, arguments: &[&str]) -> T {
        redis::cmd(command).arg(self.name(key)).arg(arguments).query(&mut self.redis).unwrap()
    }

    fn exists(&mut self, key: &str) -> bool {
        self.run::<u8>("EXISTS", key, &[]) == 1
    }

    fn call(&mut self, limits: &[(&str, Limit)]) -> RedisResult<Vec<i64>> {
        self.command(limits).query(&mut self.redis)
    }

    fn command(&self, limits: &[(&str, Limit)]) -> redis::Cmd {
        let mut command = redis::cmd("EVALSHA");
        command.arg(SHA1).arg(limits.len());
        limits.iter().for_each(|(key, _)| {
            command.arg(self.name(key));
        });
        for (_, Limit(algorithm, numbers)) in limits {
            command.arg(algorithm.code()).arg(&numbers[..]);
        }
        command
    }

    /// The four integers of a call for one limit.
    fn one(&mut self, key: &str, limit: Limit) -> [i64; 4] {
        self.call(&[(key, limit)]).unwrap().try_into().unwrap()
    }

    /// The same, and all texts that the key holds then, before it can expire.
    fn one_and_stored(&mut self, key: &str, limit: Limit) -> ([i64; 4], Vec<String>) {
        let (command, arguments): (&str, &[&str]) = match limit.0 {
            Algorithm::TokenBucket | Algorithm::LeakyBucket | Algorithm::SlidingWindow => ("HVALS", &[]),
            Algorithm::FixedWindow => ("MGET", &[]),
            Algorithm::SlidingLog => ("ZRANGE", &["0", "-1", "WITHSCORES"]),
        };
        let mut both = redis::pipe();
        both.atomic().add_command(self.command(&[(key, limit)]));
        both.cmd(command).arg(self.name(key)).arg(arguments);
        both.query(&mut self.redis).unwrap()
    }

    /// A key's value as Redis writes it into a file.
    fn dump(&mut self, key: &str) -> Option<Vec<u8>> {
        self.run("DUMP", key, &[])
    }

    fn ttl_ms(&mut self, key: &str) -> i64 {
        self.run("PTTL", key, &[])
    }

    fn forget(&mut self, key: &str) {
        self.run::<u8>("DEL", key, &[]);
    }
}

pub(crate) fn it_is_known_by_its_digest_once_it_was_brought_along(engine: &impl Engine, tag: &str) {
    let mut db = Db::connect(engine, tag);
    redis::cmd("SCRIPT").arg("FLUSH").exec(&mut db.redis).unwrap();
    let error = db.call(&[("k", bucket(1, 1000, 1, 1))]).unwrap_err();
    assert_eq!(error.code(), Some("NOSCRIPT"));
    let mut db = Db::loaded(engine, tag);
    assert_eq!(db.one("k", bucket(1, 60_000, 3, 1)), [1, 2, 0, 60_000]);
}

pub(crate) fn a_key_expires_when_it_counts_no_more(engine: &impl Engine, tag: &str) {
    let mut db = Db::loaded(engine, tag);
    assert_eq!(db.one("k", bucket(100, 60_000, 3, 2)), [1, 1, 0, 1200]);
    let ttl = db.ttl_ms("k");
    assert!((1..=1200).contains(&ttl), "{ttl}");
    for algorithm in Algorithm::ALL {
        let [_, _, _, reset] = db.one(algorithm.name(), limit(algorithm, 9, 60_000, 1));
        let ttl = db.ttl_ms(algorithm.name());
        assert!((reset - 1000..=reset).contains(&ttl), "{algorithm:?}: {ttl} of {reset}");
        db.one("fast", limit(algorithm, MAX_COUNT, 1, 1));
        until(Duration::from_secs(5), || (!db.exists("fast")).then_some(()), || format!("{algorithm:?}: the key expires"));
    }
}

pub(crate) fn a_key_without_a_ttl_gets_one(engine: &impl Engine, tag: &str) {
    let mut db = Db::loaded(engine, tag);
    for algorithm in Algorithm::ALL {
        for cost in [0, 1, 3, 4] {
            db.one("k", limit(algorithm, 3, 60_000, 1));
            assert_eq!(db.run::<u8>("PERSIST", "k", &[]), 1);
            db.one("k", limit(algorithm, 3, 60_000, cost));
            let ttl = db.ttl_ms("k");
            assert!((1..=120_000).contains(&ttl), "{algorithm:?}, cost {cost}: {ttl}");
            db.forget("k");
        }
    }
}

pub(crate) fn cost_nothing_stores_nothing(engine: &impl Engine, tag: &str) {
    let mut db = Db::loaded(engine, tag);
    for algorithm in Algorithm::ALL {
        assert_eq!(db.one("k", limit(algorithm, 3, 1000, 0)), [1, 3, 0, 0], "{algorithm:?}");
        assert!(!db.exists("k"));
    }
}

pub(crate) fn a_denied_limit_leaves_every_limit_untouched(engine: &impl Engine, tag: &str) {
    let mut db = Db::loaded(engine, tag);
    for narrow in Algorithm::ALL {
        let mut wide: Vec<(&str, Limit)> = Algorithm::ALL.map(|wide| (wide.name(), limit(wide, 10, DAY_MS, 2))).to_vec();
        wide.push(("narrow", limit(narrow, 3, DAY_MS, 2)));
        let reply = db.call(&wide).unwrap();
        assert!(reply.iter().step_by(4).all(|status| *status == 1), "{narrow:?}: {reply:?}");
        let keys: Vec<&str> = wide.iter().map(|(key, _)| *key).collect();
        let before: Vec<_> = keys.iter().map(|key| db.dump(key)).collect();
        assert!(before.iter().all(Option::is_some));
        for (cost, status) in [(2, 0), (4, 2)] {
            wide.last_mut().unwrap().1 = limit(narrow, 3, DAY_MS, cost);
            let reply = db.call(&wide).unwrap();
            let statuses: Vec<i64> = reply.iter().step_by(4).copied().collect();
            assert_eq!(statuses, [&[1; Algorithm::ALL.len()][..], &[status]].concat(), "{narrow:?}");
            assert_eq!((reply[1], reply[reply.len() - 3]), (8, 1), "{narrow:?}: what is left");
            let after: Vec<_> = keys.iter().map(|key| db.dump(key)).collect();
            assert_eq!(after, before, "{narrow:?}");
        }
        keys.iter().for_each(|key| db.forget(key));
    }
}

pub(crate) fn a_client_that_waits_as_told_is_let_in(engine: &impl Engine, tag: &str) {
    let mut db = Db::loaded(engine, tag);
    for algorithm in Algorithm::ALL {
        let two = limit(algorithm, 2, 300, 1);
        for _ in 0..3 {
            let (mut told, mut at) = ([1; 4], SystemTime::now());
            while told[0] == 1 {
                told = db.one("k", two);
                at = SystemTime::now();
            }
            assert!((1..=600).contains(&told[2]), "{algorithm:?}: {told:?}");
            wait_by_the_clock(at, Duration::from_millis(told[2].unsigned_abs()));
            assert_eq!(db.one("k", two)[0], 1, "{algorithm:?} after {told:?}");
        }
        db.forget("k");
    }
}

pub(crate) fn nothing_is_ever_in_exponent_notation(engine: &impl Engine, tag: &str) {
    let mut db = Db::loaded(engine, tag);
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
        let Limit(_, [_, _, burst, cost]) = limit;
        db.forget("k");
        let (reply, texts) = db.one_and_stored("k", limit);
        assert_eq!(reply[..2], [1, i64::try_from(burst - cost).unwrap()], "{limit:?}");
        let plain = |text: &String| text.bytes().all(|b| b.is_ascii_digit() || b".:".contains(&b));
        assert!(!texts.is_empty() && texts.iter().all(plain), "{limit:?}: {texts:?}");
    }
}

pub(crate) fn a_key_of_another_type_is_an_error_and_nothing_is_charged(engine: &impl Engine, tag: &str) {
    let mut db = Db::loaded(engine, tag);
    db.run::<u8>("SADD", "set", &["x"]);
    for algorithm in Algorithm::ALL {
        let other = ("set", limit(algorithm, 3, 1000, 1));
        let error = db.call(&[("good", bucket(1, 1000, 3, 1)), other]).unwrap_err();
        assert_eq!(error.code(), Some("WRONGTYPE"), "{algorithm:?}");
        assert!(!db.exists("good"));
    }
}

pub(crate) fn an_integer_of_another_spelling_fails_nothing_half_way(engine: &impl Engine, tag: &str) {
    let mut db = Db::loaded(engine, tag);
    db.run::<()>("SET", "k", &["1e1", "EX", "60"]);
    let limits = [("first", bucket(1, 1000, 3, 1)), ("k", limit(Algorithm::FixedWindow, 20, 60_000, 1))];
    assert_eq!(db.call(&limits).unwrap()[4..6], [1, 9]);
    assert_eq!(db.run::<String>("GET", "k", &[]), "11");
}

pub(crate) fn bad_arguments_are_an_error_and_nothing_is_charged(engine: &impl Engine, tag: &str) {
    let mut db = Db::loaded(engine, tag);
    for arguments in [["xx", "1", "1", "1", "1"], ["tb", "x", "1", "1", "1"], ["tb", "1", "", "1", "1"]] {
        let mut command = redis::cmd("EVALSHA");
        command.arg(SHA1).arg(2).arg(db.name("k")).arg(db.name("l")).arg(&["tb", "1", "1000", "1", "1"]).arg(&arguments);
        let error = command.query::<Vec<i64>>(&mut db.redis).unwrap_err();
        assert!(error.to_string().contains("bad arguments for limit 2"), "{error}");
        assert!(!db.exists("k"));
    }
}

pub(crate) fn sixty_four_clients_at_once_admit_exactly_the_limit(engine: &(impl Engine + Sync), tag: &str) {
    Db::loaded(engine, tag);
    for algorithm in Algorithm::ALL {
        // A window that doesn't end meanwhile: the sliding one's would at midnight if it were a day's.
        let hundred = limit(algorithm, 100, MAX_WINDOW_MS, 1);
        let admitted: usize = std::thread::scope(|scope| {
            let clients: Vec<_> = (0..64)
                .map(|_| {
                    scope.spawn(|| {
                        let mut db = Db::connect(engine, tag);
                        (0..20).filter(|_| db.one(algorithm.name(), hundred)[0] == 1).count()
                    })
                })
                .collect();
            clients.into_iter().map(|client| client.join().unwrap()).sum()
        });
        assert_eq!(admitted, 100, "{algorithm:?}");
    }
}
