//! Rules, compiled, and what they ask of a request: [`Rules::plan`].

mod facts;
mod index;
mod limits;
mod live;
mod matcher;
mod metadata;
mod pattern;
mod route;
mod source;
mod subject;

pub use facts::{ClientIp, ForwardedBy};
pub use limits::{LimitSet, Origin};
pub use live::{BadOverride, LiveOverrides, MAX_LIVE};
pub use matcher::{HeaderMatch, HeaderTest, HostMatch, Match, PathMatch, Template};
pub use metadata::message as metadata_message;
pub use pattern::Pattern;
pub use route::{Level, Route, RouteFaults, Routes};
pub use source::{KeyPart, Source};
pub use subject::{MAX_KEY_BYTES, Subject, redis_key};

use crate::config::{Config, Cost, Mode, OnError, OnMissing, Response, RuleConfig, Select};
use crate::leases::Terms;
use crate::limit::Algorithm;
use crate::request::{self, Request};
use facts::Facts;
use index::Index;
use limits::{Allowance, allowance};
use std::collections::HashMap;
use std::net::IpAddr;
use std::rc::Rc;

/// The rules of a configuration that are in force, and which requests none of them sees.
#[derive(Debug)]
pub struct Rules {
    rules: Vec<Rule>,
    index: Index,
    exempt: Vec<Match>,
    block: Vec<(Match, u16)>,
    client_ip: ClientIp,
}

/// A rule as requests meet it.
#[derive(Debug)]
pub struct Rule {
    /// Its name, unique among the rules.
    pub name: String,
    /// What becomes of a request when Redis can't say.
    pub on_error: OnError,
    /// How many requests of a hundred it is enforced on; the others are decided all the same.
    pub enforce_percent: u8,
    /// For how long a denial of Redis's stands for requests of the same kind, in milliseconds; 0: for none.
    pub cache_denials_ms: u64,
    /// How its subjects are leased, if they are.
    pub lease: Option<Terms>,
    /// How often its live overrides are read, in milliseconds; `None`: it has none.
    pub live_every_ms: Option<u64>,
    /// The answer of a request that it denies.
    pub response: Rc<Response>,
    /// The algorithm of limits that don't say.
    pub(crate) algorithm: Algorithm,
    share: f64,
    select: Select,
    matches: Match,
    when: Option<String>,
    key: Vec<KeyPart>,
    limits: Allowance,
    cost: Cost,
    tiers: Option<(KeyPart, HashMap<String, Allowance>)>,
    overrides: HashMap<String, Allowance>,
    on_missing: OnMissing,
}

/// One rule applied to one request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The rule's place in [`Rules`].
    pub rule: RuleId,
    /// Who is counted.
    pub subject: Subject,
    /// What the request takes.
    pub cost: u64,
    /// Against what.
    pub limits: Rc<LimitSet>,
    /// Whose limits these are.
    pub origin: Origin,
    /// Whether its denial counts. Otherwise it is decided and told, and nothing comes of it.
    pub enforced: bool,
}

/// A rule's place in [`Rules`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleId(usize);

/// What a decision depends on beside the request and the rules.
#[derive(Clone, Copy, Debug)]
pub struct Surroundings<'s> {
    /// What holds on the request's route.
    pub route: Option<&'s Route>,
    /// What was last read from Redis.
    pub live: &'s LiveOverrides,
    /// A number drawn for this request, 0..=99: a rule is enforced where it is below its `enforce_percent`.
    pub roll: u8,
}

/// What is to be done with a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Plan {
    /// No rule sees it.
    Exempt,
    /// It is refused.
    Blocked {
        /// The answer's HTTP status.
        status: u16,
    },
    /// Rules are asked.
    Checks(Checks),
}

/// What the rules ask of a request.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Checks {
    /// The rules that apply: those that are enforced, in the order of the configuration, then the others.
    pub checks: Vec<Check>,
    /// The rules whose key the request doesn't have.
    pub missing: Vec<RuleId>,
    /// The first of `missing` that denies such a request.
    pub denied: Option<RuleId>,
    /// Those of `missing` that would deny it if they were enforced.
    pub shadow_denied: Vec<RuleId>,
}

