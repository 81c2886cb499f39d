//! Random histories, in virtual time: the script in Redis and the Rust model give the same verdicts and store the same.

use crate::servers::redis_server::Redis;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use weir_core::limit::token_bucket::{self, State};
use weir_core::limit::{Limit, MAX_COUNT, MAX_WINDOW_MS, Outcome, Verdict};
use weir_core::store::script::DECISION;

const HISTORIES: usize = 60;
const STEPS: usize = 250;

/// What happens to some keys at a moment.
#[derive(Clone, Debug)]
enum Step {
    Call(Vec<(usize, Limit, u64)>),
    /// Somebody writes a field that the script wouldn't.
    Corrupt(usize, &'static str, &'static str),
    /// Somebody takes a key's expiry away.
    Persist(usize),
}

/// How time goes on before a step.
#[derive(Clone, Copy, Debug)]
enum Pause {
    Forward(u64),
    Back(u64),
}

fn pauses() -> impl Strategy<Value = Pause> {
    prop_oneof![
        3 => Just(Pause::Forward(0)),
        6 => (1_u64..2000).prop_map(Pause::Forward),
        2 => (1_u64..100_000_000).prop_map(Pause::Forward),
        1 => (1_u64..20_000_000_000).prop_map(Pause::Forward), // idle for months
        1 => (1_u64..5_000_000).prop_map(Pause::Back),
    ]
}

/// A limit out of one history's range: small ones, where all of them happens, or those at the bounds.
fn limits(extreme: bool) -> BoxedStrategy<Limit> {
    let (number, window) = if extreme {
        let number = prop_oneof![1_u64..100, (MAX_COUNT - 5)..=MAX_COUNT, 1..=MAX_COUNT, Just(999_999_999_999_999)];
        (number.boxed(), prop_oneof![1_u64..5, 1..=MAX_WINDOW_MS, Just(MAX_WINDOW_MS)].boxed())
    } else {
        ((1_u64..30).boxed(), prop_oneof![1_u64..20, 100_u64..5000, Just(60_000)].boxed())
    };
    (number.clone(), window, number)
        .prop_map(|(count, window_ms, burst)| Limit::token_bucket(count, window_ms, burst).unwrap())
        .boxed()
}

/// The next step, where each of the history's keys has a window of its own (it is part of the key) and count and burst may change.
fn step(windows: Vec<u64>, extreme: bool) -> impl Strategy<Value = (Pause, Step)> {
    let keys = windows.len();
    let one = (0..keys, limits(extreme), any::<bool>(), 0_u64..6, any::<proptest::sample::Index>()).prop_map(
        move |(key, limit, small, cost, share)| {
            let limit = Limit::token_bucket(limit.count(), windows[key], limit.burst()).unwrap();
            let part = share.index(usize::try_from(limit.burst().saturating_add(limit.burst() / 8) + 1).unwrap());
            (key, limit, if small { cost } else { (part as u64).min(MAX_COUNT) })
        },
    );
    let call = proptest::collection::vec(one, 1..=3).prop_map(|mut limits| {
        limits.sort_by_key(|(key, ..)| *key);
        limits.dedup_by_key(|(key, ..)| *key); // a call has a key once
        Step::Call(limits)
    });
    let fields = proptest::sample::select(vec!["tokens", "frac", "ts"]);
    let values = proptest::sample::select(vec!["", "abc", "nan", "inf", "-1", "0.5", "9007199254740992", "1e300"]);
    let corrupt = (0..keys, fields, values).prop_map(|(key, field, value)| Step::Corrupt(key, field, value));
    let step = prop_oneof![20 => call, 1 => corrupt, 1 => (0..keys).prop_map(Step::Persist)];
    (pauses(), step)
}

