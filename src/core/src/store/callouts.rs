//! Calls as HTTP callouts: the calls of a request go out together, and the answer has the replies to all of them.
//!
//! It holds to what [`Link`](super::Link) does: every call is settled exactly once, by its reply, by its deadline, or by the callout's
//! end; nothing is sent twice, but for a call that Redis answered with NOSCRIPT; at most [`MAX_WAITING`] calls wait. An answer that
//! comes after the deadline is nobody's.
//!
//! Nothing goes out in the callback of an answer, but in the next turn: a callout that was made there would be given the connection of
//! the one that has just ended, which is half closed.
//!
//! While the breaker is open, a greeting goes out now and then, a call that charges nothing. Its reply closes the breaker, so that
//! Redis is used again as soon as it can be.

use super::client::Pending;
use super::health::Health;
use super::http::Wire;
use super::{Call, Counter, Effect, Failure, HttpReply, MAX_WAITING, Reply, call};
use crate::config::Store;
use crate::rules::RuleId;
use std::collections::{HashMap, VecDeque};

/// The callouts, their calls and their breaker.
#[derive(Debug)]
pub(super) struct Callouts {
    timeout_us: u64,
    wire: Wire,
    greeting: Call,
    health: Health,
    /// To be made at the next poll.
    queued: VecDeque<Batch>,
    /// An [`Effect::Dispatch`] each, which hasn't been told yet.
    dispatching: VecDeque<Batch>,
    /// Under way, by their numbers.
    waiting: HashMap<u32, Batch>,
    /// Calls in all of these.
    pending: usize,
    /// None of those under way is overdue before this time.
    earliest_us: u64,
}

/// What one callout is for.
#[derive(Debug)]
struct Batch {
    what: What,
    since_us: u64,
}

#[derive(Debug)]
enum What {
    Greeting,
    /// A page of a rule's live overrides, by this command.
    Page(RuleId, Vec<u8>),
    /// Calls by the script's SHA-1.
    BySha(Vec<Pending>),
    /// Calls that bring the script along.
    WithScript(Vec<Pending>),
}

impl Batch {
    fn commands(&self, greeting: &Call) -> Vec<Vec<u8>> {
        match &self.what {
            What::Greeting => vec![greeting.evalsha()],
            What::Page(_, command) => vec![command.clone()],
            What::BySha(calls) => calls.iter().map(|pending| pending.call.evalsha()).collect(),
            What::WithScript(calls) => calls.iter().map(|pending| pending.call.eval()).collect(),
        }
    }
}

impl Callouts {
    /// One without callouts.
    pub(super) fn new(store: &Store, seed: u64) -> Callouts {
        Callouts {
            timeout_us: store.timeout_ms.saturating_mul(1000),
            wire: Wire::new(store),
            greeting: Call::greeting(&store.key_prefix),
            health: Health::new(store.breaker, seed),
            queued: VecDeque::new(),
            dispatching: VecDeque::new(),
            waiting: HashMap::new(),
            pending: 0,
            earliest_us: u64::MAX,
        }
    }

    pub(super) fn ask(&mut self, calls: Vec<Pending>, now_us: u64, out: &mut Vec<Effect>) {
        let mut calls = calls.into_iter().peekable();
        while calls.peek().is_some() {
            let batch: Vec<Pending> = calls.by_ref().take(self.wire.at_once()).collect();
            if !self.health.admits(now_us) {
                batch.into_iter().for_each(|pending| pending.settle(Err(Failure::BreakerOpen), now_us, out));
            } else if self.pending.saturating_add(batch.len()) > MAX_WAITING {
                self.fail(batch, &Failure::Overloaded, now_us, out);
            } else {
                self.pending = self.pending.saturating_add(batch.len());
                batch.iter().for_each(|_| out.push(Effect::Count(Counter::Request)));
                self.queue(Batch { what: What::BySha(batch), since_us: now_us }, out);
            }
        }
    }

    pub(super) fn can_fetch(&self) -> bool {
        !self.health.pauses() && self.pending < MAX_WAITING
    }

    pub(super) fn fetch(&mut self, rule: RuleId, command: Vec<u8>, now_us: u64, out: &mut Vec<Effect>) -> bool {
        let can = self.can_fetch();
        if can {
            self.queue(Batch { what: What::Page(rule, command), since_us: now_us }, out);
        }
        can
    }

    pub(super) fn poll(&mut self, now_us: u64, out: &mut Vec<Effect>) {
        // All of them are looked at, but not before one can be overdue: with many under way that is seldom.
        if now_us >= self.earliest_us {
            let late = self.waiting.iter().filter(|(_, batch)| self.left_us(batch.since_us, now_us) == 0);
            let late: Vec<u32> = late.map(|(callout, _)| *callout).collect();
            for callout in late {
                if let Some(batch) = self.waiting.remove(&callout) {
                    self.end(batch, &Failure::Timeout, now_us, out);
                }
            }
            let due = self.waiting.values().map(|batch| self.due_us(batch.since_us));
            self.earliest_us = due.min().unwrap_or(u64::MAX);
        }
        while let Some(batch) = self.queued.pop_front() {
            self.dispatch(batch, now_us, out);
        }
        if self.health.greets(now_us) {
            self.dispatch(Batch { what: What::Greeting, since_us: now_us }, now_us, out);
        }
    }

