//! What a route's metadata says about rules: namespace `weir` of the route, or of its virtual host where the route has none.

use super::facts::Facts;
use super::limits::{Allowance, allowance};
use super::{RuleId, Rules, Subject, metadata};
use crate::config::{Fault, RouteConfig};
use crate::request::{Request, Unreadable};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// The most different settings that are kept; beyond them all are read anew.
const MAX_KEPT: usize = 1024;

/// What holds on a route, or on all routes of a virtual host.
#[derive(Debug, PartialEq, Eq)]
pub struct Route {
    /// No rule applies.
    pub disabled: bool,
    /// These apply, and no others; `None`: all that aren't for named routes only.
    pub only: Option<Vec<RuleId>>,
    /// What each request takes.
    pub cost: Option<u64>,
    /// Limits in place of the rules' own.
    limits: Vec<(RuleId, Allowance)>,
    level: Level,
}

/// What metadata is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Level {
    /// A route.
    Route,
    /// A virtual host, for its routes that have none.
    VirtualHost,
}

impl Level {
    /// As faults name it.
    pub fn title(self) -> &'static str {
        match self {
            Level::Route => "route",
            Level::VirtualHost => "virtual host",
        }
    }

    /// The attribute with the whole metadata, and with its namespace `weir`.
    fn attributes(self) -> (&'static str, &'static str) {
        match self {
            Level::Route => ("xds\0route_metadata", "xds\0route_metadata\0filter_metadata\0weir"),
            Level::VirtualHost => ("xds\0virtual_host_metadata", "xds\0virtual_host_metadata\0filter_metadata\0weir"),
        }
    }
}

impl Route {
    /// Reads settings as they stand in metadata.
    ///
    /// # Errors
    /// Every fault that is in them; a rule that isn't there is one.
    pub fn parse(settings: &serde_json::Value, level: Level, rules: &Rules) -> Result<Route, Vec<Fault>> {
        let config = RouteConfig::parse(settings, rules)?;
        let limits = config.limits.iter().filter_map(|(name, limits)| {
            let id = rules.named(name)?;
            Some((id, allowance(limits, rules.get(id)?.share)))
        });
        let only = config.rules.as_ref().map(|names| names.iter().filter_map(|name| rules.named(name)).collect());
        Ok(Route { disabled: config.disabled, only, cost: config.cost, limits: limits.collect(), level })
    }

    /// The limits in place of the rule's, and whether there are any.
    pub(super) fn limits(&self, rule: RuleId) -> Option<&Allowance> {
        self.limits.iter().find(|(named, _)| *named == rule).map(|(_, limits)| limits)
    }

    /// Whom limits of these settings count: a subject of their own. With that of other routes, a bucket would be cut to the
    /// smaller of two capacities by whichever comes last.
    pub(super) fn subject<R: Request>(&self, subject: &Subject, facts: &Facts<'_, R>) -> Subject {
        let (mark, name) = match self.level {
            Level::Route => ("!", "xds\0route_name"),
            Level::VirtualHost => ("!!", "xds\0virtual_host_name"),
        };
        subject.within(mark, &facts.property(name).unwrap_or_default())
    }
}

/// The settings of the routes that requests came by, each read once.
#[derive(Debug, Default)]
pub struct Routes {
    /// By their bytes; `None` for what is faulty.
    kept: RefCell<HashMap<(Level, Vec<u8>), Kept>>,
}

type Kept = Option<Rc<Route>>;

/// What is wrong with a route's metadata.
#[derive(Debug)]
pub struct RouteFaults {
    /// Whose.
    pub level: Level,
    /// None where they were told before.
    pub faults: Vec<Fault>,
}

impl Routes {
    /// What holds on a request's route.
    ///
    /// # Errors
    /// The metadata is faulty: then the request is decided as without it.
    pub fn of(&self, request: &impl Request, rules: &Rules) -> Result<Option<Rc<Route>>, RouteFaults> {
        for level in [Level::Route, Level::VirtualHost] {
            let (whole, weir) = level.attributes();
            let seen = match request.property(weir) {
                Ok(None) => continue,
                Ok(Some(seen)) => seen,
                Err(Unreadable) => Vec::new(), // there is a null in it
            };
            let key = (level, seen);
            if let Some(kept) = self.kept.borrow().get(&key) {
                return kept.clone().map(Some).ok_or(RouteFaults { level, faults: Vec::new() });
            }
            let message = request.property(whole).ok().flatten().unwrap_or_default();
            let Some(settings) = metadata::namespace(&message, "weir") else { continue };
            let read = Route::parse(&crate::config::json(settings), level, rules).map(Rc::new);
            let mut kept = self.kept.borrow_mut();
            if kept.len() >= MAX_KEPT {
                kept.clear();
            }
            kept.insert(key, read.as_ref().ok().cloned());
            return read.map(Some).map_err(|faults| RouteFaults { level, faults });
        }
        Ok(None)
    }
}
