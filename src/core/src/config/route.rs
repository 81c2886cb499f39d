//! Settings in the metadata of a route or virtual host.

use super::limits::limits;
use super::reader::{Item, Origin, Reader};
use super::rule::MAX_COST;
use super::{Fault, Limits, RouteConfig};
use crate::limit::Algorithm;
use crate::rules::Rules;
use serde_json::Value;

impl RouteConfig {
    /// Reads settings; rules that they name are to be among `rules`.
    ///
    /// # Errors
    /// Every fault that is in them.
    pub fn parse(settings: &Value, rules: &Rules) -> Result<RouteConfig, Vec<Fault>> {
        let mut reader = Reader::new(Origin::Struct);
        let read = route(&mut reader, &Item { path: String::new(), value: settings }, rules);
        match (read, reader.into_faults()) {
            (Some(read), faults) if faults.is_empty() => Ok(read),
            (_, faults) => Err(faults),
        }
    }
}

fn route(r: &mut Reader, item: &Item<'_>, rules: &Rules) -> Option<RouteConfig> {
    let o = r.object(item, &["disabled", "rules", "cost", "limits"])?;
    let disabled = o.get("disabled").map_or(Some(false), |item| r.flag(&item));
    let only = o.get("rules").map(|item| {
        // None at all is what `disabled` says.
        let items = r.list(&item, rules.iter().count().max(1), "names of rules")?;
        let names: Vec<_> = items.iter().map(|item| name(r, item, rules)).collect();
        names.into_iter().collect::<Option<Vec<_>>>()
    });
    let cost = o.get("cost").map(|item| r.integer(&item, 0..=MAX_COST));
    let limits = o.get("limits").map_or(Some(Vec::new()), |item| rule_limits(r, &item, rules));
    Some(RouteConfig {
        disabled: disabled?,
        rules: only.map_or(Some(None), |only| only.map(Some))?,
        cost: cost.map_or(Some(None), |cost| cost.map(Some))?,
        limits: limits?,
    })
}

fn name(r: &mut Reader, item: &Item<'_>, rules: &Rules) -> Option<String> {
    let name = r.text(item, "a rule's name")?;
    known(r, item, name, rules)?;
    Some(name.to_owned())
}

fn known(r: &mut Reader, item: &Item<'_>, name: &str, rules: &Rules) -> Option<Algorithm> {
    let rule = rules.named(name).and_then(|id| rules.get(id));
    match rule {
        Some(rule) => Some(rule.algorithm),
        None => {
            let names: Vec<&str> = rules.iter().map(|(_, rule)| rule.name.as_str()).collect();
            let hint = super::fault::did_you_mean(name, &names);
            r.fault(item, format!("there is no rule \"{name}\"{hint}"))
        }
    }
}

fn rule_limits(r: &mut Reader, item: &Item<'_>, rules: &Rules) -> Option<Vec<(String, Limits)>> {
    let items = r.map(item, rules.iter().count().max(1), "rules and their limits")?;
    let read: Vec<_> = items
        .iter()
        .map(|(name, item)| {
            let algorithm = known(r, item, name, rules)?;
            Some(((*name).clone(), limits(r, item, algorithm)?))
        })
        .collect();
    read.into_iter().collect()
}
