//! The sliding window: what was charged in the current window, and of the previous one as large a part as the last window's time
//! still reaches into it.
//!
//! It comes near to the sliding log in the room of three numbers, on the assumption that the previous window's requests were
//! spread evenly (Cloudflare, "How we built rate limiting capable of scaling to millions of domains", 2017). Windows begin at
//! multiples of their length since 1970. The part is rounded up, so that nothing is ever admitted by rounding.
//! `lua/sliding_window.lua` is the same step inside Redis.

use super::{Limit, MAX_COUNT, Outcome, Verdict};

/// Two windows. Ones that aren't stored have nothing in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// The current window's number since 1970.
    pub window: u64,
    /// What was charged in it.
    pub current: u64,
    /// What was charged in the one before.
    pub previous: u64,
}

/// What the windows say of a request that would take `cost` now, without taking it.
pub fn check(state: Option<State>, limit: &Limit, now_ms: u64, cost: u64) -> Verdict {
    Windows::of(state, limit, now_ms).verdict(limit, cost)
}

/// Takes `cost` if there is room for it. The second value is what is to be stored, `None` where that is as it was.
///
/// Windows in what is now the future (the clock has stepped back) are the current one from here on, also where the request is
/// denied: they would count for longer.
pub fn charge(state: Option<State>, limit: &Limit, now_ms: u64, cost: u64) -> (Verdict, Option<State>) {
    let windows = Windows::of(state, limit, now_ms);
    let verdict = windows.verdict(limit, cost);
    if verdict.outcome == Outcome::Allowed && cost > 0 {
        let current = windows.state.current.saturating_add(cost);
        let charged = Windows { state: State { current, ..windows.state }, ..windows };
        return (charged.verdict(limit, 0), Some(charged.state));
    }
    let ahead = state.is_some_and(|state| state.window > windows.state.window);
    (verdict, ahead.then_some(windows.state))
}

/// The windows of a moment.
#[derive(Clone, Copy)]
struct Windows {
    state: State,
    /// Until the current one ends, in milliseconds, at least 1.
    left_ms: u64,
}

impl Windows {
    fn of(state: Option<State>, limit: &Limit, now_ms: u64) -> Windows {
        let window = now_ms.checked_div(limit.window_ms()).unwrap_or(0);
        let gone_ms = now_ms.checked_rem(limit.window_ms()).unwrap_or(0);
        let (current, previous) = match state {
            Some(state) if state.window == window => (state.current, state.previous),
            // How much of the previous one counted isn't known any more: all of it counts, and fades with this one.
            Some(state) if state.window > window => (state.current.saturating_add(state.previous).min(MAX_COUNT), 0),
            Some(state) if state.window.saturating_add(1) == window => (0, state.current),
            _ => (0, 0),
        };
        Windows { state: State { window, current, previous }, left_ms: limit.window_ms().saturating_sub(gone_ms) }
    }

    fn verdict(&self, limit: &Limit, cost: u64) -> Verdict {
        let State { current, previous, .. } = self.state;
        let window_ms = limit.window_ms();
        // What counts of the previous window; at most `previous`.
        let reach = u128::from(previous).saturating_mul(self.left_ms.into()).div_ceil(window_ms.into());
        let reach = u64::try_from(reach).unwrap_or(u64::MAX);
        let counted = current.saturating_add(reach);
        let outcome = match limit.count().checked_sub(cost) {
            None => Outcome::NeverPasses,
            Some(room) if counted <= room => Outcome::Allowed,
            // Within this window, once little enough of the previous one is reached into; or within the next one, where this
            // one is the previous.
            Some(room) => Outcome::Denied {
                retry_ms: match room.checked_sub(current) {
                    Some(room) => self.left_ms.saturating_sub(part(room, window_ms, previous)),
                    None => self.left_ms.saturating_add(window_ms).saturating_sub(part(room, window_ms, current)),
                },
            },
        };
        let reset_ms = match (current, previous) {
            (0, 0) => 0,
            (0, _) => self.left_ms,
            _ => self.left_ms.saturating_add(window_ms),
        };
        Verdict { outcome, remaining: limit.count().saturating_sub(counted), reset_ms, delay_ms: 0 }
    }
}

/// Milliseconds of a window with `charged` in it that are worth at most `room`, which is less.
fn part(room: u64, window_ms: u64, charged: u64) -> u64 {
    let part = u128::from(room).saturating_mul(window_ms.into()).checked_div(charged.into()).unwrap_or(0);
    u64::try_from(part).unwrap_or(u64::MAX)
}