/// What becomes of a request, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// What becomes of it before any rule.
    pub before: Option<Before>,
    /// What each rule makes of it.
    pub findings: Vec<(RuleId, Finding)>,
    /// Whose it is: the whole address.
    pub client: Option<IpAddr>,
}

/// What becomes of a request before any rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Before {
    /// No rule sees it.
    Exempt {
        /// The place in `exempt` of the first condition that holds, from 0.
        place: usize,
    },
    /// It is refused.
    Blocked {
        /// The place in `block` of the first condition that holds, from 0.
        place: usize,
        /// The answer's HTTP status.
        status: u16,
    },
}

/// What a rule makes of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finding {
    /// It applies.
    Applies(Check),
    /// It is for routes that name it, and this one doesn't; or the route names others.
    NotOnRoute,
    /// The route has no rules.
    RouteDisabled,
    /// This condition of its `match` doesn't hold.
    NoMatch(&'static str),
    /// Its `when` doesn't hold.
    NotWhen,
    /// Nothing limits this subject.
    Unlimited(Subject, Origin),
    /// The request lacks the part of its key at this place, from 0.
    Missing(usize),
}

impl Rules {
    /// Compiles the rules of a configuration; those that are off are left out.
    pub fn new(config: &Config) -> Rules {
        let on = config.rules.iter().filter(|rule| rule.mode != Mode::Off);
        let rules: Vec<Rule> = on.map(Rule::new).collect();
        let mut index = Index::default();
        for (place, rule) in rules.iter().enumerate() {
            index.add(place, &rule.matches);
        }
        Rules {
            rules,
            index,
            exempt: config.exempt.clone(),
            block: config.block.clone(),
            client_ip: config.client_ip.clone(),
        }
    }

    /// The rule of a check. `None` for a place that isn't one of these rules.
    pub fn get(&self, id: RuleId) -> Option<&Rule> {
        self.rules.get(id.0)
    }

    /// The rules with their places.
    pub fn iter(&self) -> impl Iterator<Item = (RuleId, &Rule)> {
        self.rules.iter().enumerate().map(|(place, rule)| (RuleId(place), rule))
    }

    /// The rule of that name.
    pub fn named(&self, name: &str) -> Option<RuleId> {
        self.iter().find(|(_, rule)| rule.name == name).map(|(id, _)| id)
    }

    /// Which rules apply to a request, and to whom they count it.
    pub fn plan(&self, request: &impl Request, around: Surroundings<'_>) -> Plan {
        let facts = Facts::new(request, &self.client_ip);
        match self.before(&facts) {
            Some(Before::Blocked { status, .. }) => return Plan::Blocked { status },
            Some(Before::Exempt { .. }) => return Plan::Exempt,
            None => {}
        }
        let mut plan = Checks::default();
        let mut shadow = Vec::new();
        for place in self.index.candidates(|| facts.host(), || facts.path()) {
            let id = RuleId(place);
            let Some(rule) = self.get(id) else { continue };
            match rule.consider(id, &facts, around) {
                Finding::Applies(check) if check.enforced => plan.checks.push(check),
                Finding::Applies(check) => shadow.push(check),
                Finding::Missing(_) => {
                    plan.missing.push(id);
                    match rule.on_missing {
                        OnMissing::Skip => {}
                        OnMissing::Deny if !rule.is_enforced(around) => plan.shadow_denied.push(id),
                        OnMissing::Deny => plan.denied = plan.denied.or(Some(id)),
                    }
                }
                _ => {}
            }
        }
        plan.checks.append(&mut shadow);
        Plan::Checks(plan)
    }

    /// What becomes of a request and why: what each rule makes of it, whether it is looked at or not.
    pub fn explain(&self, request: &impl Request, around: Surroundings<'_>) -> Explanation {
        let facts = Facts::new(request, &self.client_ip);
        Explanation {
            before: self.before(&facts),
            findings: self.iter().map(|(id, rule)| (id, rule.consider(id, &facts, around))).collect(),
            client: facts.address(),
        }
    }

