//! A worker: its requests, its way to Redis, and the carrying out of what the core decides.
//!
//! Four facts about the host rule this file:
//! - A stream's replies come to the root context. From there any request can be answered, but a request may be gone here and
//!   still be there in the host, and acting for it then would be the end of this VM. So [`Worker::live`] is the only list of
//!   requests that exist, and a request leaves it in its own Drop.
//! - What an answer causes runs nested when the callback returns, one answer inside the other, and a few hundred overflow the
//!   VM's stack. So one callback gives at most [`AT_ONCE`] answers, and the rest come in turns of the event loop that the
//!   worker asks for through a queue of its own.
//! - A stream or callout belongs to the context whose callback made it. So requests only ask for one ([`Effect::Wake`]).
//! - A stream's last bytes are delivered when its upstream is gone already. Whoever sends on it then has it ended at once, by a
//!   callback inside the callback, and the SDK panics. So nothing is sent but in a turn of its own or a tick ([`Redis::send`]).

use crate::clock::Clock;
use crate::expressions::Expressions;
use crate::host;
use crate::metrics::Metrics;
use crate::redis::Redis;
use crate::request::Current;
use crate::slots::Slots;
use proxy_wasm::types::Action;
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use weir_core::answer;
use weir_core::config::Config;
use weir_core::dice::Dice;
use weir_core::flow::{CallResult, Decision, Flow, Kind, Limiter, Now, Step};
use weir_core::rules::{LiveOverrides, Plan, RouteFaults, Routes, RuleId, Surroundings};
use weir_core::store::{Call, Client, Effect, Failure, Read, Reply, Ticket};

/// The most answers in one callback.
pub(crate) const AT_ONCE: usize = 32;

pub(crate) struct Worker {
    /// The root context.
    id: u32,
    limiter: Limiter,
    metrics: Metrics,
    clock: Clock,
    expressions: Expressions,
    routes: Routes,
    live_overrides: RefCell<LiveOverrides>,
    dice: Dice,
    live: RefCell<HashMap<u32, Live>>,
    /// Requests whose calls are all settled, to be answered in this order.
    ready: RefCell<VecDeque<u32>>,
    /// `None` where every rule is decided locally.
    redis: Option<Redis>,
}

