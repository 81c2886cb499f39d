//! Limits and the algorithms that enforce them.
//!
//! One file per algorithm, each a pure step `(state, limit, now, cost) → verdict and new state` in exact integers. The Lua
//! scripts in `lua/` make the same decisions inside Redis; `tests/lua` holds the two against each other.

pub mod fixed_window;
pub mod leaky_bucket;
pub mod sliding_log;
pub mod sliding_window;
mod state;
pub mod token_bucket;

pub use state::State;

use std::num::NonZeroU64;

/// The greatest count, burst and cost: 2^53 − 1, the last integer that a Lua number, a double, holds exactly.
pub const MAX_COUNT: u64 = (1 << 53) - 1;

/// The longest window in milliseconds: 31 days.
pub const MAX_WINDOW_MS: u64 = 31 * 24 * 60 * 60 * 1000;

/// The longest wait that is told, in milliseconds: 285,000 years. A longer one (a vast burst, a slow refill) is told as this.
pub const MAX_WAIT_MS: u64 = MAX_COUNT;

/// The longest that a request is held back, in milliseconds: an hour.
pub const MAX_DELAY_MS: u64 = 60 * 60 * 1000;

/// How requests are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Algorithm {
    /// Tokens up to a capacity, refilled at a steady rate ([`token_bucket`]).
    TokenBucket,
    /// So many in a window that the first request opens ([`fixed_window`]).
    FixedWindow,
    /// So many in the time of a window, whenever that begins, exactly ([`sliding_log`]).
    SlidingLog,
    /// The same by a weighted count of two windows, in little room ([`sliding_window`]).
    SlidingWindow,
    /// One after the other at a steady rate; the others wait, and no more than so many ([`leaky_bucket`]).
    LeakyBucket,
}

impl Algorithm {
    /// All there are.
    pub const ALL: [Algorithm; 5] = [
        Algorithm::TokenBucket,
        Algorithm::FixedWindow,
        Algorithm::SlidingLog,
        Algorithm::SlidingWindow,
        Algorithm::LeakyBucket,
    ];

    /// The name in configurations.
    pub const fn name(self) -> &'static str {
        match self {
            Algorithm::TokenBucket => "token_bucket",
            Algorithm::FixedWindow => "fixed_window",
            Algorithm::SlidingLog => "sliding_log",
            Algorithm::SlidingWindow => "sliding_window",
            Algorithm::LeakyBucket => "leaky_bucket",
        }
    }

    /// The two letters that stand for it in Redis keys and in the script's arguments.
    pub const fn code(self) -> &'static str {
        match self {
            Algorithm::TokenBucket => "tb",
            Algorithm::FixedWindow => "fw",
            Algorithm::SlidingLog => "sl",
            Algorithm::SlidingWindow => "sw",
            Algorithm::LeakyBucket => "lb",
        }
    }

    /// Whether a limit may hold more, or less, than it gets per window.
    pub const fn has_burst(self) -> bool {
        matches!(self, Algorithm::TokenBucket | Algorithm::LeakyBucket)
    }
}

/// An amount per window, counted by one algorithm. Its numbers are in range by construction ([`Limit::new`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Limit {
    count: NonZeroU64,
    window_ms: NonZeroU64,
    burst: NonZeroU64,
    algorithm: Algorithm,
}

impl Limit {
    /// The least that a limit can be: one request per millisecond.
    pub const SMALLEST: Limit = Limit {
        count: NonZeroU64::MIN,
        window_ms: NonZeroU64::MIN,
        burst: NonZeroU64::MIN,
        algorithm: Algorithm::TokenBucket,
    };

    /// `count` per `window_ms` milliseconds, counted by `algorithm`; its burst is `count`.
    ///
    /// `None` where `count` is not in `1..=`[`MAX_COUNT`] or `window_ms` not in `1..=`[`MAX_WINDOW_MS`].
    pub fn new(algorithm: Algorithm, count: u64, window_ms: u64) -> Option<Limit> {
        if count > MAX_COUNT || window_ms > MAX_WINDOW_MS {
            return None;
        }
        let count = NonZeroU64::new(count)?;
        Some(Limit { count, window_ms: NonZeroU64::new(window_ms)?, burst: count, algorithm })
    }

    /// A token bucket that holds `burst` tokens and refills `count` of them per `window_ms` milliseconds.
    ///
    /// `None` where a number is out of the range of [`Limit::new`] and [`Limit::with_burst`].
    pub fn token_bucket(count: u64, window_ms: u64, burst: u64) -> Option<Limit> {
        Limit::new(Algorithm::TokenBucket, count, window_ms)?.with_burst(burst)
    }

    /// A leaky bucket that lets `count` requests out per `window_ms` milliseconds, one after the other, and lets up to `waiting`
    /// of them wait, none longer than `max_delay_ms`. Its burst is these and the one that leaves.
    ///
    /// `None` where a number is out of the range of [`Limit::new`] and [`Limit::with_burst`].
    pub fn leaky_bucket(count: u64, window_ms: u64, waiting: u64, max_delay_ms: u64) -> Option<Limit> {
        let in_time = u128::from(max_delay_ms).saturating_mul(count.into()).checked_div(window_ms.into())?;
        let waiting = waiting.min(u64::try_from(in_time).unwrap_or(u64::MAX));
        Limit::new(Algorithm::LeakyBucket, count, window_ms)?.with_burst(waiting.saturating_add(1).min(MAX_COUNT))
    }

    /// The same limit with another burst. `None` where `burst` is not in `1..=`[`MAX_COUNT`], and where the algorithm has none.
    pub fn with_burst(self, burst: u64) -> Option<Limit> {
        let burst = NonZeroU64::new(burst).filter(|burst| burst.get() <= MAX_COUNT && self.algorithm.has_burst())?;
        Some(Limit { burst, ..self })
    }

    /// One Envoy's share of the limit: the same with these numbers. `None` where one is out of range.
    pub fn shared(&self, count: u64, burst: u64) -> Option<Limit> {
        let limit = Limit::new(self.algorithm, count, self.window_ms())?;
        if self.algorithm.has_burst() { limit.with_burst(burst) } else { Some(limit) }
    }

    /// Whether two limits of a rule would be counted in one key.
    pub fn same_key(&self, other: &Limit) -> bool {
        (self.algorithm, self.window_ms) == (other.algorithm, other.window_ms)
    }

    /// Requests per window.
    pub fn count(&self) -> u64 {
        self.count.get()
    }

    /// The window in milliseconds.
    pub fn window_ms(&self) -> u64 {
        self.window_ms.get()
    }

    /// The most that is admitted at one instant: a bucket's capacity, else the count.
    pub fn burst(&self) -> u64 {
        self.burst.get()
    }

    /// How it counts.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

/// What one limit says of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Whether the request is within the limit.
    pub outcome: Outcome,
    /// What is left, rounded down: after the charge where the request was charged, else what there is.
    pub remaining: u64,
    /// Milliseconds, rounded up, until nothing of what was charged counts any more (a token bucket: until it is full).
    pub reset_ms: u64,
    /// For how many milliseconds an allowed request is to be held back: 0 but under a leaky bucket.
    pub delay_ms: u64,
}

/// Whether a request is within a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is.
    Allowed,
    /// It isn't now; alone on its subject it is after `retry_ms` milliseconds, and not one earlier.
    Denied {
        /// The wait in milliseconds, at least 1.
        retry_ms: u64,
    },
    /// Its cost is above what the limit ever holds: no wait helps.
    NeverPasses,
}

#[cfg(test)]
mod tests;