    /// What becomes of a request before any rule.
    fn before<R: Request>(&self, facts: &Facts<'_, R>) -> Option<Before> {
        if let Some((place, (_, status))) = self.block.iter().enumerate().find(|(_, (matches, _))| matches.holds(facts)) {
            return Some(Before::Blocked { place, status: *status });
        }
        self.exempt.iter().position(|matches| matches.holds(facts)).map(|place| Before::Exempt { place })
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
        let compiled = |limits: &std::collections::BTreeMap<String, crate::config::Limits>| {
            limits.iter().map(|(name, limits)| (name.clone(), allowance(limits, config.share))).collect()
        };
        Rule {
            name: config.name.clone(),
            on_error: config.on_error,
            enforce_percent: if config.mode == Mode::Shadow { 0 } else { config.enforce_percent },
            cache_denials_ms: config.cache_denials_ms,
            lease: config.lease,
            live_every_ms: config.live_every_ms,
            response: Rc::clone(&config.response),
            algorithm: config.algorithm,
            share: config.share,
            select: config.select,
            matches: config.matches.clone(),
            when: config.when.clone(),
            key: config.key.clone(),
            limits: allowance(&config.limits, config.share),
            cost: config.cost.clone(),
            tiers: config.tiers.as_ref().map(|tiers| (tiers.by.clone(), compiled(&tiers.values))),
            overrides: compiled(&config.overrides),
            on_missing: config.on_missing,
        }
    }

    fn is_enforced(&self, around: Surroundings<'_>) -> bool {
        around.roll < self.enforce_percent
    }

    fn consider<R: Request>(&self, id: RuleId, facts: &Facts<'_, R>, around: Surroundings<'_>) -> Finding {
        if around.route.is_some_and(|route| route.disabled) {
            return Finding::RouteDisabled;
        }
        let named = around.route.and_then(|route| route.only.as_ref()).map(|only| only.contains(&id));
        if !named.unwrap_or(self.select == Select::Always) {
            return Finding::NotOnRoute;
        }
        if let Some(condition) = self.matches.failing(facts) {
            return Finding::NoMatch(condition);
        }
        if self.when.as_ref().is_some_and(|when| facts.request.evaluate(when).as_deref() != Some(&[1])) {
            return Finding::NotWhen;
        }
        let subject = match Subject::of(&self.key, facts) {
            Ok(subject) => subject,
            Err(place) => return Finding::Missing(place),
        };
        let (limits, origin) = self.limits_of(id, &subject, facts, around);
        let subject = match around.route {
            Some(route) if origin == Origin::Route => route.subject(&subject, facts),
            _ => subject,
        };
        match limits {
            None => Finding::Unlimited(subject, origin),
            Some(limits) => Finding::Applies(Check {
                rule: id,
                subject,
                cost: around.route.and_then(|route| route.cost).unwrap_or_else(|| self.cost_of(facts)),
                limits: Rc::clone(limits),
                origin,
                enforced: self.is_enforced(around),
            }),
        }
    }

    /// The most specific limits there are for a subject.
    fn limits_of<'a, R: Request>(
        &'a self,
        id: RuleId,
        subject: &Subject,
        facts: &Facts<'_, R>,
        around: Surroundings<'a>,
    ) -> (Option<&'a Rc<LimitSet>>, Origin) {
        let tier = || {
            let (by, values) = self.tiers.as_ref()?;
            let value = by.value(facts)?;
            values.get(std::str::from_utf8(&value.bytes).ok()?)
        };
        let live = around.live.get(id, subject.as_str()).map(|limits| (limits, Origin::LiveOverride));
        let (limits, origin) = live
            .or_else(|| Some((self.overrides.get(subject.as_str())?, Origin::Override)))
            .or_else(|| Some((tier()?, Origin::Tier)))
            .or_else(|| Some((around.route?.limits(id)?, Origin::Route)))
            .unwrap_or((&self.limits, Origin::Rule));
        (limits.as_ref(), origin)
    }

    fn cost_of<R: Request>(&self, facts: &Facts<'_, R>) -> u64 {
        match &self.cost {
            Cost::Fixed(cost) => *cost,
            Cost::From { source, default, max } => {
                let given = source.value(facts).and_then(|value| request::integer(&value.bytes));
                given.map_or(*default, |cost| cost.min(*max))
            }
        }
    }
}

#[cfg(test)]
mod tests;
