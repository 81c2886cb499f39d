//! Limits of single subjects that are kept in Redis, so that they change without a deploy.

use super::limits::{Allowance, allowance};
use super::{RuleId, Rules};
use crate::config;
use std::collections::{HashMap, HashSet};

/// The most live overrides of a rule; what is beyond counts as bad.
pub const MAX_LIVE: usize = 10_000;

/// The live overrides of all rules, as they were last read.
#[derive(Debug, Default)]
pub struct LiveOverrides {
    rules: HashMap<RuleId, Live>,
}

#[derive(Debug, Default)]
struct Live {
    by_subject: HashMap<String, Allowance>,
    /// What has been reported, so that it is once.
    bad: HashSet<(String, String)>,
}

/// A live override that is ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadOverride {
    /// Whose it is.
    pub subject: String,
    /// What is wrong with it.
    pub fault: String,
}

impl LiveOverrides {
    pub(super) fn get(&self, rule: RuleId, subject: &str) -> Option<&Allowance> {
        self.rules.get(&rule)?.by_subject.get(subject)
    }

    /// Puts what was read in the place of what there was, and gives the bad ones that weren't there before.
    pub fn replace(&mut self, rules: &Rules, rule: RuleId, entries: &[(String, String)]) -> Vec<BadOverride> {
        let Some(settings) = rules.get(rule) else { return Vec::new() };
        let live = self.rules.entry(rule).or_default();
        let before = std::mem::take(live);
        let mut news = Vec::new();
        for (place, (subject, text)) in entries.iter().enumerate() {
            let read = match config::limits_text(text, settings.algorithm) {
                Ok(limits) if place < MAX_LIVE => Ok(allowance(&limits, settings.share)),
                Ok(_) => Err(format!("one too many; a rule has at most {MAX_LIVE}")),
                Err(fault) => Err(fault),
            };
            match read {
                Ok(allowance) => {
                    live.by_subject.insert(subject.clone(), allowance);
                }
                Err(fault) => {
                    let seen = (subject.clone(), text.clone());
                    if !before.bad.contains(&seen) {
                        news.push(BadOverride { subject: subject.clone(), fault });
                    }
                    if live.bad.len() < MAX_LIVE {
                        live.bad.insert(seen);
                    }
                }
            }
        }
        news
    }
}
