//! Rules, compiled, and what they ask of a request: [`Rules::plan`].

mod matcher;
mod source;
mod subject;

pub use matcher::{Match, PathMatch};
pub use source::{KeyPart, Source};
pub use subject::{MAX_KEY_BYTES, Subject, redis_key};

use crate::config::{Config, Mode, OnError, OnMissing, RuleConfig};
use crate::limit::Limit;
use crate::request::Request;
use matcher::Facts;

/// The rules of a configuration that are in force.
#[derive(Debug)]
pub struct Rules {
    rules: Vec<Rule>,
}

/// A rule as requests meet it.
#[derive(Debug)]
pub struct Rule {
    /// Its name, unique among the rules.
    pub name: String,
    /// Against what it counts.
    pub limits: Vec<Limit>,
    /// The limits that one Envoy enforces while Redis is away; as many.
    pub local_limits: Vec<Limit>,
    /// What a request takes.
    pub cost: u64,
    /// What becomes of a request when Redis can't say.
    pub on_error: OnError,
    on_missing: OnMissing,
    matches: Match,
    key: Vec<KeyPart>,
}

/// One rule applied to one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The rule's place in [`Rules`].
    pub rule: RuleId,
    /// Who is counted.
    pub subject: Subject,
}

/// A rule's place in [`Rules`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuleId(usize);

/// What the rules ask of a request.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The rules that apply, in the order of the configuration.
    pub checks: Vec<Check>,
    /// The rules whose key the request doesn't have.
    pub missing: Vec<RuleId>,
    /// The first of `missing` that denies such a request.
    pub denied: Option<RuleId>,
}

impl Rules {
    /// Compiles the rules of a configuration; those that are off are left out.
    pub fn new(config: &Config) -> Rules {
        let on = config.rules.iter().filter(|rule| rule.mode != Mode::Off);
        Rules { rules: on.map(Rule::new).collect() }
    }

    /// The rule of a check. `None` for a place that isn't one of these rules.
    pub fn get(&self, id: RuleId) -> Option<&Rule> {
        self.rules.get(id.0)
    }

    /// The rules with their places.
    pub fn iter(&self) -> impl Iterator<Item = (RuleId, &Rule)> {
        self.rules.iter().enumerate().map(|(place, rule)| (RuleId(place), rule))
    }

    /// Which rules apply to a request, and to whom they count it.
    pub fn plan(&self, request: &impl Request) -> Plan {
        let facts = Facts::new(request);
        let mut plan = Plan::default();
        for (id, rule) in self.iter().filter(|(_, rule)| rule.matches.holds(&facts)) {
            match Subject::of(&rule.key, &facts) {
                Some(subject) => plan.checks.push(Check { rule: id, subject }),
                None => {
                    plan.missing.push(id);
                    if rule.on_missing == OnMissing::Deny && plan.denied.is_none() {
                        plan.denied = Some(id);
                    }
                }
            }
        }
        plan
    }
}

impl RuleId {
    /// The place as a number, from 0.
    pub fn place(self) -> usize {
        self.0
    }
}

impl Rule {
    fn new(config: &RuleConfig) -> Rule {
        Rule {
            name: config.name.clone(),
            local_limits: config.limits.iter().map(|limit| shared_out(limit, config.share)).collect(),
            limits: config.limits.clone(),
            cost: config.cost,
            on_error: config.on_error,
            on_missing: config.on_missing,
            matches: config.matches.clone(),
            key: config.key.clone(),
        }
    }
}

/// One Envoy's part of a limit, rounded down, at least 1.
fn shared_out(limit: &Limit, share: f64) -> Limit {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "both in 1..=2^53"
    )]
    let part = |amount: u64| ((amount as f64 * share) as u64).clamp(1, amount);
    limit.shared(part(limit.count()), part(limit.burst())).unwrap_or(*limit)
}

#[cfg(test)]
mod tests;
