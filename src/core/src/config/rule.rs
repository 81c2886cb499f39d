//! The field `rules`.

use super::conditions::matches;
use super::limits::{algorithm, limits};
use super::reader::{Item, Reader};
use super::response::response;
use super::sources::{key, key_part, predicate};
use super::{Cost, Limits, Mode, OnError, OnMissing, Response, RuleConfig, Select, Tiers};
use crate::leases::{Terms, can_be_leased};
use crate::limit::Algorithm;
use crate::rules::{Match, Subject};
use std::collections::BTreeMap;
use std::rc::Rc;

/// The most rules of a configuration.
pub const MAX_RULES: usize = 1000;
/// The greatest cost.
pub const MAX_COST: u64 = 1 << 31;
/// The longest time for which a denial stands.
const MAX_CACHE_DENIALS_MS: u64 = 60_000;
/// The most tiers of a rule.
const MAX_TIERS: usize = 100;
/// The most overrides of a rule.
const MAX_OVERRIDES: usize = 10_000;

/// The most requests of a lease.
const MAX_LEASE: u64 = 10_000;
/// The longest that a lease lasts.
const MAX_LEASE_MS: u64 = 5_000;

const FIELDS: [&str; 19] = [
    "name",
    "select",
    "match",
    "when",
    "key",
    "limits",
    "algorithm",
    "cost",
    "tiers",
    "overrides",
    "live_overrides",
    "on_missing",
    "on_error",
    "local",
    "mode",
    "enforce_percent",
    "cache_denials",
    "lease",
    "response",
];

pub(super) fn rules(r: &mut Reader, item: &Item<'_>, usual: &Rc<Response>) -> Option<Vec<RuleConfig>> {
    let items = r.list(item, MAX_RULES, "rules, such as [{\"name\":\"all\",\"key\":[\"ip\"],\"limits\":[\"10/s\"]}]")?;
    let mut names: Vec<&str> = Vec::new();
    let mut rules = Vec::new();
    for item in &items {
        let rule = rule(r, item, usual);
        if let Some(name) = item.value.get("name").and_then(serde_json::Value::as_str) {
            if names.contains(&name) {
                let message = format!("an earlier rule is named \"{name}\" too; names are unique");
                r.fault::<()>(item.field("name").as_ref().unwrap_or(item), message);
            }
            names.push(name);
        }
        rules.push(rule);
    }
    rules.into_iter().collect()
}

fn rule(r: &mut Reader, item: &Item<'_>, usual: &Rc<Response>) -> Option<RuleConfig> {
    let o = r.object(item, &FIELDS)?;
    let name = match o.get("name") {
        Some(item) => rule_name(r, &item),
        None => r.missing(&o, "name", "1 to 64 of a-z, 0-9, _ and - are wanted"),
    };
    let choices = [("always", Select::Always), ("route", Select::Route)];
    let select = o.get("select").map_or(Some(Select::Always), |item| r.choice(&item, &choices));
    let matches = o.get("match").map_or_else(|| Some(Match::default()), |item| matches(r, &item));
    let when = o.get("when").map(|item| predicate(r, &item));
    let key = match o.get("key") {
        Some(item) => key(r, &item),
        None => r.missing(&o, "key", "a list of 1 to 8 key parts is wanted, such as [\"ip\"]"),
    };
    let named = o.get("algorithm").map_or(Some(Algorithm::TokenBucket), |item| algorithm(r, &item));
    let algorithm = named.unwrap_or(Algorithm::TokenBucket);
    let limits = match o.get("limits") {
        Some(item) => limits(r, &item, algorithm),
        None => r.missing(&o, "limits", "a list of 1 to 8 limits is wanted, such as [\"10/s\"]"),
    };
    let cost = o.get("cost").map_or(Some(Cost::Fixed(1)), |item| cost(r, &item));
    let tiers = o.get("tiers").map(|item| tiers(r, &item, algorithm));
    let overrides = o.get("overrides").map_or_else(|| Some(BTreeMap::new()), |item| overrides(r, &item, algorithm));
    let live = o.get("live_overrides").map(|item| live_overrides(r, &item));
    let choices = [("skip", OnMissing::Skip), ("deny", OnMissing::Deny)];
    let on_missing = o.get("on_missing").map_or(Some(OnMissing::Skip), |item| r.choice(&item, &choices));
    let choices = [("local", OnError::Local), ("allow", OnError::Allow), ("deny", OnError::Deny)];
    let on_error = o.get("on_error").map_or(Some(OnError::Local), |item| r.choice(&item, &choices));
    let share = o.get("local").map_or(Some(1.0), |item| local_share(r, &item));
    let mode = o.get("mode").map_or(Some(Mode::Enforce), |item| mode(r, &item));
    let percent = o.get("enforce_percent").map_or(Some(100), |item| r.integer(&item, 0..=100));
    let cached = o.get("cache_denials").map_or(Some(1000), |item| r.duration(&item, 0, MAX_CACHE_DENIALS_MS));
    let leased = o.get("lease").map(|item| lease(r, &item, limits.as_ref()));
    let response = o.get("response").map_or_else(|| Some(Rc::clone(usual)), |item| response(r, &item, usual).map(Rc::new));
    named?;
    Some(RuleConfig {
        name: name?,
        select: select?,
        matches: matches?,
        when: when.map_or(Some(None), |when| when.map(Some))?,
        key: key?,
        limits: limits?,
        algorithm,
        cost: cost?,
        tiers: tiers.map_or(Some(None), |tiers| tiers.map(Some))?,
        overrides: overrides?,
        live_every_ms: live.map_or(Some(None), |every| every.map(Some))?,
        on_missing: on_missing?,
        on_error: on_error?,
        share: share?,
        mode: mode?,
        enforce_percent: u8::try_from(percent?).ok()?,
        cache_denials_ms: cached?,
        lease: leased.map_or(Some(None), |terms| terms.map(Some))?,
        response: response?,
    })
}