/// A key as the model keeps it.
struct Entry {
    /// `None` where a field isn't what the script writes.
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
        self.keys.get(&key).and_then(|entry| entry.state)
    }

    fn write(&mut self, key: usize, limit: &Limit, state: State, now_ms: u64) {
        let reset_ms = token_bucket::check(Some(state), limit, now_ms, 0).reset_ms;
        self.keys.insert(key, Entry { state: Some(state), expires_ms: Some(expiry(now_ms, reset_ms)) });
    }

    fn call(&mut self, limits: &[(usize, Limit, u64)], now_ms: u64) -> Vec<Verdict> {
        for (key, ..) in limits {
            if self.keys.get(key).and_then(|entry| entry.expires_ms).is_some_and(|expires_ms| expires_ms <= now_ms) {
                self.keys.remove(key);
            }
        }
        let seen: Vec<Verdict> =
            limits.iter().map(|(key, limit, cost)| token_bucket::check(self.state(*key), limit, now_ms, *cost)).collect();
        let all_allowed = seen.iter().all(|verdict| verdict.outcome == Outcome::Allowed);
        let charge = |((key, limit, cost), verdict): (&(usize, Limit, u64), Verdict)| {
            let cost = if all_allowed { *cost } else { 0 };
            let (charged, state) = token_bucket::charge(self.state(*key), limit, now_ms, cost);
            if let Some(state) = state {
                self.write(*key, limit, state, now_ms);
            } else if let Some(entry) = self.keys.get_mut(key).filter(|entry| entry.expires_ms.is_none()) {
                entry.expires_ms = Some(expiry(now_ms, charged.reset_ms));
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
            Outcome::Allowed => (1, 0),
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

#[test]
fn the_script_and_the_model_agree_on_every_history() {
    let server = Redis::start();
    let mut redis = server.connect();
    let script = format!("{}\n{DECISION}", include_str!("virtual_time.lua"));
    let sha: String = redis::cmd("SCRIPT").arg("LOAD").arg(script).query(&mut redis).unwrap();
    let mut runner = TestRunner::new_with_rng(Config::default(), TestRng::from_seed(RngAlgorithm::ChaCha, &seed()));
    let (mut calls, mut outcomes) = (0, [0_u32; 3]);
    for history in 0..HISTORIES {
        let extreme = history % 2 == 1;
        let windows = proptest::collection::vec(limits(extreme).prop_map(|limit| limit.window_ms()), 3);
        let windows = windows.new_tree(&mut runner).unwrap().current();
        let steps = proptest::collection::vec(step(windows, extreme), STEPS).new_tree(&mut runner).unwrap().current();
        let mut model = Model::default();
        let mut now_ms: u64 = 1_700_000_000_000;
        let mut pipeline = redis::pipe();
        let mut wanted = Vec::new();
        for (pause, step) in &steps {
            now_ms = match pause {
                Pause::Forward(ms) => now_ms + ms,
                Pause::Back(ms) => now_ms - ms,
            };
            match step {
                Step::Call(limits) => {
                    let verdicts = model.call(limits, now_ms);
                    for verdict in &verdicts {
                        outcomes[usize::try_from(as_reply(&[*verdict])[0]).unwrap()] += 1;
                    }
                    let command = pipeline.cmd("EVALSHA").arg(&sha).arg(limits.len());
                    for (key, ..) in limits {
                        command.arg(format!("{history}:{key}"));
                    }
                    for (_, limit, cost) in limits {
                        command.arg("tb").arg(&[limit.count(), limit.window_ms(), limit.burst(), *cost]);
                    }
                    command.arg(now_ms);
                    let (key, ..) = limits[0];
                    pipeline.cmd("HMGET").arg(format!("{history}:{key}")).arg(&["tokens", "frac", "ts"]);
                    pipeline.cmd("GET").arg(format!("{history}:{key}:expires"));
                    let expires_ms = model.keys.get(&key).and_then(|entry| entry.expires_ms);
                    assert!(expires_ms.is_none_or(|expires_ms| expires_ms > now_ms), "a TTL of at least 1 ms");
                    wanted.push((now_ms, limits.clone(), as_reply(&verdicts), model.state(key), expires_ms));
                    calls += 1;
                }
                Step::Corrupt(key, field, value) => {
                    let name = format!("{history}:{key}");
                    pipeline.cmd("HSET").arg(name).arg(field).arg(value).ignore();
                    model.keys.entry(*key).or_insert(Entry { state: None, expires_ms: None }).state = None;
                }
                Step::Persist(key) => {
                    pipeline.cmd("DEL").arg(format!("{history}:{key}:expires")).ignore();
                    if let Some(entry) = model.keys.get_mut(key) {
                        entry.expires_ms = None;
                    }
                }
            }
        }
        type Got = (Vec<i64>, Vec<Option<String>>, Option<u64>);
        let flat: Vec<redis::Value> = pipeline.query(&mut redis).unwrap();
        assert_eq!(flat.len(), wanted.len() * 3);
        for (got, (now_ms, limits, reply, state, expires_ms)) in flat.chunks_exact(3).zip(wanted) {
            let got: Got = (
                redis::from_redis_value(got[0].clone()).unwrap(),
                redis::from_redis_value(got[1].clone()).unwrap(),
                redis::from_redis_value(got[2].clone()).unwrap(),
            );
            let told = format!("history {history} at {now_ms}: {limits:?}");
            assert_eq!(got.0, reply, "{told}");
            assert_eq!(got.2, expires_ms, "{told}");
            if let Some(State { tokens, frac, at_ms }) = state {
                let wanted = [tokens, frac, at_ms].map(|number| Some(number.to_string()));
                assert_eq!(got.1, wanted, "{told}");
            }
        }
    }
    println!("{calls} calls: {} denied, {} allowed, {} could never pass", outcomes[0], outcomes[1], outcomes[2]);
    assert!(calls >= 10_000, "{calls} calls");
    assert!(outcomes.iter().all(|count| *count >= 500), "every outcome comes up: {outcomes:?}");
}