    pub(super) fn poll_every_ms(&self) -> u32 {
        let idle = self.waiting.is_empty() && self.queued.is_empty() && !self.health.will_greet();
        if idle { 0 } else { 10 }
    }

    pub(super) fn pending(&self) -> usize {
        self.pending
    }

    pub(super) fn dispatched(&mut self, callout: Option<u32>, now_us: u64, out: &mut Vec<Effect>) {
        let Some(batch) = self.dispatching.pop_front() else { return };
        match callout {
            Some(callout) => {
                self.earliest_us = self.earliest_us.min(self.due_us(batch.since_us));
                self.waiting.insert(callout, batch);
            }
            None => self.end(batch, &Failure::Disconnected, now_us, out),
        }
    }

    pub(super) fn answered(&mut self, callout: u32, reply: HttpReply<'_>, now_us: u64, out: &mut Vec<Effect>) {
        let Some(batch) = self.waiting.remove(&callout) else { return };
        let commands = match &batch.what {
            What::Greeting | What::Page(..) => 1,
            What::BySha(calls) | What::WithScript(calls) => calls.len(),
        };
        let replies = match self.wire.replies(reply, commands) {
            Ok(replies) => replies,
            // The host's own timer may be first.
            Err(_) if self.left_us(batch.since_us, now_us) == 0 => return self.end(batch, &Failure::Timeout, now_us, out),
            Err(failure) => return self.end(batch, &failure, now_us, out),
        };
        let mut replies = replies.into_iter();
        match batch.what {
            What::Greeting if replies.all(|reply| self.greeting.is_answered_by(reply)) => self.health.reached(out),
            What::Greeting => self.health.greet_later(now_us),
            What::Page(rule, _) => out.extend(replies.map(|reply| Effect::Page { rule, reply: reply.checked() })),
            What::BySha(calls) => {
                let (unknown, known): (Vec<_>, Vec<_>) =
                    calls.into_iter().zip(replies).partition(|(_, reply)| reply.is_noscript());
                self.settle(known, now_us, out);
                if !unknown.is_empty() {
                    unknown.iter().for_each(|_| out.push(Effect::Count(Counter::Noscript)));
                    let calls = unknown.into_iter().map(|(pending, _)| pending).collect();
                    self.queue(Batch { what: What::WithScript(calls), ..batch }, out);
                }
            }
            What::WithScript(calls) => self.settle(calls.into_iter().zip(replies).collect(), now_us, out),
        }
    }

    /// The deadline of what has begun then.
    fn due_us(&self, since_us: u64) -> u64 {
        since_us.saturating_add(self.timeout_us)
    }

    /// Microseconds until that.
    fn left_us(&self, since_us: u64, now_us: u64) -> u64 {
        self.due_us(since_us).saturating_sub(now_us)
    }

    /// Puts a batch in line for the next poll.
    fn queue(&mut self, batch: Batch, out: &mut Vec<Effect>) {
        self.queued.push_back(batch);
        out.push(Effect::Wake);
    }

    /// Wants a batch sent, unless its time is up.
    fn dispatch(&mut self, batch: Batch, now_us: u64, out: &mut Vec<Effect>) {
        let left_ms = self.left_us(batch.since_us, now_us).div_ceil(1000);
        if left_ms == 0 {
            return self.end(batch, &Failure::Timeout, now_us, out);
        }
        let timeout_ms = u32::try_from(left_ms).unwrap_or(u32::MAX);
        out.push(Effect::Dispatch(self.wire.request(&batch.commands(&self.greeting), timeout_ms)));
        self.dispatching.push_back(batch);
    }

    fn settle(&mut self, calls: Vec<(Pending, Reply)>, now_us: u64, out: &mut Vec<Effect>) {
        for (pending, reply) in calls {
            self.pending = self.pending.saturating_sub(1);
            match call::verdicts(reply, pending.call.limits()) {
                Ok(verdicts) => {
                    self.health.reached(out);
                    pending.settle(Ok(verdicts), now_us, out);
                }
                Err(failure) => self.fail(vec![pending], &failure, now_us, out),
            }
        }
    }

    /// A callout has come to nothing.
    fn end(&mut self, batch: Batch, failure: &Failure, now_us: u64, out: &mut Vec<Effect>) {
        match batch.what {
            What::Greeting => self.health.greet_later(now_us),
            What::Page(rule, _) => out.push(Effect::Page { rule, reply: Err(failure.clone()) }),
            What::BySha(calls) | What::WithScript(calls) => {
                self.pending = self.pending.saturating_sub(calls.len());
                if *failure == Failure::Timeout {
                    calls.iter().for_each(|_| out.push(Effect::Count(Counter::Timeout)));
                }
                self.fail(calls, failure, now_us, out);
            }
        }
    }

    fn fail(&mut self, calls: Vec<Pending>, failure: &Failure, now_us: u64, out: &mut Vec<Effect>) {
        for pending in calls {
            pending.settle(Err(failure.clone()), now_us, out);
            self.health.failed(failure.clone(), now_us, out);
        }
    }
}

#[cfg(test)]
mod tests;
