//! Who asks Redis, by whatever transport: what it is told and what it wants done.

use super::callouts::Callouts;
use super::link::Link;
use super::{Call, Failure, HttpCall, HttpReply, Reply};
use crate::config::{Store, Transport};
use crate::leases::LeaseId;
use crate::limit::Verdict;
use crate::rules::RuleId;

/// The most calls that wait for replies, and among them those whose requests don't wait any more.
pub const MAX_WAITING: usize = 8192;

/// What a call is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ticket {
    /// A request that waits.
    Request {
        /// The request's context.
        id: u32,
        /// Which of its calls.
        part: u16,
    },
    /// A lease.
    Lease(LeaseId),
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Call [`Client::poll`] from the root context as soon as can be: streams and callouts belong to the context that makes them.
    Wake,
    /// Open a stream and tell [`Client::opened`].
    Open,
    /// Send this on the stream.
    Send(Vec<u8>),
    /// Make this callout from the root context, and tell [`Client::dispatched`], in the order of these effects.
    Dispatch(HttpCall),
    /// Give the stream up; it will have no more callbacks.
    Reset,
    /// A call is settled.
    Done {
        /// Whose.
        ticket: Ticket,
        /// A verdict for each of the call's limits.
        result: Result<Vec<Verdict>, Failure>,
        /// How long it took, in microseconds.
        took_us: u64,
    },
    /// A page of a rule's live overrides has come, or won't.
    Page {
        /// The rule.
        rule: RuleId,
        /// The page.
        reply: Result<Reply, Failure>,
    },
    /// Redis can be reached now.
    Connected,
    /// Redis can't be reached any more, and why.
    Disconnected(Failure),
    /// Something to count.
    Count(Counter),
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Counter {
    /// A call was sent.
    Request,
    /// A call had no reply in time.
    Timeout,
    /// A call failed, timeouts among them.
    Failure,
    /// Redis didn't know the script.
    Noscript,
    /// A stream was opened after an earlier one.
    Reconnect,
    /// The breaker opened.
    BreakerOpen,
}

/// A call that waits for its reply.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) ticket: Ticket,
    pub(super) call: Call,
    pub(super) since_us: u64,
}

impl Pending {
    /// When its time is up.
    pub(super) fn due_us(&self, timeout_us: u64) -> u64 {
        self.since_us.saturating_add(timeout_us)
    }

    pub(super) fn settle(self, result: Result<Vec<Verdict>, Failure>, now_us: u64, out: &mut Vec<Effect>) {
        let took_us = now_us.saturating_sub(self.since_us);
        out.push(Effect::Done { ticket: self.ticket, result, took_us });
    }
}

/// Asks Redis. It does no I/O: it is told what happens and says what is to be done.
#[derive(Debug)]
pub struct Client(By);

#[derive(Debug)]
enum By {
    Stream(Link),
    Callouts(Callouts),
}

impl Client {
    /// One that has asked nothing yet. Clients of other seeds don't try to reach Redis again at the same time.
    pub fn new(store: &Store, seed: u64) -> Client {
        match store.transport {
            Transport::Redis => Client(By::Stream(Link::new(store, seed))),
            Transport::RedisCall | Transport::Upstash | Transport::Webdis => {
                Client(By::Callouts(Callouts::new(store, seed)))
            }
        }
    }

    /// Makes calls. The answer to each is an [`Effect::Done`], maybe at once.
    pub fn ask(&mut self, calls: impl Iterator<Item = (Ticket, Call)>, now_us: u64, out: &mut Vec<Effect>) {
        let calls = calls.map(|(ticket, call)| Pending { ticket, call, since_us: now_us });
        match &mut self.0 {
            By::Stream(link) => calls.for_each(|call| link.ask(call, now_us, out)),
            By::Callouts(callouts) => callouts.ask(calls.collect(), now_us, out),
        }
    }

    /// Whether [`Client::fetch`] could ask now.
    pub fn can_fetch(&self) -> bool {
        match &self.0 {
            By::Stream(link) => link.can_fetch(),
            By::Callouts(callouts) => callouts.can_fetch(),
        }
    }

    /// Asks for a page of a rule's live overrides, by this command; whether it could. The answer is an [`Effect::Page`].
    pub fn fetch(&mut self, rule: RuleId, command: Vec<u8>, now_us: u64, out: &mut Vec<Effect>) -> bool {
        match &mut self.0 {
            By::Stream(link) => link.fetch(rule, command, out),
            By::Callouts(callouts) => callouts.fetch(rule, command, now_us, out),
        }
    }

    /// Does what is due. From a callback of the root context.
    pub fn poll(&mut self, now_us: u64, out: &mut Vec<Effect>) {
        match &mut self.0 {
            By::Stream(link) => link.poll(now_us, out),
            By::Callouts(callouts) => callouts.poll(now_us, out),
        }
    }

    /// How often [`Client::poll`] is wanted now, in milliseconds; 0: not at all.
    pub fn poll_every_ms(&self) -> u32 {
        match &self.0 {
            By::Stream(link) => link.poll_every_ms(),
            By::Callouts(callouts) => callouts.poll_every_ms(),
        }
    }

    /// Calls that aren't settled.
    pub fn pending(&self) -> usize {
        match &self.0 {
            By::Stream(link) => link.pending(),
            By::Callouts(callouts) => callouts.pending(),
        }
    }

    /// Whether the stream that [`Effect::Open`] wanted is open.
    pub fn opened(&mut self, open: bool, now_us: u64, out: &mut Vec<Effect>) {
        if let By::Stream(link) = &mut self.0 {
            link.opened(open, now_us, out);
        }
    }

    /// The stream has brought bytes.
    pub fn received(&mut self, bytes: &[u8], now_us: u64, out: &mut Vec<Effect>) {
        if let By::Stream(link) = &mut self.0 {
            link.received(bytes, now_us, out);
        }
    }

    /// The stream has ended.
    pub fn closed(&mut self, now_us: u64, out: &mut Vec<Effect>) {
        if let By::Stream(link) = &mut self.0 {
            link.closed(now_us, out);
        }
    }

    /// The callout of the first [`Effect::Dispatch`] that wasn't told yet is under way by this number, or couldn't be made.
    pub fn dispatched(&mut self, callout: Option<u32>, now_us: u64, out: &mut Vec<Effect>) {
        if let By::Callouts(callouts) = &mut self.0 {
            callouts.dispatched(callout, now_us, out);
        }
    }

    /// A callout has ended.
    pub fn answered(&mut self, callout: u32, reply: HttpReply<'_>, now_us: u64, out: &mut Vec<Effect>) {
        if let By::Callouts(callouts) = &mut self.0 {
            callouts.answered(callout, reply, now_us, out);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use crate::config::{Config, Store};

    /// A store with a timeout of 50 ms and a breaker of 5 failures and a second, and these fields too.
    pub(crate) fn store_with(fields: &str) -> Store {
        let text =
            format!(r#"{{"store":{{"cluster":"c"{fields}}},"rules":[{{"name":"r","key":["ip"],"limits":["1/s"]}}]}}"#);
        Config::parse(text.as_bytes()).unwrap().store.unwrap()
    }
}
