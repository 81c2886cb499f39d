//! The stream to Redis that a worker keeps open: calls go out pipelined, replies come back in the order of the calls.
//!
//! It does no I/O. It is told what happens and says what is to be done ([`Effect`]), so that every failure of a stream can be
//! played through in a test. What it holds to:
//! - every call is settled exactly once, by its reply, by its deadline, or by the stream's end;
//! - a call that was settled early stays in line as a tombstone, because its reply still comes, and in its turn;
//! - nothing is sent twice, but for a call that Redis answered with NOSCRIPT: that one wasn't run;
//! - at most [`MAX_WAITING`] calls and tombstones wait. A stream that keeps owing replies is given up when the breaker opens.
//!
//! A new stream begins with a greeting, a call that charges no request, and while the breaker is open more of them follow. The reply
//! shows that Redis is there and closes the breaker at once; without it the first sign of Redis's return would be a probe after the
//! breaker's open time. (A PING wouldn't do: Envoy's `redis_proxy` answers it without asking Redis.)

use super::client::Pending;
use super::health::Health;
use super::{Call, Counter, Decoder, Effect, Failure, MAX_WAITING, Reply, call, http};
use crate::config::{Secret, Store};
use crate::rules::RuleId;
use std::collections::VecDeque;

/// How long a new stream may take to answer its greeting. Microseconds.
const GREETING_US: u64 = 1_000_000;

/// The stream, its calls and its breaker.
#[derive(Debug)]
pub(super) struct Link {
    timeout_us: u64,
    greeting: Call,
    secret: Option<Secret>,
    health: Health,
    state: State,
    decoder: Decoder,
    /// Sent, in the order of their replies.
    sent: VecDeque<Entry>,
    /// Not sent yet: the stream isn't open.
    unsent: VecDeque<Pending>,
    /// How many of `sent` aren't settled.
    live: usize,
    /// No call is overdue before this time.
    due_us: u64,
    opened_before: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No stream, and none is wanted before this time; 0 where none has failed.
    Closed { not_before_us: u64 },
    /// A stream is to be opened at the next poll.
    Wanted,
    /// A stream is open. It is greeted once it has answered its greeting.
    Open { greeted: bool, since_us: u64 },
}

#[derive(Debug)]
enum Entry {
    /// The password.
    Auth,
    Greeting,
    /// Sent by its SHA-1.
    BySha(Pending),
    /// Sent with the script.
    WithScript(Pending),
    /// A page of the rule's live overrides.
    Page(RuleId),
    /// Settled before its reply came.
    Tombstone,
}

impl Link {
    /// A link without a stream; the first call opens one.
    pub(super) fn new(store: &Store, seed: u64) -> Link {
        Link {
            timeout_us: store.timeout_ms.saturating_mul(1000),
            greeting: Call::greeting(&store.key_prefix),
            secret: http::secret(store),
            health: Health::new(store.breaker, seed),
            state: State::Closed { not_before_us: 0 },
            decoder: Decoder::default(),
            sent: VecDeque::new(),
            unsent: VecDeque::new(),
            live: 0,
            due_us: u64::MAX,
            opened_before: false,
        }
    }

    /// Asks Redis. The answer is an [`Effect::Done`], maybe at once.
    pub(super) fn ask(&mut self, pending: Pending, now_us: u64, out: &mut Vec<Effect>) {
        if !self.health.admits(now_us) {
            return pending.settle(Err(Failure::BreakerOpen), now_us, out);
        }
        if self.waiting() >= MAX_WAITING {
            return self.fail(pending, Failure::Overloaded, now_us, out);
        }
        self.due_us = self.due_us.min(pending.due_us(self.timeout_us));
        match self.state {
            State::Open { .. } => self.send(pending, out),
            State::Wanted => self.unsent.push_back(pending),
            State::Closed { not_before_us } if now_us >= not_before_us => {
                self.state = State::Wanted;
                self.unsent.push_back(pending);
                out.push(Effect::Wake);
            }
            State::Closed { .. } => self.fail(pending, Failure::Disconnected, now_us, out),
        }
    }

    /// Whether [`Link::fetch`] could ask now.
    pub(super) fn can_fetch(&self) -> bool {
        matches!(self.state, State::Open { greeted: true, .. }) && self.waiting() < MAX_WAITING
    }

