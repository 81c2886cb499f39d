//! Whether Redis can be asked, and telling it: one breaker and one pause between tries for every transport.

use super::{Breaker, Counter, Effect, Failure};
use crate::config;

/// The pauses between tries to reach Redis again: the first, doubled up to the last. Microseconds.
const FIRST_PAUSE_US: u64 = 25_000;
const LAST_PAUSE_US: u64 = 400_000;

/// What is known of Redis.
#[derive(Debug)]
pub(super) struct Health {
    breaker: Breaker,
    /// What was last told by [`Effect::Connected`] or [`Effect::Disconnected`].
    connected: Option<bool>,
    /// The pause before the next try; 0 while none has failed.
    pause_us: u64,
}

impl Health {
    pub(super) fn new(settings: config::Breaker) -> Health {
        Health { breaker: Breaker::new(settings), connected: None, pause_us: 0 }
    }

    /// Whether a call may go out now.
    pub(super) fn admits(&mut self, now_us: u64) -> bool {
        self.breaker.admits(now_us)
    }

    /// Redis has answered as it should.
    pub(super) fn succeeded(&mut self, out: &mut Vec<Effect>) {
        self.breaker.succeeded();
        if self.connected.replace(true) != Some(true) {
            out.push(Effect::Connected);
        }
    }

    /// A call has failed. Whether that has opened the breaker.
    pub(super) fn failed(&mut self, failure: Failure, now_us: u64, out: &mut Vec<Effect>) -> bool {
        out.push(Effect::Count(Counter::Failure));
        let opened = self.breaker.failed(now_us);
        if opened {
            out.push(Effect::Count(Counter::BreakerOpen));
            self.disconnected(failure, out);
        }
        opened
    }

    /// Redis can't be reached.
    pub(super) fn disconnected(&mut self, failure: Failure, out: &mut Vec<Effect>) {
        if self.connected.replace(false) != Some(false) {
            out.push(Effect::Disconnected(failure));
        }
    }

    /// Whether a try has failed and none has succeeded since.
    pub(super) fn pauses(&self) -> bool {
        self.pause_us > 0
    }

    /// The pause after a try that has failed, in microseconds.
    pub(super) fn pause(&mut self) -> u64 {
        self.pause_us = match self.pause_us {
            0 => FIRST_PAUSE_US,
            pause => pause.saturating_mul(2).min(LAST_PAUSE_US),
        };
        self.pause_us
    }

    /// A try has succeeded.
    pub(super) fn reached(&mut self, out: &mut Vec<Effect>) {
        self.pause_us = 0;
        self.succeeded(out);
    }
}
