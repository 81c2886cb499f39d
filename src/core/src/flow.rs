//! The way of one request: [`Plan`] → calls of the store, or buckets of this proxy → [`Decision`].
//!
//! No I/O: the calls go out and their results come in through whoever holds the [`Flow`]. What becomes of a request when the
//! store fails is settled here, in [`Flow::decide`], and nowhere else.

use crate::config::{Config, OnError, Scope, Store};
use crate::denials::Denials;
use crate::leases::{LeaseId, Leases, Met, Terms, Wanted};
use crate::limit::{Limit, Outcome, Verdict};
use crate::local::{self, Charge, SharedData, Unavailable};
use crate::rules::{Check, Checks, Plan, Rule, RuleId, Rules, redis_key};
use crate::store::{Call, Failure, LimitCall, Ticket};
use std::cell::RefCell;

/// A configuration, ready to decide.
#[derive(Debug)]
pub struct Limiter {
    /// The rules in force.
    pub rules: Rules,
    /// Redis, where there is one.
    pub store: Option<Store>,
    denials: RefCell<Denials>,
    leases: RefCell<Leases>,
    /// Calls for leases that are to go out.
    fetches: RefCell<Vec<(Ticket, Call)>>,
}

/// A moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Now {
    /// Milliseconds since 1970, the same for all workers of the proxy. They can step back.
    pub wall_ms: u64,
    /// Microseconds that never step back, for timeouts and waits.
    pub us: u64,
}

/// What happens next to a request.
#[derive(Debug)]
pub enum Step {
    /// No rule applies to it.
    Continue,
    /// It waits for these calls, whose results go to [`Flow::settle`] by their parts.
    Ask(Flow, Vec<(u16, Call)>),
    /// It is decided.
    Decide(Decision),
}

/// A request that waits for the store.
#[derive(Debug)]
pub struct Flow {
    checks: Vec<Check>,
    /// In the order of the checks.
    parts: Vec<Part>,
    /// Rules that would deny the request if they were enforced: it lacks their keys.
    shadow_denied: Vec<RuleId>,
    asked_us: u64,
}

/// Checks that are charged together, by one call.
#[derive(Debug)]
struct Part {
    checks: usize,
    /// `None` until it is settled.
    result: Option<CallResult>,
    /// A lease has paid for it, and it isn't asked about.
    leased: bool,
}

/// A verdict for each of a call's limits, or why there is none.
pub type CallResult = Result<Vec<Verdict>, Failure>;

/// What becomes of a request, and all there is to tell about it.
#[derive(Debug, PartialEq, Eq)]
pub struct Decision {
    /// What becomes of it.
    pub kind: Kind,
    /// Who decided; `None` where the store failed and the rule says `allow` or `deny`.
    pub source: Option<Source>,
    /// The rule that binds: the denying one, or the one with the least remaining.
    pub rule: Option<RuleId>,
    /// Whom that rule counts.
    pub subject: Option<String>,
    /// What is left of the limit that binds.
    pub quota: Option<Quota>,
    /// Whether a rule would have denied it that isn't enforced on it; then that rule is the one that is told.
    pub shadow_denied: bool,
    /// For how many milliseconds a request that goes on is to be held back before.
    pub delay_ms: u64,
    /// What is to be counted.
    pub tally: Vec<(RuleId, Tally)>,
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It goes on.
    Allowed,
    /// It is denied. The wait after which it would be let in, in milliseconds; `None` where no wait helps.
    Denied {
        /// The longest wait of the limits that deny.
        retry_ms: Option<u64>,
    },
    /// No rule sees it.
    Exempt,
    /// It is refused before any rule, with this status.
    Blocked {
        /// HTTP status, 400..=599.
        status: u16,
    },
    /// The store failed, and the rule says that nothing passes then.
    Failed,
}

/// Who decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Redis.
    Redis,
    /// A bucket of this proxy.
    Local,
    /// What Redis said of an earlier request.
    DenialCache,
    /// What Redis was paid ahead.
    Lease,
}

