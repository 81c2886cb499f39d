//! The token bucket: it holds up to `burst` tokens, gets `count` back per window, and a request takes its cost out of it.
//!
//! After Turner's leaky bucket as a meter (ITU-T I.371, RFC 2697 section 3), in whole numbers: what is in the bucket is `tokens`
//! and a fraction whose denominator is the window, so that nothing is lost however often it is refilled, and a limit may
//! change between two requests. `lua/token_bucket.lua` is the same step inside Redis.

use super::{Limit, MAX_WAIT_MS, Outcome, Verdict};

/// A bucket as it is stored. A bucket that isn't stored is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// Whole tokens.
    pub tokens: u64,
    /// What there is of the next token, in parts of one by the window's milliseconds.
    pub frac: u64,
    /// When this was so, in milliseconds since 1970.
    pub at_ms: u64,
}

/// What a bucket says of a request that would take `cost` now, without taking it.
pub fn check(state: Option<State>, limit: &Limit, now_ms: u64, cost: u64) -> Verdict {
    Level::of(state, limit, now_ms).verdict(limit, cost)
}

/// Takes `cost` if it is there. The second value is what is to be stored, `None` where that is as it was.
///
/// A denied request changes nothing, but for one thing: a bucket written in what is now the future (the clock has stepped back) is
/// written anew as of now. It would neither refill nor be let go until the clock had caught up.
pub fn charge(state: Option<State>, limit: &Limit, now_ms: u64, cost: u64) -> (Verdict, Option<State>) {
    let level = Level::of(state, limit, now_ms);
    let verdict = level.verdict(limit, cost);
    if verdict.outcome == Outcome::Allowed && cost > 0 {
        let left = level.without(limit, cost);
        return (left.verdict(limit, 0), Some(left.state(limit, now_ms)));
    }
    let ahead = state.is_some_and(|state| state.at_ms > now_ms);
    (verdict, ahead.then(|| level.state(limit, now_ms)))
}

/// Gives back what a charge took.
pub fn refund(state: State, limit: &Limit, now_ms: u64, cost: u64) -> State {
    let Level(parts) = Level::of(Some(state), limit, now_ms);
    let returned = u128::from(cost).saturating_mul(limit.window_ms().into());
    Level(parts.saturating_add(returned).min(full(limit))).state(limit, now_ms)
}

/// When the bucket will be full, in milliseconds since 1970, if nobody takes from it.
pub fn full_at_ms(state: State, limit: &Limit) -> u64 {
    let level = Level::of(Some(state), limit, state.at_ms);
    state.at_ms.saturating_add(level.wait_ms(limit, full(limit)))
}

/// What is in a bucket now, in parts of a token by the window's milliseconds: at most 2^53 × 2^32.
#[derive(Clone, Copy)]
struct Level(u128);

/// A full bucket's level.
fn full(limit: &Limit) -> u128 {
    u128::from(limit.burst()).saturating_mul(limit.window_ms().into())
}

impl Level {
    fn of(state: Option<State>, limit: &Limit, now_ms: u64) -> Level {
        let Some(State { tokens, frac, at_ms }) = state else { return Level(full(limit)) };
        let stored = u128::from(tokens).saturating_mul(limit.window_ms().into()).saturating_add(frac.into());
        let refill = u128::from(limit.count()).saturating_mul(now_ms.saturating_sub(at_ms).into());
        Level(stored.saturating_add(refill).min(full(limit)))
    }

    fn verdict(self, limit: &Limit, cost: u64) -> Verdict {
        let wanted = u128::from(cost).saturating_mul(limit.window_ms().into());
        let outcome = if cost > limit.burst() {
            Outcome::NeverPasses
        } else if self.0 >= wanted {
            Outcome::Allowed
        } else {
            Outcome::Denied { retry_ms: self.wait_ms(limit, wanted) }
        };
        Verdict { outcome, remaining: self.tokens(limit), reset_ms: self.wait_ms(limit, full(limit)), delay_ms: 0 }
    }

    /// The level after a charge that it has.
    fn without(self, limit: &Limit, cost: u64) -> Level {
        Level(self.0.saturating_sub(u128::from(cost).saturating_mul(limit.window_ms().into())))
    }

    fn tokens(self, limit: &Limit) -> u64 {
        let tokens = self.0.checked_div(limit.window_ms().into()).unwrap_or(0);
        u64::try_from(tokens).unwrap_or(u64::MAX)
    }

    /// The least number of milliseconds after which the level is at least `wanted`, at most [`MAX_WAIT_MS`].
    fn wait_ms(self, limit: &Limit, wanted: u128) -> u64 {
        let wait = wanted.saturating_sub(self.0).div_ceil(limit.count().into());
        u64::try_from(wait).unwrap_or(MAX_WAIT_MS).min(MAX_WAIT_MS)
    }

    fn state(self, limit: &Limit, now_ms: u64) -> State {
        let frac = self.0.checked_rem(limit.window_ms().into()).unwrap_or(0);
        State { tokens: self.tokens(limit), frac: u64::try_from(frac).unwrap_or(0), at_ms: now_ms }
    }
}

#[cfg(test)]
mod tests;
