//! Which rules may be for a request, by its host and path, so that a request doesn't look at all of them.

use super::matcher::{HostMatch, Match, segments};
use std::collections::BTreeMap;

/// The longest host name.
const MAX_HOST: usize = 253;

/// Places of rules, by the hosts and the first path segments that they are for.
#[derive(Debug, Default)]
pub(super) struct Index {
    any_host: Paths,
    hosts: BTreeMap<Vec<u8>, Paths>,
    /// By the domain that a host is below.
    domains: BTreeMap<Vec<u8>, Paths>,
}

/// Places of rules by path: those for all paths from here on, and those for longer ones by their next segment.
#[derive(Debug, Default)]
struct Paths {
    here: Vec<usize>,
    below: BTreeMap<Vec<u8>, Paths>,
}

impl Index {
    /// Adds the rule at a place. Places are added in their order.
    pub(super) fn add(&mut self, place: usize, matches: &Match) {
        let path = matches.path.as_ref().map(|path| path.first_segments()).unwrap_or_default();
        if matches.hosts.is_empty() {
            self.any_host.add(place, &path);
        }
        for host in &matches.hosts {
            let paths = match host {
                HostMatch::Exact(host) => self.hosts.entry(host.as_bytes().to_vec()),
                HostMatch::Below(domain) => self.domains.entry(domain.as_bytes().to_vec()),
            };
            paths.or_default().add(place, &path);
        }
    }

    /// The places of all rules that may be for a request, each once and in their order. `host` and `path` are asked only where
    /// they make a difference.
    pub(super) fn candidates<'f>(&self, host: impl Fn() -> &'f [u8], path: impl Fn() -> &'f [u8]) -> Vec<usize> {
        let mut found = Vec::new();
        let path = &path;
        self.any_host.find(path, &mut found);
        if !self.hosts.is_empty() {
            self.hosts.get(host()).into_iter().for_each(|paths| paths.find(path, &mut found));
        }
        if !self.domains.is_empty() {
            let mut rest = host();
            while let Some(dot) = rest.iter().position(|b| *b == b'.') {
                rest = rest.get(dot.saturating_add(1)..).unwrap_or_default();
                if rest.len() <= MAX_HOST {
                    self.domains.get(rest).into_iter().for_each(|paths| paths.find(path, &mut found));
                }
            }
        }
        found.sort_unstable();
        found.dedup();
        found
    }
}

impl Paths {
    fn add(&mut self, place: usize, path: &[&[u8]]) {
        let mut node = self;
        for segment in path {
            node = node.below.entry(segment.to_vec()).or_default();
        }
        if node.here.last() != Some(&place) {
            node.here.push(place);
        }
    }

    fn find<'f>(&self, path: &impl Fn() -> &'f [u8], found: &mut Vec<usize>) {
        found.extend_from_slice(&self.here);
        if self.below.is_empty() {
            return;
        }
        let mut node = self;
        for segment in segments(path()) {
            let Some(next) = node.below.get(segment) else { break };
            found.extend_from_slice(&next.here);
            node = next;
        }
    }
}
