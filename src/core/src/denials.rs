//! What Redis has denied and would go on to deny, so that a client that doesn't wait costs no call for each of its requests.
//!
//! A denial with a wait holds until the wait is over, whatever happens to the limit meanwhile, for a request of the same cost under the
//! same limits: charges make it no shorter. So what is kept is exact, but for one who empties a bucket by hand, and a denial is kept
//! for a while only. In the middle of that while one request goes to Redis all the same: its answer takes the place of what is
//! kept, so that a client at full speed is asked about twice in that time and not more.

use crate::limit::{Outcome, Verdict};
use crate::rules::{Check, LimitSet, RuleId, Subject};
use std::collections::HashMap;
use std::rc::Rc;

/// The most denials in a generation. There are two: the one before is dropped whole when the newer one is full.
pub const GENERATION: usize = 4096;

/// The denials that a worker keeps.
#[derive(Debug, Default)]
pub struct Denials {
    young: Generation,
    old: Generation,
}

/// However somebody chooses subjects to make it slow, there are no more than [`GENERATION`].
type Generation = HashMap<Key, Denial>;

/// What a denial is of.
type Key = (RuleId, u64, Subject);

#[derive(Debug)]
struct Denial {
    limits: Rc<LimitSet>,
    verdicts: Vec<Verdict>,
    /// When Redis was asked, and when its answer came. Its wait began between the two.
    asked_us: u64,
    told_us: u64,
    /// It denies before this time.
    until_us: u64,
    /// From this time on a request goes to Redis, the first one alone.
    again_us: u64,
}

impl Denials {
    /// The verdicts on a check that would be denied, as they are now. `None`: Redis is to be asked.
    pub fn find(&mut self, check: &Check, now_us: u64) -> Option<Vec<Verdict>> {
        let key = key(check);
        let denial = [&mut self.young, &mut self.old].into_iter().find_map(|generation| generation.get_mut(&key))?;
        if now_us >= denial.until_us || !Rc::ptr_eq(&denial.limits, &check.limits) {
            return None;
        }
        if now_us >= denial.again_us {
            denial.again_us = u64::MAX;
            return None;
        }
        Some(denial.now(now_us))
    }

    /// Takes what Redis has answered: a denial is kept for `keep_us` since it was asked for, what is allowed ends an older denial.
    pub fn learn(&mut self, check: &Check, verdicts: &[Verdict], asked_us: u64, told_us: u64, keep_us: u64) {
        let waits = verdicts.iter().filter_map(|verdict| match verdict.outcome {
            Outcome::Allowed => None,
            Outcome::Denied { retry_ms } => Some(retry_ms.saturating_mul(1000)),
            Outcome::NeverPasses => Some(u64::MAX),
        });
        let wait_us = waits.max().filter(|_| keep_us > 0);
        if wait_us.is_none() && self.is_empty() {
            return;
        }
        let key = key(check);
        for generation in [&mut self.young, &mut self.old] {
            match generation.get(&key) {
                Some(denial) if denial.asked_us > asked_us => return,
                Some(_) => drop(generation.remove(&key)),
                None => {}
            }
        }
        let Some(wait_us) = wait_us else { return };
        if self.young.len() >= GENERATION {
            self.old = std::mem::take(&mut self.young);
        }
        let denial = Denial {
            limits: Rc::clone(&check.limits),
            verdicts: verdicts.to_vec(),
            asked_us,
            told_us,
            until_us: asked_us.saturating_add(wait_us.min(keep_us)),
            again_us: asked_us.saturating_add(keep_us / 2),
        };
        self.young.insert(key, denial);
    }

    /// How many are kept.
    pub fn len(&self) -> usize {
        self.young.len().saturating_add(self.old.len())
    }

    /// Whether none is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn key(check: &Check) -> Key {
    (check.rule, check.cost, check.subject.clone())
}

impl Denial {
    /// What Redis would say now. A wait counts from when the answer came, so that nobody comes back too early.
    fn now(&self, now_us: u64) -> Vec<Verdict> {
        let passed_us = now_us.saturating_sub(self.told_us);
        let left = |ms: u64| ms.saturating_mul(1000).saturating_sub(passed_us).div_ceil(1000);
        let aged = |verdict: &Verdict| {
            let outcome = match verdict.outcome {
                Outcome::Denied { retry_ms } if left(retry_ms) > 0 => Outcome::Denied { retry_ms: left(retry_ms) },
                Outcome::Denied { .. } | Outcome::Allowed => Outcome::Allowed,
                Outcome::NeverPasses => Outcome::NeverPasses,
            };
            Verdict { outcome, reset_ms: left(verdict.reset_ms), ..*verdict }
        };
        self.verdicts.iter().map(aged).collect()
    }
}

#[cfg(test)]
mod tests;
