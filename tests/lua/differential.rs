//! Random histories, in virtual time: the script in Redis and the Rust model give the same verdicts and store the same.

use crate::Engine;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use weir_core::limit::{Algorithm, Limit, MAX_COUNT, MAX_WINDOW_MS, Outcome, State, Verdict, sliding_log};
use weir_core::store::script::DECISION;

const HISTORIES: usize = 50;
const STEPS: usize = 250;
const START_MS: u64 = 1_700_000_000_000;

/// What happens to some keys at a moment.
#[derive(Clone, Debug)]
enum Step {
    Call(Vec<(usize, Limit, u64)>),
    /// Somebody writes what the script wouldn't: a value, into one of three places where there are fields.
    Corrupt(usize, usize, &'static str),
    /// Somebody takes a key's expiry away.
    Persist(usize),
}

/// How time goes on before a step.
#[derive(Clone, Copy, Debug)]
enum Pause {
    Forward(u64),
    Back(u64),
    /// So many parts of a thousand of the first key's window.
    Part(u64),
}

fn pauses() -> impl Strategy<Value = Pause> {
    prop_oneof![
        3 => Just(Pause::Forward(0)),
        4 => (1_u64..2000).prop_map(Pause::Forward),
        4 => (1_u64..1500).prop_map(Pause::Part),
        1 => (1_u64..100_000_000).prop_map(Pause::Forward),
        1 => (1_u64..20_000_000_000).prop_map(Pause::Forward), // idle for months
        1 => (1_u64..5_000_000).prop_map(Pause::Back),
        1 => (1_u64..20).prop_map(Pause::Back),
    ]
}

/// What is the same all through a history of a key: they are part of its name.
type Kind = (Algorithm, u64);

fn kinds(algorithms: &'static [Algorithm], extreme: bool) -> impl Strategy<Value = Vec<Kind>> {
    let window = if extreme {
        prop_oneof![1_u64..5, 1..=MAX_WINDOW_MS, Just(MAX_WINDOW_MS)].boxed()
    } else {
        prop_oneof![1_u64..20, 100_u64..5000, Just(60_000)].boxed()
    };
    proptest::collection::vec((proptest::sample::select(algorithms), window), 3)
}

/// Counts and bursts out of one history's range: small ones, where all of them happens, or those at the bounds.
fn amounts(extreme: bool) -> BoxedStrategy<u64> {
    if extreme {
        prop_oneof![1_u64..100, (MAX_COUNT - 5)..=MAX_COUNT, 1..=MAX_COUNT, Just(999_999_999_999_999)].boxed()
    } else {
        (1_u64..30).boxed()
    }
}

/// The next step. Count and burst of a limit may change from step to step.
fn step(kinds: Vec<Kind>, extreme: bool) -> impl Strategy<Value = (Pause, Step)> {
    let keys = kinds.len();
    let one = (0..keys, amounts(extreme), amounts(extreme), any::<bool>(), 0_u64..6, any::<proptest::sample::Index>())
        .prop_map(move |(key, count, burst, small, cost, share)| {
            let (algorithm, window_ms) = kinds[key];
            let limit = Limit::new(algorithm, count, window_ms).unwrap();
            let limit = limit.with_burst(burst).unwrap_or(limit);
            let part = share.index(usize::try_from(limit.burst().saturating_add(limit.burst() / 8) + 1).unwrap());
            (key, limit, if small { cost } else { (part as u64).min(MAX_COUNT) })
        });
    let call = proptest::collection::vec(one, 1..=3).prop_map(|mut limits| {
        limits.sort_by_key(|(key, ..)| *key);
        limits.dedup_by_key(|(key, ..)| *key); // a call has a key once
        Step::Call(limits)
    });
    let values = proptest::sample::select(vec!["", "abc", "nan", "inf", "-1", "0.5", "9007199254740992", "1e300"]);
    let corrupt = (0..keys, 0_usize..3, values).prop_map(|(key, place, value)| Step::Corrupt(key, place, value));
    let step = prop_oneof![20 => call, 1 => corrupt, 1 => (0..keys).prop_map(Step::Persist)];
    (pauses(), step)
}

/// A key as the model keeps it.
struct Entry {
    /// `None` where what is stored isn't what the script writes.
    state: Option<State>,
    expires_ms: Option<u64>,
}

/// The driver and the expiry of keys, in Rust.
#[derive(Default)]
struct Model {
    keys: HashMap<usize, Entry>,
}

impl Model {
    fn state(&self, key: usize) -> Option<State> {
        let entry = self.keys.get(&key)?;
        // A fixed window's end is its key's expiry.
        Some(match entry.state.clone()? {
            State::FixedWindow(mut window) => {
                window.ends_ms = entry.expires_ms.unwrap_or(u64::MAX);
                State::FixedWindow(window)
            }
            state => state,
        })
    }