/// A request that a rule applies to.
enum Live {
    Waiting(Flow),
    /// It is let in, but not before this time in microseconds; these headers go on its response.
    Held(u64, Vec<(&'static str, String)>),
    /// It is decided; these headers go on its response.
    Decided(Vec<(&'static str, String)>),
}

/// What a decision has come to.
enum Next {
    /// The request goes on.
    GoOn,
    /// It goes on later.
    Hold,
    /// It is answered.
    Answered,
}

impl Worker {
    pub(crate) fn new(id: u32, config: Config, expressions: Expressions) -> Worker {
        let limiter = Limiter::new(config);
        let seed = host::now_ns() ^ u64::from(id).rotate_left(32);
        Worker {
            id,
            expressions,
            routes: Routes::default(),
            live_overrides: RefCell::default(),
            dice: Dice::new(seed),
            metrics: Metrics::new(&limiter.rules),
            clock: Clock::default(),
            live: RefCell::default(),
            ready: RefCell::default(),
            redis: limiter.store.as_ref().map(|store| Redis::new(store, &limiter.rules, seed)),
            limiter,
        }
    }

    /// A request's headers are there. In the request's own callback.
    pub(crate) fn begin(&self, id: u32) -> Action {
        let now = self.clock.now();
        let plan = self.plan();
        if let Plan::Checks(checks) = &plan {
            for rule in &checks.missing {
                self.metrics.missing_key(*rule);
            }
        }
        let decision = match self.limiter.begin(plan, &self.slots(), now) {
            Step::Continue => return Action::Continue,
            Step::Decide(decision) => {
                self.fetch(now);
                decision
            }
            Step::Ask(flow, calls) => {
                let settled = self.ask(id, flow, calls, now);
                self.fetch(now);
                let Some(flow) = settled else { return Action::Pause };
                flow.decide(&self.limiter, &self.slots(), now)
            }
        };
        match self.carry_out(id, decision, now) {
            Next::GoOn => Action::Continue,
            Next::Hold | Next::Answered => Action::Pause,
        }
    }

    /// What the rules ask of the current request.
    fn plan(&self) -> Plan {
        let Limiter { rules, .. } = &self.limiter;
        let request = Current { expressions: &self.expressions };
        let route = self.routes.of(&request, rules).unwrap_or_else(|faulty| {
            self.tell_route_faults(&faulty);
            None
        });
        let roll = self.dice.roll();
        rules.plan(&request, Surroundings { route: route.as_deref(), live: &self.live_overrides.borrow(), roll })
    }

    fn tell_route_faults(&self, RouteFaults { level, faults }: &RouteFaults) {
        self.metrics.route_error();
        for fault in faults {
            log::warn!("weir: metadata of a {} is ignored: {fault}", level.title());
        }
    }

    /// The headers of a response, once.
    pub(crate) fn response_headers(&self, id: u32) -> Vec<(&'static str, String)> {
        match self.live.borrow_mut().get_mut(&id) {
            Some(Live::Decided(headers)) => std::mem::take(headers),
            Some(Live::Waiting(_) | Live::Held(..)) | None => Vec::new(),
        }
    }

    /// The request is over, or its client went away.
    pub(crate) fn gone(&self, id: u32) {
        let live = self.live.borrow_mut().remove(&id);
        if let (Some(Live::Held(due_us, _)), Some(redis)) = (live, &self.redis) {
            redis.held.borrow_mut().forget(due_us, id);
        }
    }

    /// The stream has brought a message. In a callback of the root context, as all that follow.
    pub(crate) fn received(&self, stream: u32, size: usize) {
        let Some(redis) = self.redis.as_ref().filter(|redis| redis.stream.get() == Some(stream)) else { return };
        let Some(bytes) = host::buffer(host::Buffer::GrpcMessage, size) else {
            // Whose replies those that follow are, nobody could tell.
            host::reset_stream(stream);
            return self.closed(stream);
        };
        let now = self.clock.now();
        self.tell(redis, now, |client, out| client.received(&bytes, now.us, out));
        self.answer_some(redis, now);
    }

    /// The stream is closed.
    pub(crate) fn closed(&self, stream: u32) {
        let Some(redis) = self.redis.as_ref().filter(|redis| redis.stream.get() == Some(stream)) else { return };
        redis.stream.set(None);
        let now = self.clock.now();
        self.tell(redis, now, |client, out| client.closed(now.us, out));
        self.answer_some(redis, now);
    }

    /// A callout has ended; without headers, by a failure.
    pub(crate) fn called_out(&self, callout: u32, headers: usize, size: usize) {
        let Some(redis) = &self.redis else { return };
        let status = if headers > 0 { host::callout_status() } else { None };
        let body = if size > 0 { host::buffer(host::Buffer::CalloutBody, size) } else { Some(Vec::new()) };
        let reply = status.zip(body.as_deref());
        let now = self.clock.now();
        self.tell(redis, now, |client, out| client.answered(callout, reply, now.us, out));
        self.answer_some(redis, now);
    }

    /// The root context ends: a new configuration has its own in the same VM. What this one has put into the gauges comes out.
    pub(crate) fn retired(&self) {
        self.metrics.connected(false);
        self.metrics.pending(0);
    }

    pub(crate) fn ticked(&self) {
        let Some(redis) = &self.redis else { return };
        self.poll(redis);
        let client = redis.client.borrow();
        self.metrics.pending(client.pending());
        // Ticks end here alone: switched on and off by every request, they would cost two calls of the host each.
        let held_ms = redis.held.borrow().wait_ms(self.clock.now().us);
        let overrides_ms = if client.can_fetch() { redis.overrides.borrow().wait_ms(self.clock.now().us) } else { 0 };
        let wanted = [client.poll_every_ms(), held_ms, overrides_ms].into_iter().filter(|ms| *ms > 0).min();
        if wanted.is_some() || self.ready.borrow().is_empty() {
            redis.tick_every(wanted.unwrap_or(0));
        }
    }

    pub(crate) fn woken(&self, queue: u32) {
        host::dequeue(queue);
        let Some(redis) = &self.redis else { return };
        redis.waking.set(false);
        self.poll(redis);
    }

    /// Does what is due, in a callback that is none of the stream's.
    fn poll(&self, redis: &Redis) {
        let now = self.clock.now();
        while let Some(id) = redis.held.borrow_mut().next_due(now.us) {
            self.ready.borrow_mut().push_back(id);
        }
        self.tell(redis, now, |client, out| client.poll(now.us, out));
        redis.tell_away(redis.journal.borrow_mut().due(now.us));
        self.tell(redis, now, |client, out| {
            redis.overrides.borrow_mut().start(now.us, |rule, command| client.fetch(rule, command, now.us, out));
        });
        redis.send();
        self.answer_some(redis, now);
    }

    /// Tells Redis's client what has happened, and does what it wants.
    fn tell(&self, redis: &Redis, now: Now, what: impl FnOnce(&mut Client, &mut Vec<Effect>)) {
        let effects = redis.tell(what);
        self.perform(redis, effects, now, &mut |ticket, result| self.settle(ticket, result, now));
    }

    /// Asks Redis for a request in its own callback. The flow comes back where that was answered at once.
    fn ask(&self, id: u32, mut flow: Flow, calls: Vec<(u16, Call)>, now: Now) -> Option<Flow> {
        let Some(redis) = &self.redis else { return Some(flow) };
        let calls = calls.into_iter().map(|(part, call)| (Ticket::Request { id, part }, call));
        let effects = redis.tell(|client, out| client.ask(calls, now.us, out));
        let mut settled = false;
        self.perform(redis, effects, now, &mut |ticket, result| match ticket {
            Ticket::Request { id: asking, part } if asking == id => settled = flow.settle(part, result),
            _ => self.settle(ticket, result, now),
        });
        redis.tick_within(redis.client.borrow().poll_every_ms());
        self.go_on(redis, now);
        if settled {
            return Some(flow);
        }
        self.live.borrow_mut().insert(id, Live::Waiting(flow));
        None
    }

    /// Makes the calls for leases that a request has made wanted.
    fn fetch(&self, now: Now) {
        let (Some(redis), calls) = (&self.redis, self.limiter.fetches()) else { return };
        if !calls.is_empty() {
            self.tell(redis, now, |client, out| client.ask(calls.into_iter(), now.us, out));
            redis.tick_within(redis.client.borrow().poll_every_ms());
            self.go_on(redis, now);
        }
    }

    /// Does what the client wants. `done` takes the results of calls.
    fn perform(&self, redis: &Redis, effects: Vec<Effect>, now: Now, done: &mut dyn FnMut(Ticket, CallResult)) {
        let mut todo = VecDeque::from(effects);
        while let Some(effect) = todo.pop_front() {
            match effect {
                Effect::Wake => redis.wake(),
                Effect::Open => {
                    redis.outbox.borrow_mut().clear();
                    redis.stream.set(host::open_stream(&redis.cluster));
                    let open = redis.stream.get().is_some();
                    todo.extend(redis.tell(|client, out| client.opened(open, now.us, out)));
                }
                Effect::Dispatch(call) => {
                    let callout = host::call_out(&redis.cluster, &call);
                    todo.extend(redis.tell(|client, out| client.dispatched(callout, now.us, out)));
                }
                Effect::Send(bytes) => redis.outbox.borrow_mut().extend(bytes),
                Effect::Reset => {
                    if let Some(stream) = redis.stream.take() {
                        host::reset_stream(stream);
                    }
                }
                Effect::Done { ticket, result, took_us } => {
                    if result.is_ok() {
                        self.metrics.latency_us(took_us);
                    }
                    done(ticket, result);
                }
                Effect::Page { rule, reply } => {
                    if let Some(command) = self.page(redis, rule, reply, now) {
                        todo.extend(redis.tell(|client, out| {
                            if !client.fetch(rule, command, now.us, out) {
                                out.push(Effect::Page { rule, reply: Err(Failure::Disconnected) });
                            }
                        }));
                    }
                }
                Effect::Connected => {
                    if redis.journal.borrow_mut().back() {
                        log::info!("weir: Redis answers through cluster {}", redis.cluster);
                    }
                    self.metrics.connected(true);
                }
                Effect::Disconnected(failure) => {
                    redis.tell_away(redis.journal.borrow_mut().away(failure, now.us));
                    self.metrics.connected(false);
                }
                Effect::Count(counter) => self.metrics.count(counter),
            }
        }
    }

    /// A page of a rule's live overrides has come. The command that asks for the next one.
    fn page(&self, redis: &Redis, rule: RuleId, reply: Result<Reply, Failure>, now: Now) -> Option<Vec<u8>> {
        let read = redis.overrides.borrow_mut().page(rule, reply, now.us);
        let name = self.limiter.rules.get(rule).map_or("", |rule| rule.name.as_str());
        match read {
            Read::More(command) => return Some(command),
            Read::All(entries) => {
                for bad in self.live_overrides.borrow_mut().replace(&self.limiter.rules, rule, &entries) {
                    self.metrics.override_error();
                    log::warn!("weir: rule {name}: the live override of {} is ignored: {}", bad.subject, bad.fault);
                }
            }
            Read::Failed(Failure::Disconnected) => {}
            Read::Failed(failure) => {
                self.metrics.override_error();
                log::warn!("weir: rule {name}: live overrides can't be read: {failure}");
            }
        }
        redis.tick_within(redis.overrides.borrow().wait_ms(now.us));
        None
    }

    /// A call is settled.
    fn settle(&self, ticket: Ticket, result: CallResult, now: Now) {
        match ticket {
            Ticket::Request { id, part } => {
                if let Some(Live::Waiting(flow)) = self.live.borrow_mut().get_mut(&id)
                    && flow.settle(part, result)
                {
                    self.ready.borrow_mut().push_back(id);
                }
            }
            Ticket::Lease(lease) => self.limiter.settle_lease(lease, result, now),
        }
    }

    /// Answers requests whose turn has come, and asks for another turn where there is more to do.
    fn answer_some(&self, redis: &Redis, now: Now) {
        for _ in 0..AT_ONCE {
            let Some(id) = self.ready.borrow_mut().pop_front() else { break };
            self.answer(id, now);
        }
        self.go_on(redis, now);
    }

    fn go_on(&self, redis: &Redis, now: Now) {
        let reads = || redis.overrides.borrow().is_due(now.us) && redis.client.borrow().can_fetch();
        if !(self.ready.borrow().is_empty() && redis.outbox.borrow().is_empty()) || reads() {
            redis.wake();
        }
    }

    /// Answers a request that has waited, if it is still there.
    fn answer(&self, id: u32, now: Now) {
        let Some(live) = self.live.borrow_mut().remove(&id) else { return };
        if host::set_effective_context(id).is_err() {
            return;
        }
        let next = match live {
            Live::Waiting(flow) => self.carry_out(id, flow.decide(&self.limiter, &self.slots(), now), now),
            Live::Held(_, headers) | Live::Decided(headers) => {
                self.live.borrow_mut().insert(id, Live::Decided(headers));
                Next::GoOn
            }
        };
        if let Next::GoOn = next {
            // It fails only for a request that the host has given up.
            let _ = host::continue_request();
        }
        // The root context is always there.
        let _ = host::set_effective_context(self.id);
    }

    /// Counts and logs a decision, and answers the request if it is to be answered.
    fn carry_out(&self, id: u32, decision: Decision, now: Now) -> Next {
        let Limiter { rules, .. } = &self.limiter;
        // Only Redis holds requests back.
        let delay = self.redis.as_ref().filter(|_| decision.delay_ms > 0);
        let full = delay.is_some_and(|redis| redis.held.borrow().is_full());
        let decision = &if full { decision.without_room() } else { decision };
        for (rule, tally) in &decision.tally {
            self.metrics.tally(*rule, *tally);
        }
        for (name, value) in answer::filter_state(decision, rules) {
            host::set_filter_state(name, value);
        }
        let answer = answer::answer(decision, rules, self.dice.draw());
        let headers = match decision.kind {
            Kind::Allowed => answer::limit_headers(decision, rules),
            Kind::Denied { .. } | Kind::Failed => Vec::new(), // the answer has them
            Kind::Exempt | Kind::Blocked { .. } => Vec::new(),
        };
        self.metrics.before_rules(decision.kind);
        if let (Some(redis), false) = (delay, full) {
            let due_us = now.us.saturating_add(decision.delay_ms.saturating_mul(1000));
            self.live.borrow_mut().insert(id, Live::Held(due_us, headers));
            redis.held.borrow_mut().add(due_us, id);
            redis.tick_within(redis.held.borrow().wait_ms(now.us));
            return Next::Hold;
        }
        self.live.borrow_mut().insert(id, Live::Decided(headers));
        let Some(answer) = answer else { return Next::GoOn };
        // It fails only for a request that the host has given up.
        let _ = host::send_response(&answer);
        Next::Answered
    }

    fn slots(&self) -> Slots<'_> {
        Slots { metrics: &self.metrics }
    }
}