    /// Asks for a page of a rule's live overrides, by this command; whether it could. The answer is an [`Effect::Page`]. It is
    /// in line with the calls, and whatever ends them ends it too.
    pub(super) fn fetch(&mut self, rule: RuleId, command: Vec<u8>, out: &mut Vec<Effect>) -> bool {
        let open = self.can_fetch();
        if open {
            self.sent.push_back(Entry::Page(rule));
            out.push(Effect::Send(command));
        }
        open
    }

    /// Calls whose time is up are settled, and a stream is opened where one is due. From a callback of the root context.
    pub(super) fn poll(&mut self, now_us: u64, out: &mut Vec<Effect>) {
        self.expire(now_us, out);
        match self.state {
            State::Wanted => out.push(Effect::Open),
            // After a failure it is opened without waiting for a call, so that Redis's return is noticed.
            State::Closed { not_before_us } if self.health.pauses() && now_us >= not_before_us => {
                self.state = State::Wanted;
                out.push(Effect::Open);
            }
            State::Open { greeted: false, since_us } if now_us >= since_us.saturating_add(GREETING_US) => {
                self.give_up(now_us, out);
            }
            State::Open { .. } if self.health.greets(now_us) => self.greet(out),
            State::Open { .. } | State::Closed { .. } => {}
        }
    }

    /// Whether the stream that [`Effect::Open`] wanted is open.
    pub(super) fn opened(&mut self, open: bool, now_us: u64, out: &mut Vec<Effect>) {
        if !open {
            return self.lost(false, now_us, out);
        }
        self.state = State::Open { greeted: false, since_us: now_us };
        self.decoder = Decoder::default();
        if std::mem::replace(&mut self.opened_before, true) {
            out.push(Effect::Count(Counter::Reconnect));
        }
        if let Some(secret) = &self.secret {
            self.sent.push_back(Entry::Auth);
            out.push(Effect::Send(http::auth(secret)));
        }
        self.greet(out);
        for pending in std::mem::take(&mut self.unsent) {
            self.send(pending, out);
        }
    }

    /// The stream has brought bytes.
    pub(super) fn received(&mut self, bytes: &[u8], now_us: u64, out: &mut Vec<Effect>) {
        self.decoder.feed(bytes);
        loop {
            match self.decoder.next_reply() {
                Ok(Some(reply)) => {
                    let Some(entry) = self.sent.pop_front() else { return self.give_up(now_us, out) };
                    self.replied(entry, reply, now_us, out);
                    if !matches!(self.state, State::Open { .. }) {
                        return; // given up on the way
                    }
                }
                Ok(None) => return,
                Err(_) => return self.give_up(now_us, out),
            }
        }
    }

    /// The stream has ended.
    pub(super) fn closed(&mut self, now_us: u64, out: &mut Vec<Effect>) {
        // A stream that served and ended in peace (Redis closes idle connections) is opened again by the next call.
        let served = matches!(self.state, State::Open { greeted: true, .. });
        self.lost(served && self.live == 0 && !self.health.pauses(), now_us, out);
    }

    /// How often [`Link::poll`] is wanted now, in milliseconds; 0: not at all.
    pub(super) fn poll_every_ms(&self) -> u32 {
        let opening = matches!(self.state, State::Wanted | State::Open { greeted: false, .. });
        let reopening = matches!(self.state, State::Closed { .. }) && self.health.pauses();
        let greeting = matches!(self.state, State::Open { .. }) && self.health.will_greet();
        if self.live > 0 || !self.unsent.is_empty() || opening || reopening || greeting { 10 } else { 0 }
    }

    /// Calls that aren't settled.
    pub(super) fn pending(&self) -> usize {
        self.live.saturating_add(self.unsent.len())
    }

    fn waiting(&self) -> usize {
        self.sent.len().saturating_add(self.unsent.len())
    }

    fn greet(&mut self, out: &mut Vec<Effect>) {
        self.health.greeting();
        self.sent.push_back(Entry::Greeting);
        out.push(Effect::Send(self.greeting.evalsha()));
    }

    fn send(&mut self, pending: Pending, out: &mut Vec<Effect>) {
        out.push(Effect::Count(Counter::Request));
        out.push(Effect::Send(pending.call.evalsha()));
        self.live = self.live.saturating_add(1);
        self.sent.push_back(Entry::BySha(pending));
    }