    fn call(&mut self, limits: &[(usize, Limit, u64)], now_ms: u64) -> Vec<Verdict> {
        for (key, ..) in limits {
            if self.keys.get(key).and_then(|entry| entry.expires_ms).is_some_and(|expires_ms| expires_ms <= now_ms) {
                self.keys.remove(key);
            }
        }
        let check = |(key, limit, cost): &(usize, Limit, u64)| State::check(self.state(*key).as_ref(), limit, now_ms, *cost);
        let seen: Vec<Verdict> = limits.iter().map(check).collect();
        let all_allowed = seen.iter().all(|verdict| verdict.outcome == Outcome::Allowed);
        let charge = |((key, limit, cost), verdict): (&(usize, Limit, u64), Verdict)| {
            let cost = if all_allowed { *cost } else { 0 };
            let (charged, state) = State::charge(self.state(*key).as_ref(), limit, now_ms, cost);
            let expires_ms = Some(expiry(now_ms, charged.reset_ms));
            if let Some(state) = state {
                self.keys.insert(*key, Entry { state: Some(state), expires_ms });
            } else if let Some(entry) = self.keys.get_mut(key) {
                // A value that is no window has no end, but the key has one.
                let latest = now_ms + limit.window_ms();
                match (entry.expires_ms, limit.algorithm()) {
                    (None, Algorithm::FixedWindow) => entry.expires_ms = Some(latest),
                    (Some(expires_ms), Algorithm::FixedWindow) => entry.expires_ms = Some(expires_ms.min(latest)),
                    (None, _) => entry.expires_ms = expires_ms,
                    (Some(_), _) => {}
                }
            }
            if all_allowed { charged } else { verdict }
        };
        limits.iter().zip(seen).map(charge).collect()
    }
}

/// When a key is gone. Virtual time ends at 2^53, where Lua's numbers do.
fn expiry(now_ms: u64, reset_ms: u64) -> u64 {
    (now_ms + reset_ms.max(1)).min(MAX_COUNT)
}

fn as_reply(verdicts: &[Verdict]) -> Vec<i64> {
    let numbers = verdicts.iter().flat_map(|verdict| {
        let (status, retry_ms) = match verdict.outcome {
            Outcome::Denied { retry_ms } => (0, retry_ms),
            Outcome::Allowed => (1, verdict.delay_ms),
            Outcome::NeverPasses => (2, 0),
        };
        [status, verdict.remaining, retry_ms, verdict.reset_ms]
    });
    numbers.map(|number| i64::try_from(number).unwrap()).collect()
}

/// Other histories in every run; what a failed test printed as WEIR_SEED, set in the environment, gives the same ones again.
fn seed() -> [u8; 32] {
    let seed = match std::env::var("WEIR_SEED") {
        Ok(seed) => seed.parse().expect("WEIR_SEED is a number"),
        Err(_) => RandomState::new().hash_one(0),
    };
    println!("WEIR_SEED={seed}");
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&u64::to_le_bytes(seed));
    bytes
}

/// Asks for what a key of that algorithm holds.
fn ask_stored(pipeline: &mut redis::Pipeline, algorithm: Algorithm, key: &str) {
    match algorithm {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => pipeline.cmd("HMGET").arg(key).arg(&["tokens", "frac", "ts"]),
        Algorithm::FixedWindow => pipeline.cmd("MGET").arg(key),
        Algorithm::SlidingLog => pipeline.cmd("ZRANGE").arg(key).arg(&["0", "-1", "WITHSCORES"]),
        Algorithm::SlidingWindow => pipeline.cmd("HMGET").arg(key).arg(&["win", "cur", "prev"]),
    };
}

