//! Which requests a rule is for.

use super::facts::Facts;
use super::pattern::Pattern;
use crate::request::{self, Network, Request};

/// Conditions on a request; all that are given hold, and none given holds always.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Match {
    /// On the normalised path.
    pub path: Option<PathMatch>,
    /// One of these methods; empty: any.
    pub methods: Vec<String>,
    /// One of these hosts; empty: any.
    pub hosts: Vec<HostMatch>,
    /// Each of these holds.
    pub headers: Vec<HeaderMatch>,
    /// The client's address is in one of these; empty: any.
    pub ip: Vec<Network>,
    /// These don't hold all together.
    pub not: Option<Box<Match>>,
}

/// A condition on the normalised path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathMatch {
    /// That path and no other.
    Exact(Vec<u8>),
    /// That path and all below it: `/foo` is a prefix of `/foo/v1`, not of `/foobar`.
    Prefix(Vec<u8>),
    /// The whole path.
    Regex(Pattern),
    /// Segment by segment.
    Template(Template),
}

impl PathMatch {
    /// That path, written as a client might.
    pub fn exact(path: &str) -> PathMatch {
        PathMatch::Exact(request::path(path.as_bytes()))
    }

    /// That path and all below it, written as a client might.
    pub fn prefix(path: &str) -> PathMatch {
        PathMatch::Prefix(request::path(path.as_bytes()))
    }

    fn holds(&self, path: &[u8]) -> bool {
        match self {
            PathMatch::Exact(exact) => path == exact,
            PathMatch::Prefix(prefix) => match path.strip_prefix(prefix.as_slice()) {
                Some([]) => true,
                Some([next, ..]) => prefix.ends_with(b"/") || *next == b'/',
                None => false,
            },
            PathMatch::Regex(pattern) => pattern.holds(path),
            PathMatch::Template(template) => template.holds(path),
        }
    }

    /// Segments that every path has first for which it holds.
    pub(super) fn first_segments(&self) -> Vec<&[u8]> {
        match self {
            PathMatch::Exact(path) | PathMatch::Prefix(path) => segments(path).collect(),
            PathMatch::Regex(_) => Vec::new(),
            PathMatch::Template(template) => {
                let literal = |segment: &'_ Segment| matches!(segment, Segment::Literal(_));
                template.segments.iter().take_while(|segment| literal(segment)).filter_map(Segment::text).collect()
            }
        }
    }
}

/// The segments of a normalised path that aren't empty.
pub(super) fn segments(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|b| *b == b'/').filter(|segment| !segment.is_empty())
}

/// A path with places for any segment: `/users/*/orders`; `**` at the end stands for any number of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    segments: Vec<Segment>,
    /// Whether more segments may follow.
    open: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Segment {
    Literal(Vec<u8>),
    Any,
}

impl Segment {
    fn text(&self) -> Option<&[u8]> {
        match self {
            Segment::Literal(text) => Some(text),
            Segment::Any => None,
        }
    }
}

impl Template {
    /// Reads a template, a path that begins with `/`.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn parse(text: &str) -> Result<Template, String> {
        let (text, open) = text.strip_suffix("/**").map_or((text, false), |text| (text, true));
        let normal = request::path(text.as_bytes());
        let mut read = Vec::new();
        for segment in segments(&normal) {
            read.push(match segment {
                b"*" => Segment::Any,
                b"**" => return Err("** stands at the end only".to_owned()),
                text if text.contains(&b'*') => return Err("* stands for a whole segment".to_owned()),
                text if text.contains(&b'{') => {
                    return Err("a segment of any text is written *, without a name".to_owned());
                }
                text => Segment::Literal(text.to_vec()),
            });
        }
        Ok(Template { segments: read, open })
    }

    fn holds(&self, path: &[u8]) -> bool {
        let mut given = segments(path);
        let all = self.segments.iter().all(|segment| match (segment, given.next()) {
            (Segment::Literal(text), Some(given)) => text == given,
            (Segment::Any, Some(_)) => true,
            (_, None) => false,
        });
        all && (self.open || (given.next().is_none() && !path.ends_with(b"/")))
    }
}

/// A condition on the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostMatch {
    /// That host, in lower case.
    Exact(String),
    /// Every host below it: `example.net` stands for `*.example.net`.
    Below(String),
}

impl HostMatch {
    fn holds(&self, host: &[u8]) -> bool {
        match self {
            HostMatch::Exact(exact) => exact.as_bytes() == host,
            HostMatch::Below(domain) => {
                let labels = host.strip_suffix(domain.as_bytes()).and_then(|rest| rest.strip_suffix(b"."));
                labels.is_some_and(|labels| !labels.is_empty())
            }
        }
    }
}

/// A condition on a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderMatch {
    /// In lower case.
    pub name: String,
    /// On its value, trimmed.
    pub test: HeaderTest,
    /// Whether it is to hold or not. A header that isn't there passes no test but `Present(false)`, and so an inverted one.
    pub invert: bool,
}

/// What a header's value may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderTest {
    /// There is such a header, or there is none.
    Present(bool),
    /// This text.
    Exact(String),
    /// A text that begins so.
    Prefix(String),
    /// A text that ends so.
    Suffix(String),
    /// A text that is wholly of this pattern.
    Regex(Pattern),
}

impl HeaderMatch {
    fn holds<R: Request>(&self, facts: &Facts<'_, R>) -> bool {
        let value = facts.header(&self.name);
        let value = value.as_deref().map(|value| request::trimmed(value).unwrap_or_default());
        let holds = match (&self.test, value) {
            (HeaderTest::Present(wanted), value) => value.is_some() == *wanted,
            (_, None) => false,
            (HeaderTest::Exact(text), Some(value)) => value == text.as_bytes(),
            (HeaderTest::Prefix(text), Some(value)) => value.starts_with(text.as_bytes()),
            (HeaderTest::Suffix(text), Some(value)) => value.ends_with(text.as_bytes()),
            (HeaderTest::Regex(pattern), Some(value)) => pattern.holds(value),
        };
        holds != self.invert
    }
}

impl Match {
    pub(super) fn holds<R: Request>(&self, facts: &Facts<'_, R>) -> bool {
        self.failing(facts).is_none()
    }

    /// The first condition that doesn't hold, by its name in the configuration.
    pub(super) fn failing<R: Request>(&self, facts: &Facts<'_, R>) -> Option<&'static str> {
        let method = || self.methods.iter().any(|method| method.as_bytes() == &*facts.method());
        let host = || self.hosts.iter().any(|host| host.holds(facts.host()));
        let ip = || facts.address().is_some_and(|address| self.ip.iter().any(|network| network.contains(address)));
        if !(self.methods.is_empty() || method()) {
            return Some("methods");
        }
        if !(self.hosts.is_empty() || host()) {
            return Some("hosts");
        }
        if !self.path.as_ref().is_none_or(|path| path.holds(facts.path())) {
            return Some("path");
        }
        if !self.headers.iter().all(|header| header.holds(facts)) {
            return Some("headers");
        }
        if !(self.ip.is_empty() || ip()) {
            return Some("ip");
        }
        self.not.as_ref().filter(|not| not.holds(facts)).map(|_| "not")
    }
}