fn rule_name(r: &mut Reader, item: &Item<'_>) -> Option<String> {
    let wanted = "1 to 64 of a-z, 0-9, _ and - are wanted";
    let allowed = |b: u8| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-');
    r.word(item, 64, allowed, wanted).map(str::to_owned)
}

fn mode(r: &mut Reader, item: &Item<'_>) -> Option<Mode> {
    // YAML reads `off` without quotes as `false`, on the way through Envoy and through Kubernetes.
    if item.value.as_bool() == Some(false) {
        return Some(Mode::Off);
    }
    r.choice(item, &[("enforce", Mode::Enforce), ("shadow", Mode::Shadow), ("off", Mode::Off)])
}

fn local_share(r: &mut Reader, item: &Item<'_>) -> Option<f64> {
    let o = r.object(item, &["share"])?;
    o.get("share").map_or(Some(1.0), |item| r.share(&item))
}

fn cost(r: &mut Reader, item: &Item<'_>) -> Option<Cost> {
    if !item.value.is_object() {
        return r.integer_or(item, 0..=MAX_COST, "an object with from, default and max").map(Cost::Fixed);
    }
    let o = r.object(item, &["from", "default", "max"])?;
    let source = match o.get("from") {
        Some(item) => key_part(r, &item),
        None => r.missing(&o, "from", "a source is wanted, such as header:x-cost"),
    };
    let default = o.get("default").map_or(Some(1), |item| r.integer(&item, 0..=MAX_COST));
    let max = o.get("max").map_or(Some(MAX_COST), |item| r.integer(&item, 1..=MAX_COST));
    Some(Cost::From { source: source?, default: default?, max: max? })
}

fn tiers(r: &mut Reader, item: &Item<'_>, default: Algorithm) -> Option<Tiers> {
    let o = r.object(item, &["by", "values"])?;
    let by = match o.get("by") {
        Some(item) => key_part(r, &item),
        None => r.missing(&o, "by", "a source is wanted, such as jwt:plan"),
    };
    let values = match o.get("values") {
        Some(item) => by_name(r, &item, default, MAX_TIERS, "tiers and their limits, such as {\"pro\":[\"100/s\"]}"),
        None => r.missing(&o, "values", "tiers and their limits are wanted, such as {\"pro\":[\"100/s\"]}"),
    };
    Some(Tiers { by: by?, values: values? })
}

fn overrides(r: &mut Reader, item: &Item<'_>, default: Algorithm) -> Option<BTreeMap<String, Limits>> {
    let overrides = by_name(r, item, default, MAX_OVERRIDES, "subjects and their limits, such as {\"acme\":[\"500/s\"]}")?;
    for subject in overrides.keys().filter(|subject| !Subject::is_one(subject)) {
        if let Some(item) = item.field(subject) {
            r.fault::<()>(&item, "no subject; one is written as in logs and Redis keys, with %20 for a space");
        }
    }
    Some(overrides)
}

/// An object whose fields are limits.
fn by_name(
    r: &mut Reader,
    item: &Item<'_>,
    default: Algorithm,
    most: usize,
    wanted: &str,
) -> Option<BTreeMap<String, Limits>> {
    let items = r.map(item, most, wanted)?;
    let read: Vec<_> = items.iter().map(|(name, item)| Some(((*name).clone(), limits(r, item, default)?))).collect();
    read.into_iter().collect()
}

fn live_overrides(r: &mut Reader, item: &Item<'_>) -> Option<u64> {
    let o = r.object(item, &["every"])?;
    if !r.has_store {
        return r.fault(item, "they are kept in Redis, and there is no store");
    }
    o.get("every").map_or(Some(10_000), |item| r.duration(&item, 1000, 3_600_000))
}

fn lease(r: &mut Reader, item: &Item<'_>, limits: Option<&Limits>) -> Option<Terms> {
    let o = r.object(item, &["max", "every"])?;
    if !r.has_store {
        return r.fault(item, "what is leased is charged in Redis, and there is no store");
    }
    if let Some(Limits::These(limits)) = limits
        && let Some(limit) = limits.iter().find(|limit| !can_be_leased(limit.algorithm()))
    {
        let name = limit.algorithm().name();
        return r.fault(
            item,
            format!("a limit by {name} can't be leased; by token_bucket, fixed_window and sliding_window one can"),
        );
    }
    let max = o.get("max").map_or(Some(100), |item| r.integer(&item, 2..=MAX_LEASE));
    let every = o.get("every").map_or(Some(200), |item| r.duration(&item, 10, MAX_LEASE_MS));
    Some(Terms { max: max?, every_ms: every? })
}