/// What it holds, if its state is this; of a log, `stored` without what counts no more.
fn as_stored(state: &State) -> Vec<String> {
    match state {
        State::TokenBucket(bucket) | State::LeakyBucket(bucket) => {
            [bucket.tokens, bucket.frac, bucket.at_ms].map(|n| n.to_string()).to_vec()
        }
        State::FixedWindow(window) => vec![window.used.to_string()],
        State::SlidingLog(log) => log.entries.iter().map(|entry| format!("{} at {}", entry.cost, entry.at_ms)).collect(),
        State::SlidingWindow(windows) => [windows.window, windows.current, windows.previous].map(|n| n.to_string()).to_vec(),
    }
}

fn live(state: State, limit: &Limit, now_ms: u64) -> State {
    match state {
        State::SlidingLog(mut log) => {
            log.entries.retain(|entry| entry.at_ms + limit.window_ms() > now_ms);
            State::SlidingLog(log)
        }
        state => state,
    }
}

/// What was read of a key, as [`as_stored`] has it.
fn read(value: &redis::Value, limit: &Limit, now_ms: u64) -> Vec<String> {
    let fields: Vec<Option<String>> = redis::from_redis_value(value.clone()).unwrap();
    let fields: Vec<String> = fields.into_iter().map(Option::unwrap_or_default).collect();
    if limit.algorithm() != Algorithm::SlidingLog {
        return fields;
    }
    let entry = |pair: &[String]| sliding_log::Entry {
        at_ms: pair[1].parse().unwrap(),
        cost: pair[0].split_once(':').unwrap().1.parse().unwrap(),
    };
    let log = sliding_log::State { entries: fields.chunks_exact(2).map(entry).collect() };
    as_stored(&live(State::SlidingLog(log), limit, now_ms))
}

fn corrupt(pipeline: &mut redis::Pipeline, algorithm: Algorithm, key: &str, place: usize, value: &str) {
    match algorithm {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => {
            pipeline.cmd("HSET").arg(key).arg(["tokens", "frac", "ts"][place]).arg(value)
        }
        Algorithm::FixedWindow => pipeline.cmd("SET").arg(key).arg(value),
        Algorithm::SlidingLog => pipeline.cmd("ZADD").arg(key).arg("+inf").arg(value),
        Algorithm::SlidingWindow => pipeline.cmd("HSET").arg(key).arg(["win", "cur", "prev"][place]).arg(value),
    }
    .ignore();
}

/// What a call is to give: the reply, and what is to be stored under its first key, and until when.
struct Wanted {
    now_ms: u64,
    limits: Vec<(usize, Limit, u64)>,
    reply: Vec<i64>,
    state: Option<State>,
    expires_ms: Option<u64>,
}