/// What is left of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// The limit.
    pub limit: Limit,
    /// What is left of it, rounded down, at most its burst.
    pub remaining: u64,
    /// Milliseconds until all of it is there again.
    pub reset_ms: u64,
}

/// What is counted of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tally {
    /// Let in, by whomever.
    Allowed,
    /// Denied, by whomever.
    Denied,
    /// Would have been denied, were the rule enforced.
    ShadowDenied,
    /// Let in with less than a fifth left.
    NearLimit,
    /// The store failed.
    Error,
    /// Let in by a bucket of this proxy.
    LocalAllowed,
    /// Denied by a bucket of this proxy.
    LocalDenied,
    /// Let in, and held back before.
    Delayed,
    /// Denied by what Redis said of an earlier request.
    CacheDenied,
    /// Let in by what Redis was paid ahead.
    LeaseAllowed,
}

impl Limiter {
    /// Compiles a configuration.
    pub fn new(config: Config) -> Limiter {
        Limiter {
            rules: Rules::new(&config),
            store: config.store,
            denials: RefCell::default(),
            leases: RefCell::default(),
            fetches: RefCell::default(),
        }
    }

    /// The first step of a request.
    pub fn begin(&self, plan: Plan, data: &impl SharedData, now: Now) -> Step {
        let Checks { checks, denied, shadow_denied, .. } = match plan {
            Plan::Exempt => return Step::Decide(Decision::of(Kind::Exempt)),
            Plan::Blocked { status } => return Step::Decide(Decision::of(Kind::Blocked { status })),
            Plan::Checks(plan) => plan,
        };
        if let Some(rule) = denied {
            let kind = Kind::Denied { retry_ms: None };
            return Step::Decide(Decision { rule: Some(rule), tally: vec![(rule, Tally::Denied)], ..Decision::of(kind) });
        }
        if checks.is_empty() && shadow_denied.is_empty() {
            return Step::Continue;
        }
        let Some(store) = &self.store else {
            let (enforced, shadow) = self.judge(&checks).partition(|judged: &Judged<'_>| judged.check.enforced);
            let decide = |checks: Vec<Judged<'_>>| decide_locally(checks, Vec::new(), data, now.wall_ms);
            return Step::Decide(combined(enforced, shadow, &shadow_denied, decide));
        };
        let parts = self.parts(store, &checks, now);
        if let Some(decision) = self.denied_before(&checks, &parts, now) {
            return Step::Decide(decision);
        }
        let asked = (0..).zip(by_part(&checks, &parts)).filter(|(_, (part, _))| !part.leased);
        let calls: Vec<_> = asked.map(|(place, (_, checks))| (place, self.call(store, checks, None))).collect();
        let flow = Flow { checks, parts, shadow_denied, asked_us: now.us };
        if calls.is_empty() { Step::Decide(flow.decide(self, data, now)) } else { Step::Ask(flow, calls) }
    }

    /// The calls for leases that [`Limiter::begin`] wants made. What they come to goes to [`Limiter::settle_lease`].
    pub fn fetches(&self) -> Vec<(Ticket, Call)> {
        self.fetches.take()
    }

    /// Takes the result of a call for a lease.
    pub fn settle_lease(&self, lease: LeaseId, result: CallResult, now: Now) {
        self.leases.borrow_mut().settle(lease, &result.unwrap_or_default(), now.us);
    }

    /// Which checks are charged together, and what is paid for already.
    fn parts(&self, store: &Store, checks: &[Check], now: Now) -> Vec<Part> {
        // A rule that isn't enforced has a call of its own: what it denies is charged to the others all the same.
        let together = match store.scope {
            Scope::Request => checks.iter().filter(|check| check.enforced).count(),
            Scope::Rule => 0,
        };
        let alone = checks.len().saturating_sub(together);
        let sizes = Some(together).filter(|count| *count > 0).into_iter().chain(std::iter::repeat_n(1, alone));
        let mut parts: Vec<Part> = sizes.map(|checks| Part { checks, result: None, leased: false }).collect();
        let mut rest = checks;
        for part in &mut parts {
            let (these, after) = rest.split_at_checked(part.checks).unwrap_or((rest, &[]));
            rest = after;
            let Some(terms) = self.terms(these) else { continue };
            let Met { paid, wanted } = self.leases.borrow_mut().meet(these, terms, now.us);
            (part.leased, part.result) = (paid.is_some(), paid.map(Ok));
            if let Some(Wanted { id, costs }) = wanted {
                self.fetches.borrow_mut().push((Ticket::Lease(id), self.call(store, these, Some(&costs))));
            }
        }
        parts
    }

    /// The terms on which checks are leased together, if each of their rules has some.
    fn terms(&self, checks: &[Check]) -> Option<Terms> {
        let mut terms = checks.iter().map(|check| self.rules.get(check.rule)?.lease);
        let first = terms.next()??;
        terms.try_fold(first, |terms, other| Some(terms.and(other?)))
    }

    /// The denial of a request of which Redis has denied the like. No rule is charged for it, and none that isn't enforced sees it.
    fn denied_before(&self, checks: &[Check], parts: &[Part], now: Now) -> Option<Decision> {
        let mut denials = self.denials.borrow_mut();
        if denials.is_empty() {
            return None;
        }
        let asked = by_part(checks, parts).filter(|(part, _)| !part.leased).flat_map(|(_, checks)| self.judge(checks));
        let enforced = asked.filter(|judged| judged.check.enforced && judged.rule.cache_denials_ms > 0);
        let denying = enforced.filter_map(|judged| {
            let verdicts = denials.find(judged.check, now.us)?;
            Some(Judged { verdicts, source: Source::DenialCache, ..judged })
        });
        let denying: Vec<Judged<'_>> = denying.collect();
        let tally = denying.iter().map(|judged| (judged.check.rule, Tally::CacheDenied)).collect();
        (!denying.is_empty()).then(|| denied(&denying, tally))
    }

    /// Keeps in mind what Redis has denied.
    fn learn(&self, judged: &Judged<'_>, verdicts: &[Verdict], asked_us: u64, now: Now) {
        let keep_us = judged.rule.cache_denials_ms.saturating_mul(1000);
        self.denials.borrow_mut().learn(judged.check, verdicts, asked_us, now.us, keep_us);
    }

    /// The call that charges these checks what they cost, or these costs, by limit.
    fn call(&self, store: &Store, checks: &[Check], costs: Option<&[u64]>) -> Call {
        let mut limits: Vec<LimitCall<'_>> = Vec::new();
        for Judged { check, rule, .. } in self.judge(checks) {
            for limit in &check.limits.limits {
                let mut key = Vec::with_capacity(64);
                redis_key(&mut key, &store.key_prefix, &rule.name, &check.subject, limit);
                let cost = costs.and_then(|costs| costs.get(limits.len()).copied()).unwrap_or(check.cost);
                limits.push(LimitCall { key, limit, cost });
            }
        }
        Call::new(&limits)
    }

    /// The checks with their rules, not judged yet.
    fn judge<'a>(&'a self, checks: &'a [Check]) -> impl Iterator<Item = Judged<'a>> {
        checks.iter().filter_map(|check| {
            let rule = self.rules.get(check.rule)?;
            Some(Judged { check, rule, source: Source::Redis, verdicts: Vec::new() })
        })
    }
}

impl Flow {
    /// Takes the result of a call; whether it was the last one. A second result for a call is ignored.
    pub fn settle(&mut self, part: u16, result: CallResult) -> bool {
        if let Some(Part { result: place @ None, .. }) = self.parts.get_mut(usize::from(part)) {
            *place = Some(result);
        }
        self.parts.iter().all(|part| part.result.is_some())
    }

