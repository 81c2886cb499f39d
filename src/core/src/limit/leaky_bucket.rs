//! The leaky bucket as a queue: requests leave one after the other at a steady rate, and those that come too early wait, as long
//! as there is room for them.
//!
//! What it admits is what a token bucket with a token for each place admits (Turner's two forms of the leaky bucket, as a queue
//! and as a meter, are the same in this), and a request waits as long as that bucket would have taken to be full before it.
//! `lua/leaky_bucket.lua` is the same inside Redis; the proxy holds the requests back.

pub use super::token_bucket::State;

use super::{Limit, Outcome, Verdict, token_bucket};

/// What the bucket says of a request that would take `cost` now, without taking it.
pub fn check(state: Option<State>, limit: &Limit, now_ms: u64, cost: u64) -> Verdict {
    let verdict = token_bucket::check(state, limit, now_ms, cost);
    Verdict { delay_ms: delay_ms(verdict, state, limit, now_ms, cost), ..verdict }
}

/// Takes `cost` if there is room for it. The second value is what is to be stored, as in [`token_bucket::charge`].
pub fn charge(state: Option<State>, limit: &Limit, now_ms: u64, cost: u64) -> (Verdict, Option<State>) {
    let (verdict, charged) = token_bucket::charge(state, limit, now_ms, cost);
    (Verdict { delay_ms: delay_ms(verdict, state, limit, now_ms, cost), ..verdict }, charged)
}

/// Until all that came before has left; a request that takes nothing waits for nothing.
fn delay_ms(verdict: Verdict, before: Option<State>, limit: &Limit, now_ms: u64, cost: u64) -> u64 {
    match verdict.outcome {
        Outcome::Allowed if cost > 0 => token_bucket::check(before, limit, now_ms, 0).reset_ms,
        _ => 0,
    }
}
