//! Requests that a leaky bucket holds back.

use std::collections::BTreeSet;

/// The most requests that a worker holds back at once.
pub(crate) const MOST: usize = 8192;

/// They, by when they may go on.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// The time in microseconds, and the request.
    by_time: BTreeSet<(u64, u32)>,
}

impl Held {
    pub(crate) fn is_full(&self) -> bool {
        self.by_time.len() >= MOST
    }

    pub(crate) fn add(&mut self, due_us: u64, request: u32) {
        self.by_time.insert((due_us, request));
    }

    pub(crate) fn forget(&mut self, due_us: u64, request: u32) {
        self.by_time.remove(&(due_us, request));
    }

    /// Takes the next request whose time has come.
    pub(crate) fn next_due(&mut self, now_us: u64) -> Option<u32> {
        let first = self.by_time.first().filter(|(due_us, _)| *due_us <= now_us).copied()?;
        self.by_time.remove(&first);
        Some(first.1)
    }

    /// Milliseconds until the next one's time, rounded up, at least 1; 0 where there is none.
    pub(crate) fn wait_ms(&self, now_us: u64) -> u32 {
        let wait_us = self.by_time.first().map(|(due_us, _)| due_us.saturating_sub(now_us).max(1));
        wait_us.map_or(0, |us| u32::try_from(us.div_ceil(1000)).unwrap_or(u32::MAX))
    }
}