    fn replied(&mut self, entry: Entry, reply: Reply, now_us: u64, out: &mut Vec<Effect>) {
        let pending = match entry {
            Entry::Tombstone => return,
            Entry::Auth => {
                // Whatever follows on this stream would be refused.
                if let Err(failure) = reply.checked() {
                    self.health.disconnected(failure, out);
                    self.give_up(now_us, out);
                }
                return;
            }
            Entry::Page(rule) => return out.push(Effect::Page { rule, reply: reply.checked() }),
            Entry::Greeting => {
                // Any other error (LOADING, NOAUTH) is what the calls get too; the breaker deals with it.
                if self.greeting.is_answered_by(reply) {
                    self.greeted(out);
                } else {
                    self.health.greet_later(now_us);
                }
                return;
            }
            Entry::BySha(pending) => {
                if reply.is_noscript() {
                    out.push(Effect::Count(Counter::Noscript));
                    out.push(Effect::Send(pending.call.eval()));
                    self.sent.push_back(Entry::WithScript(pending));
                    return;
                }
                pending
            }
            Entry::WithScript(pending) => pending,
        };
        self.live = self.live.saturating_sub(1);
        match call::verdicts(reply, pending.call.limits()) {
            Ok(verdicts) => {
                self.health.succeeded(out);
                pending.settle(Ok(verdicts), now_us, out);
            }
            Err(failure) => self.fail(pending, failure, now_us, out),
        }
    }

    /// The new stream leads to Redis.
    fn greeted(&mut self, out: &mut Vec<Effect>) {
        if let State::Open { greeted, .. } = &mut self.state {
            *greeted = true;
        }
        self.health.reached(out);
    }

    /// Settles what is overdue. It looks at all calls, but not before one can be: with many under way that is seldom.
    fn expire(&mut self, now_us: u64, out: &mut Vec<Effect>) {
        if now_us < self.due_us {
            return;
        }
        self.due_us = u64::MAX;
        let mut late = Vec::new();
        for entry in &mut self.sent {
            let (Entry::BySha(pending) | Entry::WithScript(pending)) = &*entry else { continue };
            let due_us = pending.due_us(self.timeout_us);
            if now_us < due_us {
                self.due_us = self.due_us.min(due_us);
            } else if let Entry::BySha(pending) | Entry::WithScript(pending) = std::mem::replace(entry, Entry::Tombstone) {
                self.live = self.live.saturating_sub(1);
                late.push(pending);
            }
        }
        while let Some(pending) = self.unsent.pop_front_if(|pending| now_us >= pending.due_us(self.timeout_us)) {
            late.push(pending);
        }
        if let Some(pending) = self.unsent.front() {
            self.due_us = self.due_us.min(pending.due_us(self.timeout_us));
        }
        for pending in late {
            out.push(Effect::Count(Counter::Timeout));
            self.fail(pending, Failure::Timeout, now_us, out);
        }
    }

    /// A call has failed. One failure in a row too many opens the breaker, and a stream that owes replies then is given up:
    /// it may lead nowhere, and nothing would ever close it.
    fn fail(&mut self, pending: Pending, failure: Failure, now_us: u64, out: &mut Vec<Effect>) {
        let owing = matches!(failure, Failure::Timeout | Failure::Overloaded);
        pending.settle(Err(failure.clone()), now_us, out);
        if self.health.failed(failure, now_us, out) && owing {
            self.give_up(now_us, out);
        }
    }

    fn give_up(&mut self, now_us: u64, out: &mut Vec<Effect>) {
        if matches!(self.state, State::Open { .. }) {
            out.push(Effect::Reset);
            self.lost(false, now_us, out);
        }
    }

    /// There is no stream any more: whatever waited for it has failed, and the next one is opened after a pause, unless this one
    /// ended in peace.
    fn lost(&mut self, in_peace: bool, now_us: u64, out: &mut Vec<Effect>) {
        let mut pause_us = 0;
        if !in_peace {
            pause_us = self.health.pause();
            self.health.disconnected(Failure::Disconnected, out);
        }
        self.state = State::Closed { not_before_us: now_us.saturating_add(pause_us) };
        self.live = 0;
        let sent = std::mem::take(&mut self.sent);
        let unsent = std::mem::take(&mut self.unsent);
        let waiting = sent.into_iter().filter_map(|entry| match entry {
            Entry::BySha(pending) | Entry::WithScript(pending) => Some(pending),
            Entry::Page(rule) => {
                out.push(Effect::Page { rule, reply: Err(Failure::Disconnected) });
                None
            }
            Entry::Auth | Entry::Greeting | Entry::Tombstone => None,
        });
        let waiting: Vec<Pending> = waiting.collect();
        for pending in waiting.into_iter().chain(unsent) {
            self.fail(pending, Failure::Disconnected, now_us, out);
        }
    }
}

#[cfg(test)]
mod tests;
