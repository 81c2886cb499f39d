//! Where the values of keys, costs and tiers come from.

use super::facts::Facts;
use super::metadata;
use crate::request::{self, Network, Request};
use std::borrow::Cow;

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The header of that lower-case name, trimmed.
    Header(String),
    /// The first cookie of that name.
    Cookie(String),
    /// The first query parameter of that name, decoded.
    Query(String),
    /// The client's address, or the network that counts as one client.
    Ip,
    /// The normalised path.
    Path,
    /// Its segment at this place, from 1.
    PathSegment(usize),
    /// The method.
    Method,
    /// The host in lower case without its port.
    Host,
    /// A claim of the bearer token, which isn't verified here.
    Jwt(String),
    /// Dynamic metadata of an earlier filter: the filter's name, and the path of a value.
    Metadata(Vec<String>),
    /// An attribute of Envoy's, by its path joined with NUL.
    Property(String),
    /// The value of a CEL expression.
    Cel(String),
    /// Always this text.
    Const(String),
}

/// A value's place in a request: the first of its sources that has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPart {
    pub(crate) alternatives: Vec<Source>,
}

/// A part's value for a request.
pub(super) struct Value<'f> {
    pub(super) bytes: Cow<'f, [u8]>,
    /// Which of the part's alternatives gave it, from 0.
    pub(super) alternative: usize,
    /// Whether it is a credential, which must not show in keys and logs.
    pub(super) secret: bool,
}

impl KeyPart {
    /// A part that takes the first of `alternatives` that is present.
    pub fn new(alternatives: Vec<Source>) -> KeyPart {
        KeyPart { alternatives }
    }

    pub(super) fn value<'f, R: Request>(&'f self, facts: &'f Facts<'_, R>) -> Option<Value<'f>> {
        self.alternatives.iter().enumerate().find_map(|(alternative, source)| {
            let bytes = source.value(facts)?;
            Some(Value { bytes, alternative, secret: source.is_secret() })
        })
    }
}

impl Source {
    /// The trimmed value; `None` where nothing is left.
    fn value<'f, R: Request>(&'f self, facts: &'f Facts<'_, R>) -> Option<Cow<'f, [u8]>> {
        let value = match self {
            Source::Header(name) => facts.header(name)?,
            Source::Cookie(name) => Cow::Borrowed(request::cookie(facts.headers().lines("cookie"), name)?),
            Source::Query(name) => Cow::Owned(request::query(&facts.target(), name)?),
            Source::Ip => {
                let address = facts.address()?;
                let network = Network::of(address, facts.client_ip.prefix(address));
                Cow::Owned(network.to_string().into_bytes())
            }
            Source::Path => Cow::Borrowed(facts.path()),
            Source::PathSegment(place) => Cow::Borrowed(super::matcher::segments(facts.path()).nth(place.checked_sub(1)?)?),
            Source::Method => facts.method(),
            Source::Host => Cow::Borrowed(facts.host()),
            Source::Jwt(name) => Cow::Owned(request::claim(&facts.header("authorization")?, name)?),
            Source::Metadata(path) => Cow::Owned(metadata::text(facts.request, path)?),
            Source::Property(path) => Cow::Owned(facts.property(path)?),
            Source::Cel(expression) => Cow::Owned(facts.request.evaluate(expression)?),
            Source::Const(text) => Cow::Borrowed(text.as_bytes()),
        };
        match value {
            Cow::Borrowed(value) => request::trimmed(value).map(Cow::Borrowed),
            Cow::Owned(value) => {
                let trimmed = request::trimmed(&value)?;
                Some(Cow::Owned(if trimmed.len() == value.len() { value } else { trimmed.to_vec() }))
            }
        }
    }

    fn is_secret(&self) -> bool {
        const SECRET: [&str; 3] = ["authorization", "proxy-authorization", "cookie"];
        match self {
            Source::Header(name) => SECRET.contains(&name.as_str()),
            Source::Cookie(_) => true,
            Source::Property(path) => path
                .strip_prefix("request\0headers\0")
                .is_some_and(|name| SECRET.contains(&name.to_ascii_lowercase().as_str())),
            Source::Cel(expression) => {
                let expression = expression.to_ascii_lowercase();
                SECRET.iter().any(|name| expression.contains(name))
            }
            _ => false,
        }
    }
}