    /// The decision, once all calls are settled; one that isn't counts as failed.
    pub fn decide(self, limiter: &Limiter, data: &impl SharedData, now: Now) -> Decision {
        let Flow { checks, parts, shadow_denied, asked_us } = self;
        for (part, checks) in by_part(&checks, &parts) {
            if let (false, Some(Ok(verdicts))) = (part.leased, &part.result)
                && limiter.terms(checks).is_some()
            {
                limiter.leases.borrow_mut().learn(checks, verdicts, asked_us, now.us);
            }
        }
        let mut results = shared_out(&checks, parts).into_iter();
        let judged = limiter.judge(&checks).map(|judged| {
            let (source, result) = results.next().unwrap_or((Source::Redis, Err(Failure::Disconnected)));
            (Judged { source, ..judged }, result)
        });
        let (enforced, shadow): (Vec<_>, Vec<_>) = judged.partition(|(judged, _)| judged.check.enforced);
        for (judged, result) in &enforced {
            if let (Source::Redis, Ok(verdicts)) = (judged.source, result) {
                limiter.learn(judged, verdicts, asked_us, now);
            }
        }
        combined(enforced, shadow, &shadow_denied, |checks| settled(checks, data, now.wall_ms))
    }
}

/// The parts with their checks.
fn by_part<'a>(checks: &'a [Check], parts: &'a [Part]) -> impl Iterator<Item = (&'a Part, &'a [Check])> {
    let mut rest = checks;
    parts.iter().map(move |part| {
        let (these, after) = rest.split_at_checked(part.checks).unwrap_or((rest, &[]));
        rest = after;
        (part, these)
    })
}

