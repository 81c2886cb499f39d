//! The fixed window: at most `count` in a window, which begins with its first request and ends a window's time later.
//!
//! The oldest and cheapest way to count (an INCR with an expiry). Around a window's end up to twice the count may pass within
//! one window's time; where that matters, take another algorithm. `lua/fixed_window.lua` is the same step inside Redis.

use super::{Limit, Outcome, Verdict};

/// A window that runs. One that isn't stored hasn't begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// What was charged in it.
    pub used: u64,
    /// When it ends, in milliseconds since 1970.
    pub ends_ms: u64,
}

/// What the window says of a request that would take `cost` now, without taking it.
pub fn check(state: Option<State>, limit: &Limit, now_ms: u64, cost: u64) -> Verdict {
    verdict(&current(state, limit, now_ms), limit, now_ms, cost)
}

/// Takes `cost` if there is room for it. The second value is what is to be stored, `None` where that is as it was.
///
/// A window that would end later than one that begins now (the clock has stepped back) ends with that one, also where the
/// request is denied.
pub fn charge(state: Option<State>, limit: &Limit, now_ms: u64, cost: u64) -> (Verdict, Option<State>) {
    let window = current(state, limit, now_ms);
    let verdict = verdict(&window, limit, now_ms, cost);
    if verdict.outcome == Outcome::Allowed && cost > 0 {
        let ends_ms = if window.ends_ms > now_ms { window.ends_ms } else { now_ms.saturating_add(limit.window_ms()) };
        let charged = State { used: window.used.saturating_add(cost), ends_ms };
        return (self::verdict(&charged, limit, now_ms, 0), Some(charged));
    }
    let astray = state.is_some_and(|state| state.ends_ms > window.ends_ms);
    (verdict, astray.then_some(window))
}

/// The window as it is now; one that is over, or hasn't begun, has nothing in it and ends now.
fn current(state: Option<State>, limit: &Limit, now_ms: u64) -> State {
    match state {
        Some(State { used, ends_ms }) if ends_ms > now_ms => {
            State { used, ends_ms: ends_ms.min(now_ms.saturating_add(limit.window_ms())) }
        }
        _ => State { used: 0, ends_ms: now_ms },
    }
}

fn verdict(window: &State, limit: &Limit, now_ms: u64, cost: u64) -> Verdict {
    let left_ms = window.ends_ms.saturating_sub(now_ms);
    let outcome = if cost > limit.count() {
        Outcome::NeverPasses
    } else if window.used.saturating_add(cost) <= limit.count() {
        Outcome::Allowed
    } else {
        Outcome::Denied { retry_ms: left_ms }
    };
    Verdict { outcome, remaining: limit.count().saturating_sub(window.used), reset_ms: left_ms, delay_ms: 0 }
}
