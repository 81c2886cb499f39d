//! Leases: of a subject that many requests come for, a worker takes several requests' worth in one call, and spends it without asking.
//!
//! All that is spent is charged in Redis before. What this costs is what is charged and not spent in time, and that is bounded: a
//! worker takes no more than came in the `every` before, no more than `max`, no more than a quarter of what is left, and has
//! at most two leases of a subject. A subject that comes less often than [`HOT`] times in `every` is never leased.
//!
//! What is spent later than it was charged must not let in what the limit would not have: a lease ends
//! - with the window, where the limit counts in windows, so that nothing paid for in one is spent in the next;
//! - under a token bucket, before what is held and what is back in the bucket meanwhile could be more than the bucket holds. A
//!   bucket that is nearly full is charged as much more as comes back in that time anyway.
//!
//! So whatever is let in by leases, the limit would have let in at those times (`leases/tests.rs` plays that through).

use crate::limit::{Algorithm, Limit, Outcome, Verdict};
use crate::rules::Check;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher};
use std::rc::Rc;

/// The most subjects in a generation. There are two: the one before is dropped whole when the newer one is full.
pub const GENERATION: usize = 4096;

/// The fewest requests in `every` for which a lease is taken.
pub const HOT: u64 = 4;

/// How a rule's subjects are leased.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The most requests of a lease.
    pub max: u64,
    /// How long a lease lasts, in milliseconds.
    pub every_ms: u64,
}

/// The lease that a call is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseId {
    group: u64,
    serial: u32,
}

/// What there is for a request.
#[derive(Debug, PartialEq, Eq)]
pub struct Met {
    /// The verdicts on it where a lease has paid for it; else Redis is to be asked.
    pub paid: Option<Vec<Verdict>>,
    /// The lease that is to be taken now. It is under way until [`Leases::settle`].
    pub wanted: Option<Wanted>,
}

/// A lease that is to be taken.
#[derive(Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Which.
    pub id: LeaseId,
    /// What is to be charged to each limit of the checks.
    pub costs: Vec<u64>,
}

/// The leases of a worker, and how often it meets their subjects. What is leased together is what one call charges: a group of checks.
#[derive(Debug, Default)]
pub struct Leases {
    young: Generation,
    old: Generation,
    serial: u32,
}

type Generation = HashMap<u64, Group, BuildHasherDefault<AsItIs>>;

#[derive(Debug, Default)]
struct Group {
    /// The current stretch of `every`: when it began, and how many requests came in it and in the one before.
    since_us: u64,
    seen: u64,
    before: u64,
    /// Once it is met often.
    hot: Option<Box<Hot>>,
}

/// What is leased of a group.
#[derive(Debug)]
struct Hot {
    checks: Vec<Check>,
    /// What Redis last said of each limit, when it was asked, and when it answered.
    known: Vec<Verdict>,
    asked_us: u64,
    told_us: u64,
    held: Vec<Lease>,
    under_way: Option<UnderWay>,
    /// No lease is taken before this time.
    not_before_us: u64,
}

/// So many requests, until then.
#[derive(Debug)]
struct Lease {
    requests: u64,
    until_us: u64,
}

#[derive(Debug)]
struct UnderWay {
    serial: u32,
    requests: u64,
    asked_us: u64,
    terms: Terms,
}

impl Terms {
    /// The terms under which two rules can be leased together.
    pub fn and(self, other: Terms) -> Terms {
        Terms { max: self.max.min(other.max), every_ms: self.every_ms.min(other.every_ms) }
    }

    fn every_us(self) -> u64 {
        self.every_ms.saturating_mul(1000)
    }
}

impl Leases {
    /// Meets a request that these checks are for together.
    pub fn meet(&mut self, checks: &[Check], terms: Terms, now_us: u64) -> Met {
        let serial = self.serial.wrapping_add(1);
        let key = key(checks);
        let group = self.group(key);
        group.count(terms, now_us);
        let often = group.seen.max(group.before);
        let Some(hot) = group.hot.as_mut().filter(|hot| hot.is_of(checks)) else {
            if often >= HOT {
                group.hot = Some(Box::new(Hot::new(checks)));
            }
            return Met { paid: None, wanted: None };
        };
        let paid = hot.spend(now_us);
        let next = if often >= HOT { hot.next(often, terms, now_us) } else { None };
        let wanted = next.map(|(requests, costs)| {
            hot.under_way = Some(UnderWay { serial, requests, asked_us: now_us, terms });
            Wanted { id: LeaseId { group: key, serial }, costs }
        });
        if wanted.is_some() {
            self.serial = serial;
        }
        Met { paid, wanted }
    }