/// The decision of the checks that are enforced, and beside it what each of the others would have come to.
fn combined<T>(enforced: Vec<T>, shadow: Vec<T>, missing: &[RuleId], decide: impl Fn(Vec<T>) -> Decision) -> Decision {
    let mut decision = if enforced.is_empty() { Decision::of(Kind::Allowed) } else { decide(enforced) };
    for check in shadow {
        decision.beside(decide(vec![check]));
    }
    for rule in missing {
        let tally = vec![(*rule, Tally::Denied)];
        decision.beside(Decision { rule: Some(*rule), tally, ..Decision::of(Kind::Denied { retry_ms: None }) });
    }
    decision
}

/// What checks come to, each with what the store said of it.
fn settled(checks: Vec<(Judged<'_>, CallResult)>, data: &impl SharedData, now_ms: u64) -> Decision {
    let (mut answered, mut failed) = (Vec::new(), Vec::new());
    for (judged, result) in checks {
        match result {
            Ok(verdicts) => answered.push(Judged { verdicts, ..judged }),
            Err(_) => failed.push(judged),
        }
    }
    let errors = failed.iter().map(|judged| (judged.check.rule, Tally::Error)).collect();
    if let Some(judged) = failed.iter().find(|judged| judged.rule.on_error == OnError::Deny) {
        return judged.decision(Kind::Failed, None, None, errors);
    }
    // A clean denial stands, whatever the rules with failures would say, and charges nothing here.
    if answered.iter().any(Judged::denies) {
        return denied(&answered, errors);
    }
    let (by_bucket, let_in): (Vec<_>, Vec<_>) =
        failed.into_iter().partition(|judged| judged.rule.on_error == OnError::Local);
    let mut tally: Vec<_> = errors;
    tally.extend(let_in.iter().map(|judged| (judged.check.rule, Tally::Allowed)));
    if by_bucket.is_empty() {
        return held_back(allowed(&answered, &let_in, tally), &answered);
    }
    tally.extend(answered.iter().flat_map(Judged::admissions));
    held_back(decide_locally(by_bucket, tally, data, now_ms), &answered)
}

impl Decision {
    /// A decision with nothing to tell but what it is.
    fn of(kind: Kind) -> Decision {
        Decision {
            kind,
            source: None,
            rule: None,
            subject: None,
            quota: None,
            shadow_denied: false,
            delay_ms: 0,
            tally: Vec::new(),
        }
    }

    /// Adds what a rule that isn't enforced would have made of the request.
    fn beside(&mut self, shadow: Decision) {
        let told = shadow.tally.into_iter().filter(|(_, tally)| *tally != Tally::Delayed);
        self.tally
            .extend(told.map(|(rule, tally)| (rule, if tally == Tally::Denied { Tally::ShadowDenied } else { tally })));
        let denies = matches!(shadow.kind, Kind::Denied { .. }) && self.kind == Kind::Allowed && !self.shadow_denied;
        if denies || self.rule.is_none() {
            (self.rule, self.subject, self.source) = (shadow.rule, shadow.subject, shadow.source);
        }
        self.shadow_denied |= denies;
    }

    /// What becomes of a request that was to be held back where no more can be: it is denied. It has been charged, but to let
    /// it go on at once would be what the limit is there to prevent.
    pub fn without_room(self) -> Decision {
        let tally = self.tally.into_iter().filter_map(|(rule, tally)| match tally {
            Tally::Error => Some((rule, Tally::Error)),
            Tally::Delayed => Some((rule, Tally::Denied)),
            _ => None,
        });
        let kind = Kind::Denied { retry_ms: Some(self.delay_ms) };
        Decision { kind, delay_ms: 0, tally: tally.collect(), ..self }
    }
}

/// A decision that lets a request in, with the longest delay of its checks.
fn held_back(mut decision: Decision, answered: &[Judged<'_>]) -> Decision {
    if decision.kind == Kind::Allowed {
        for judged in answered {
            let delay_ms = judged.verdicts.iter().map(|verdict| verdict.delay_ms).max().unwrap_or(0);
            if delay_ms > 0 {
                decision.delay_ms = decision.delay_ms.max(delay_ms);
                decision.tally.push((judged.check.rule, Tally::Delayed));
            }
        }
    }
    decision
}

/// A check, its rule, and a verdict for each of the rule's limits once there are any.
#[derive(Debug)]
struct Judged<'a> {
    check: &'a Check,
    rule: &'a Rule,
    /// Who gives the verdicts.
    source: Source,
    verdicts: Vec<Verdict>,
}

impl Judged<'_> {
    fn denies(&self) -> bool {
        self.verdicts.iter().any(|verdict| verdict.outcome != Outcome::Allowed)
    }

    /// The verdicts with their limits.
    fn limits(&self) -> impl Iterator<Item = (&Limit, &Verdict)> {
        let limits = match self.source {
            Source::Redis | Source::DenialCache | Source::Lease => &self.check.limits.limits,
            Source::Local => &self.check.limits.local,
        };
        limits.iter().zip(&self.verdicts)
    }

    /// What to count of a check that was let in.
    fn admissions(&self) -> Vec<(RuleId, Tally)> {
        let near = |(limit, verdict): (&Limit, &Verdict)| verdict.remaining.saturating_mul(5) < limit.burst();
        let mut tally = vec![(self.check.rule, Tally::Allowed)];
        if self.limits().any(near) {
            tally.push((self.check.rule, Tally::NearLimit));
        }
        if self.source == Source::Lease {
            tally.push((self.check.rule, Tally::LeaseAllowed));
        }
        tally
    }

    fn decision(&self, kind: Kind, source: Option<Source>, quota: Option<Quota>, tally: Vec<(RuleId, Tally)>) -> Decision {
        let subject = Some(self.check.subject.as_str().to_owned());
        Decision { source, rule: Some(self.check.rule), subject, quota, tally, ..Decision::of(kind) }
    }
}

