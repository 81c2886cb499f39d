//! Which requests a rule is for.

use crate::request::{self, Request};
use std::cell::OnceCell;

/// Conditions on a request; all that are given hold, and none given holds always.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Match {
    /// On the normalised path.
    pub path: Option<PathMatch>,
    /// One of these methods; empty: any.
    pub methods: Vec<String>,
    /// One of these hosts, in lower case; empty: any.
    pub hosts: Vec<String>,
}

/// A condition on the normalised path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathMatch {
    path: Vec<u8>,
    prefix: bool,
}

impl PathMatch {
    /// That path and no other.
    pub fn exact(path: &str) -> PathMatch {
        PathMatch { path: request::path(path.as_bytes()), prefix: false }
    }

    /// That path and all below it: `/foo` is a prefix of `/foo/v1`, not of `/foobar`.
    pub fn prefix(path: &str) -> PathMatch {
        PathMatch { path: request::path(path.as_bytes()), prefix: true }
    }

    fn holds(&self, path: &[u8]) -> bool {
        match path.strip_prefix(self.path.as_slice()) {
            Some([]) => true,
            Some([next, ..]) => self.prefix && (self.path.ends_with(b"/") || *next == b'/'),
            None => false,
        }
    }
}

impl Match {
    pub(super) fn holds<R: Request>(&self, facts: &Facts<'_, R>) -> bool {
        let among = |list: &[String], value: &[u8]| list.iter().any(|item| item.as_bytes() == value);
        (self.methods.is_empty() || among(&self.methods, facts.method()))
            && (self.hosts.is_empty() || among(&self.hosts, facts.host()))
            && self.path.as_ref().is_none_or(|path| path.holds(facts.path()))
    }
}

/// A request's values, each asked of the host at most once.
pub(super) struct Facts<'r, R> {
    pub(super) request: &'r R,
    path: OnceCell<Vec<u8>>,
    method: OnceCell<Vec<u8>>,
    host: OnceCell<Vec<u8>>,
}

impl<'r, R: Request> Facts<'r, R> {
    pub(super) fn new(request: &'r R) -> Facts<'r, R> {
        Facts { request, path: OnceCell::new(), method: OnceCell::new(), host: OnceCell::new() }
    }

    /// The normalised path; empty where the request has none.
    pub(super) fn path(&self) -> &[u8] {
        self.path.get_or_init(|| self.request.header(":path").map_or_else(Vec::new, |path| request::path(&path)))
    }

    pub(super) fn method(&self) -> &[u8] {
        self.method.get_or_init(|| self.request.header(":method").unwrap_or_default())
    }

    /// The host in lower case without its port.
    pub(super) fn host(&self) -> &[u8] {
        self.host.get_or_init(|| {
            let authority = self.request.header(":authority").unwrap_or_default();
            request::host(&authority).into_owned()
        })
    }
}