fn agree_on_every_history(engine: &impl Engine, tag: &str, algorithms: &'static [Algorithm]) {
    let mut redis = engine.connect(tag);
    let name = |history: usize, key: usize| format!("{{{tag}}}{history}:{key}");
    let script = format!("{}\n{DECISION}", include_str!("virtual_time.lua"));
    let sha: String = redis::cmd("SCRIPT").arg("LOAD").arg(script).query(&mut redis).unwrap();
    let mut runner = TestRunner::new_with_rng(Config::default(), TestRng::from_seed(RngAlgorithm::ChaCha, &seed()));
    let (mut calls, mut outcomes) = (0, [0_u32; 3]);
    for history in 0..HISTORIES {
        let extreme = history % 2 == 1;
        let kinds = kinds(algorithms, extreme).new_tree(&mut runner).unwrap().current();
        let steps = proptest::collection::vec(step(kinds.clone(), extreme), STEPS).new_tree(&mut runner).unwrap().current();
        let mut model = Model::default();
        let mut now_ms = START_MS;
        let mut pipeline = redis::pipe();
        let mut wanted = Vec::new();
        for (pause, step) in steps {
            now_ms = match pause {
                Pause::Forward(ms) => now_ms + ms,
                Pause::Back(ms) => now_ms - ms,
                Pause::Part(part) => now_ms + kinds[0].1 * part / 1000,
            };
            match step {
                Step::Call(limits) => {
                    let reply = as_reply(&model.call(&limits, now_ms));
                    reply.iter().step_by(4).for_each(|status| outcomes[usize::try_from(*status).unwrap()] += 1);
                    let command = pipeline.cmd("EVALSHA").arg(&sha).arg(limits.len());
                    for (key, ..) in &limits {
                        command.arg(name(history, *key));
                    }
                    for (_, limit, cost) in &limits {
                        let numbers = [limit.count(), limit.window_ms(), limit.burst(), *cost];
                        command.arg(limit.algorithm().code()).arg(&numbers);
                    }
                    command.arg(now_ms);
                    let key = limits[0].0;
                    ask_stored(&mut pipeline, kinds[key].0, &name(history, key));
                    pipeline.cmd("GET").arg(format!("{}:expires", name(history, key)));
                    let expires_ms = model.keys.get(&key).and_then(|entry| entry.expires_ms);
                    assert!(expires_ms.is_none_or(|expires_ms| expires_ms > now_ms), "a TTL of at least 1 ms");
                    wanted.push(Wanted { now_ms, limits, reply, state: model.state(key), expires_ms });
                    calls += 1;
                }
                Step::Corrupt(key, place, value) => {
                    corrupt(&mut pipeline, kinds[key].0, &name(history, key), place, value);
                    model.keys.entry(key).or_insert(Entry { state: None, expires_ms: None }).state = None;
                }
                Step::Persist(key) => {
                    pipeline.cmd("DEL").arg(format!("{}:expires", name(history, key))).ignore();
                    if let Some(entry) = model.keys.get_mut(&key) {
                        entry.expires_ms = None;
                    }
                }
            }
        }
        let flat: Vec<redis::Value> = pipeline.query(&mut redis).unwrap();
        assert_eq!(flat.len(), wanted.len() * 3);
        for (got, wanted) in flat.chunks_exact(3).zip(wanted) {
            let Wanted { now_ms, limits, reply, state, expires_ms } = wanted;
            let told = format!("history {history} at {now_ms}: {limits:?}");
            assert_eq!(redis::from_redis_value::<Vec<i64>>(got[0].clone()).unwrap(), reply, "{told}");
            assert_eq!(redis::from_redis_value::<Option<u64>>(got[2].clone()).unwrap(), expires_ms, "{told}");
            if let Some(state) = state {
                let limit = &limits[0].1;
                assert_eq!(read(&got[1], limit, now_ms), as_stored(&live(state, limit, now_ms)), "{told}");
            }
        }
    }
    println!("{calls} calls: {} denied, {} allowed, {} could never pass", outcomes[0], outcomes[1], outcomes[2]);
    assert!(calls >= 10_000, "{calls} calls");
    assert!(outcomes.iter().all(|count| *count >= 500), "every outcome comes up: {outcomes:?}");
}

pub(crate) fn token_buckets_agree_with_their_model(engine: &impl Engine, tag: &str) {
    agree_on_every_history(engine, tag, &[Algorithm::TokenBucket]);
}

pub(crate) fn fixed_windows_agree_with_their_model(engine: &impl Engine, tag: &str) {
    agree_on_every_history(engine, tag, &[Algorithm::FixedWindow]);
}

pub(crate) fn sliding_logs_agree_with_their_model(engine: &impl Engine, tag: &str) {
    agree_on_every_history(engine, tag, &[Algorithm::SlidingLog]);
}

pub(crate) fn sliding_windows_agree_with_their_model(engine: &impl Engine, tag: &str) {
    agree_on_every_history(engine, tag, &[Algorithm::SlidingWindow]);
}

pub(crate) fn leaky_buckets_agree_with_their_model(engine: &impl Engine, tag: &str) {
    agree_on_every_history(engine, tag, &[Algorithm::LeakyBucket]);
}

pub(crate) fn layers_of_all_of_them_agree_with_their_models(engine: &impl Engine, tag: &str) {
    agree_on_every_history(engine, tag, &Algorithm::ALL);
}