/// The results of calls, as one for each check, and who gave it.
fn shared_out(checks: &[Check], parts: Vec<Part>) -> Vec<(Source, CallResult)> {
    let mut checks = checks.iter();
    let mut shared = Vec::with_capacity(checks.len());
    for Part { checks: covered, result, leased } in parts {
        let limits = checks.by_ref().take(covered).map(|check| check.limits.limits.len());
        let source = if leased { Source::Lease } else { Source::Redis };
        match result.unwrap_or(Err(Failure::Disconnected)) {
            Ok(verdicts) => {
                let mut verdicts = verdicts.into_iter();
                shared.extend(limits.map(|count| (source, Ok(verdicts.by_ref().take(count).collect()))));
            }
            Err(failure) => shared.extend(limits.map(|_| (source, Err(failure.clone())))),
        }
    }
    shared
}

/// Checks that the buckets of this proxy decide; `tally` is what others have to count already.
fn decide_locally(
    mut checks: Vec<Judged<'_>>,
    mut tally: Vec<(RuleId, Tally)>,
    data: &impl SharedData,
    now_ms: u64,
) -> Decision {
    let charges: Vec<Charge<'_>> = checks
        .iter()
        .flat_map(|judged| {
            let Judged { check, rule, .. } = *judged;
            check.limits.local.iter().map(|limit| Charge::new(&rule.name, &check.subject, limit, check.cost))
        })
        .collect();
    match local::charge_all(data, &charges, now_ms) {
        Ok(verdicts) => {
            let mut verdicts = verdicts.into_iter();
            for judged in &mut checks {
                judged.source = Source::Local;
                judged.verdicts = verdicts.by_ref().take(judged.check.limits.local.len()).collect();
            }
        }
        // There is nobody left to ask, and a proxy without shared data can't be told from one without limits.
        Err(Unavailable) => {
            tally.extend(checks.iter().flat_map(|judged| [Tally::Error, Tally::Allowed].map(|t| (judged.check.rule, t))));
            return allowed(&[], &checks, tally);
        }
    }
    if checks.iter().any(Judged::denies) {
        tally.retain(|(_, tally)| *tally == Tally::Error); // nobody is let in after all
        tally.extend(checks.iter().filter(|j| j.denies()).map(|j| (j.check.rule, Tally::LocalDenied)));
        return denied(&checks, tally);
    }
    tally.extend(checks.iter().map(|judged| (judged.check.rule, Tally::LocalAllowed)));
    allowed(&checks, &[], tally)
}