    /// Takes what Redis has said of a request that it was asked about.
    pub fn learn(&mut self, checks: &[Check], verdicts: &[Verdict], asked_us: u64, told_us: u64) {
        // A lease is asked for after the request that made it wanted.
        let is_newer = |hot: &Hot| hot.known.is_empty() || asked_us > hot.asked_us;
        if let Some(hot) = self.hot(key(checks)).filter(|hot| hot.is_of(checks) && is_newer(hot)) {
            hot.learn(verdicts, asked_us, told_us);
        }
    }

    /// The call for a lease has come to these verdicts; to none where it failed.
    pub fn settle(&mut self, id: LeaseId, verdicts: &[Verdict], now_us: u64) {
        let Some(hot) = self.hot(id.group) else { return };
        let Some(call) = hot.under_way.take_if(|call| call.serial == id.serial) else { return };
        hot.learn(verdicts, call.asked_us, now_us);
        let until_us = call.asked_us.saturating_add(hot.lasts_us(verdicts, call.requests, call.terms));
        if now_us < until_us {
            hot.held.push(Lease { requests: call.requests, until_us });
        } else {
            hot.not_before_us = now_us.saturating_add(call.terms.every_us());
        }
    }

    /// How many subjects are remembered.
    pub fn len(&self) -> usize {
        self.young.len().saturating_add(self.old.len())
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn group(&mut self, key: u64) -> &mut Group {
        if self.young.len() >= GENERATION && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        let old = &mut self.old;
        self.young.entry(key).or_insert_with(|| old.remove(&key).unwrap_or_default())
    }

    fn hot(&mut self, key: u64) -> Option<&mut Hot> {
        let group = [&mut self.young, &mut self.old].into_iter().find_map(|generation| generation.get_mut(&key))?;
        group.hot.as_deref_mut()
    }
}

impl Group {
    /// Counts a request.
    fn count(&mut self, terms: Terms, now_us: u64) {
        let every_us = terms.every_us();
        let passed_us = now_us.saturating_sub(self.since_us);
        if passed_us >= every_us {
            self.before = if passed_us < every_us.saturating_mul(2) { self.seen } else { 0 };
            (self.seen, self.since_us) = (0, now_us);
        }
        self.seen = self.seen.saturating_add(1);
    }
}

impl Hot {
    fn new(checks: &[Check]) -> Hot {
        Hot {
            checks: checks.to_vec(),
            known: Vec::new(),
            asked_us: 0,
            told_us: 0,
            held: Vec::new(),
            under_way: None,
            not_before_us: 0,
        }
    }

    fn is_of(&self, checks: &[Check]) -> bool {
        let same = |(own, other): (&Check, &Check)| {
            (own.rule, own.cost, &own.subject) == (other.rule, other.cost, &other.subject)
                && Rc::ptr_eq(&own.limits, &other.limits)
        };
        self.checks.len() == checks.len() && self.checks.iter().zip(checks).all(same)
    }

    /// The verdicts on a request that a lease has room for.
    fn spend(&mut self, now_us: u64) -> Option<Vec<Verdict>> {
        self.held.retain(|lease| lease.requests > 0 && now_us < lease.until_us);
        let lease = self.held.first_mut()?;
        lease.requests = lease.requests.saturating_sub(1);
        Some(self.verdicts(now_us))
    }

    fn learn(&mut self, verdicts: &[Verdict], asked_us: u64, told_us: u64) {
        if asked_us >= self.asked_us && !verdicts.is_empty() {
            (self.asked_us, self.told_us) = (asked_us, told_us);
            self.known.clear();
            self.known.extend(verdicts);
        }
    }

    /// The limits with what a request takes of them.
    fn limits(&self) -> impl Iterator<Item = (&Limit, u64)> {
        self.checks.iter().flat_map(|check| check.limits.limits.iter().map(|limit| (limit, check.cost)))
    }

    /// What there is to say of a request that is paid for: as if nobody but this worker had taken anything since it last asked.
    fn verdicts(&self, now_us: u64) -> Vec<Verdict> {
        let held = self.held.iter().map(|lease| lease.requests).fold(0, u64::saturating_add);
        let passed_us = now_us.saturating_sub(self.told_us);
        let verdict = |((_, cost), known): ((&Limit, u64), &Verdict)| Verdict {
            outcome: Outcome::Allowed,
            remaining: known.remaining.saturating_add(held.saturating_mul(cost)),
            reset_ms: known.reset_ms.saturating_mul(1000).saturating_sub(passed_us).div_ceil(1000),
            delay_ms: 0,
        };
        self.limits().zip(&self.known).map(verdict).collect()
    }

