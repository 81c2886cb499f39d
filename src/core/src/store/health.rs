//! Whether Redis can be asked, and telling it: one breaker and one pause between tries for every transport.

use super::{Breaker, Counter, Effect, Failure};
use crate::config;
use crate::dice::Dice;

/// The longest pauses between tries to reach Redis again: the first, doubled up to the last. Each is drawn between its half and
/// itself, so that the workers that lost Redis together don't come back together. Microseconds.
const FIRST_PAUSE_US: u64 = 25_000;
const LAST_PAUSE_US: u64 = 400_000;

/// What is known of Redis.
#[derive(Debug)]
pub(super) struct Health {
    breaker: Breaker,
    /// What was last told by [`Effect::Connected`] or [`Effect::Disconnected`].
    connected: Option<bool>,
    /// The longest pause before the next try; 0 while none has failed.
    pause_us: u64,
    /// When the next greeting is due; `None` while none is wanted, or one is under way.
    greet_us: Option<u64>,
    dice: Dice,
}

impl Health {
    pub(super) fn new(settings: config::Breaker, seed: u64) -> Health {
        Health { breaker: Breaker::new(settings), connected: None, pause_us: 0, greet_us: None, dice: Dice::new(seed) }
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

    /// A call has failed. Whether that has opened the breaker; a greeting is due soon then.
    pub(super) fn failed(&mut self, failure: Failure, now_us: u64, out: &mut Vec<Effect>) -> bool {
        out.push(Effect::Count(Counter::Failure));
        let opened = self.breaker.failed(now_us);
        if opened {
            out.push(Effect::Count(Counter::BreakerOpen));
            self.disconnected(failure, out);
            if !self.pauses() {
                self.greet_later(now_us);
            }
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
        let half = self.pause_us / 2;
        half.saturating_add(self.dice.draw().checked_rem(half).unwrap_or(0))
    }

    /// A greeting has failed: another one is due after a pause.
    pub(super) fn greet_later(&mut self, now_us: u64) {
        self.greet_us = Some(now_us.saturating_add(self.pause()));
    }

    /// Whether a greeting is due in the future.
    pub(super) fn will_greet(&self) -> bool {
        self.greet_us.is_some()
    }

    /// Whether a greeting is to go out now; it is under way from here on.
    pub(super) fn greets(&mut self, now_us: u64) -> bool {
        self.greet_us.take_if(|due_us| now_us >= *due_us).is_some()
    }

    /// A greeting goes out for another reason.
    pub(super) fn greeting(&mut self) {
        self.greet_us = None;
    }

    /// A try has succeeded.
    pub(super) fn reached(&mut self, out: &mut Vec<Effect>) {
        self.pause_us = 0;
        self.greet_us = None;
        self.succeeded(out);
    }
}