fn denied(checks: &[Judged<'_>], mut tally: Vec<(RuleId, Tally)>) -> Decision {
    let denying = || checks.iter().filter(|judged| judged.denies());
    tally.extend(denying().map(|judged| (judged.check.rule, Tally::Denied)));
    let mut retry_ms = Some(0);
    for verdict in denying().flat_map(|judged| &judged.verdicts) {
        retry_ms = match verdict.outcome {
            Outcome::Allowed => retry_ms,
            Outcome::Denied { retry_ms: wait } => retry_ms.map(|longest| longest.max(wait)),
            Outcome::NeverPasses => None,
        };
    }
    let binding = denying().flat_map(|judged| judged.limits().map(move |(limit, verdict)| (judged, limit, verdict)));
    let binding = binding.filter(|(_, _, verdict)| verdict.outcome != Outcome::Allowed);
    bound(binding, Kind::Denied { retry_ms }, tally)
}

/// All are let in: `decided` by verdicts, `let_in` by their rules' `on_error`.
fn allowed(decided: &[Judged<'_>], let_in: &[Judged<'_>], mut tally: Vec<(RuleId, Tally)>) -> Decision {
    tally.extend(decided.iter().flat_map(Judged::admissions));
    if let ([], [judged, ..]) = (decided, let_in) {
        return judged.decision(Kind::Allowed, None, None, tally);
    }
    let binding = decided.iter().flat_map(|judged| judged.limits().map(move |(limit, verdict)| (judged, limit, verdict)));
    bound(binding, Kind::Allowed, tally)
}

/// The decision of the limit with the least remaining.
fn bound<'a>(
    limits: impl Iterator<Item = (&'a Judged<'a>, &'a Limit, &'a Verdict)>,
    kind: Kind,
    tally: Vec<(RuleId, Tally)>,
) -> Decision {
    match limits.min_by_key(|(_, _, verdict)| verdict.remaining) {
        Some((judged, limit, verdict)) => {
            let Verdict { remaining, reset_ms, .. } = *verdict;
            // A reply can't leave more than there can be.
            let quota = Quota { limit: *limit, remaining: remaining.min(limit.burst()), reset_ms };
            judged.decision(kind, Some(judged.source), Some(quota), tally)
        }
        None => Decision { tally, ..Decision::of(kind) },
    }
}

#[cfg(test)]
mod tests;