    /// How many requests the next lease is for, and what it charges, where it is time for one.
    fn next(&self, often: u64, terms: Terms, now_us: u64) -> Option<(u64, Vec<u64>)> {
        let soon_us = now_us.saturating_add(terms.every_us() / 4);
        let lasting = self.held.iter().filter(|lease| soon_us < lease.until_us).map(|lease| lease.requests);
        let enough = lasting.fold(0, u64::saturating_add) > often.min(terms.max) / 4;
        if enough || self.under_way.is_some() || now_us < self.not_before_us || self.held.len() > 1 || self.known.is_empty()
        {
            return None;
        }
        let limits = || self.limits().zip(&self.known);
        let mut requests = often.min(terms.max);
        for ((limit, cost), known) in limits() {
            if !can_be_leased(limit.algorithm()) || cost == 0 {
                return None;
            }
            let left = self.left_at_most(limit, known, now_us);
            requests = requests.min((left / 4).checked_div(cost)?);
        }
        let cost = |((limit, cost), known): ((&Limit, u64), &Verdict)| {
            let for_free = match limit.algorithm() {
                // As much as would not fit any more when the lease ends.
                Algorithm::TokenBucket => {
                    let back = comes_back(limit, longest_us(limit, terms)).saturating_add(1);
                    self.left_at_most(limit, known, now_us).saturating_add(back).saturating_sub(limit.burst())
                }
                _ => 0,
            };
            requests.saturating_mul(cost).saturating_add(for_free)
        };
        (requests > 1).then(|| (requests, limits().map(cost).collect()))
    }

    /// The most that can be left of a limit now, by what is known of it.
    fn left_at_most(&self, limit: &Limit, known: &Verdict, now_us: u64) -> u64 {
        let back = match limit.algorithm() {
            Algorithm::TokenBucket => comes_back(limit, now_us.saturating_sub(self.asked_us)).saturating_add(1),
            _ => 0,
        };
        known.remaining.saturating_add(back).min(limit.burst())
    }

    /// For how many microseconds after it was asked for a lease can be spent, by the verdicts on its call; 0 where one denies.
    fn lasts_us(&self, verdicts: &[Verdict], requests: u64, terms: Terms) -> u64 {
        if verdicts.is_empty() || verdicts.iter().any(|verdict| verdict.outcome != Outcome::Allowed) {
            return 0;
        }
        let lasts = |((limit, cost), verdict): ((&Limit, u64), &Verdict)| match limit.algorithm() {
            Algorithm::TokenBucket => {
                let held = requests.saturating_mul(cost).saturating_add(1);
                let room = limit.burst().saturating_sub(verdict.remaining).saturating_sub(held);
                let back_us = u128::from(room).saturating_mul(u128::from(limit.window_ms()).saturating_mul(1000));
                let back_us = back_us.checked_div(limit.count().into()).unwrap_or(0);
                u64::try_from(back_us).unwrap_or(u64::MAX)
            }
            // Redis counts milliseconds, and some of the first one may be over.
            Algorithm::FixedWindow => verdict.reset_ms.saturating_sub(1).saturating_mul(1000),
            Algorithm::SlidingWindow => {
                verdict.reset_ms.saturating_sub(limit.window_ms()).saturating_sub(1).saturating_mul(1000)
            }
            Algorithm::SlidingLog | Algorithm::LeakyBucket => 0,
        };
        self.limits().zip(verdicts).map(lasts).min().unwrap_or(0).min(terms.every_us())
    }
}

/// Whether what an algorithm has charged can be spent later: a log would have to know when, and a leaky bucket says when.
pub const fn can_be_leased(algorithm: Algorithm) -> bool {
    matches!(algorithm, Algorithm::TokenBucket | Algorithm::FixedWindow | Algorithm::SlidingWindow)
}

/// What a token bucket gets back in so many microseconds, rounded up.
fn comes_back(limit: &Limit, us: u64) -> u64 {
    let window_us = u128::from(limit.window_ms()).saturating_mul(1000);
    let back = u128::from(limit.count()).saturating_mul(us.into()).div_ceil(window_us.max(1));
    u64::try_from(back).unwrap_or(u64::MAX)
}

/// How long a lease of a token bucket is meant to last, in microseconds: not until half the bucket is back.
fn longest_us(limit: &Limit, terms: Terms) -> u64 {
    let half = u128::from(limit.burst()).saturating_mul(u128::from(limit.window_ms()).saturating_mul(500));
    let half = half.checked_div(limit.count().into()).unwrap_or(0);
    u64::try_from(half).unwrap_or(u64::MAX).min(terms.every_us())
}

/// The key of a group. Groups with the same one are told apart by [`Hot::is_of`].
fn key(checks: &[Check]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for check in checks {
        (check.rule, check.cost, Rc::as_ptr(&check.limits)).hash(&mut hasher);
        check.subject.hash(&mut hasher);
    }
    hasher.finish()
}

/// A hasher for what is a hash.
#[derive(Debug, Default)]
struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

#[cfg(test)]
mod tests;
