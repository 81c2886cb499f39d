//! The sliding log: at most `count` in the time of any window, exactly, because every admitted request is remembered.
//!
//! Its price is memory: an entry for each of up to `count` requests. Here all entries are added up; `lua/sliding_log.lua` finds the
//! same numbers by running sums, without reading more than a few.

use super::{Limit, Outcome, Verdict};

/// An admitted request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// What it took.
    pub cost: u64,
}

/// The admitted requests of the last window's time, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// Them.
    pub entries: Vec<Entry>,
}

/// What the log says of a request that would take `cost` now, without taking it.
pub fn check(state: Option<State>, limit: &Limit, now_ms: u64, cost: u64) -> Verdict {
    verdict(&current(&state.unwrap_or_default(), limit, now_ms), limit, now_ms, cost)
}

/// Takes `cost` if there is room for it. The second value is what is to be stored, `None` where that is as it was.
///
/// Entries in what is now the future (the clock has stepped back) are as of now from here on, also where the request is denied:
/// they would count for longer than a window.
pub fn charge(state: Option<State>, limit: &Limit, now_ms: u64, cost: u64) -> (Verdict, Option<State>) {
    let state = state.unwrap_or_default();
    let mut log = current(&state, limit, now_ms);
    let verdict = verdict(&log, limit, now_ms, cost);
    if verdict.outcome == Outcome::Allowed && cost > 0 {
        log.entries.push(Entry { at_ms: now_ms, cost });
        return (self::verdict(&log, limit, now_ms, 0), Some(log));
    }
    let ahead = state.entries.last().is_some_and(|entry| entry.at_ms > now_ms);
    (verdict, ahead.then_some(log))
}

/// The entries that count now, none of them in the future.
fn current(state: &State, limit: &Limit, now_ms: u64) -> State {
    let counts = |entry: &&Entry| entry.at_ms.saturating_add(limit.window_ms()) > now_ms;
    let entries = state.entries.iter().filter(counts);
    State { entries: entries.map(|entry| Entry { at_ms: entry.at_ms.min(now_ms), ..*entry }).collect() }
}

fn verdict(log: &State, limit: &Limit, now_ms: u64, cost: u64) -> Verdict {
    let left_ms = |entry: &Entry| entry.at_ms.saturating_add(limit.window_ms()).saturating_sub(now_ms);
    let total = log.entries.iter().fold(0_u64, |total, entry| total.saturating_add(entry.cost));
    let outcome = match limit.count().checked_sub(cost) {
        None => Outcome::NeverPasses,
        Some(room) if total <= room => Outcome::Allowed,
        Some(room) => {
            let mut left = total;
            let last_to_go = log.entries.iter().find(|entry| {
                left = left.saturating_sub(entry.cost);
                left <= room
            });
            Outcome::Denied { retry_ms: last_to_go.map_or(0, left_ms) }
        }
    };
    Verdict {
        outcome,
        remaining: limit.count().saturating_sub(total),
        reset_ms: log.entries.last().map_or(0, left_ms),
        delay_ms: 0,
    }
}
