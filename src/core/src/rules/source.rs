//! Where the parts of a key come from.

use super::matcher::Facts;
use crate::request::{self, Request};
use std::borrow::Cow;

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The header of that lower-case name, trimmed.
    Header(String),
    /// The client's address: an IPv4 address, or the /64 of an IPv6 address.
    Ip,
    /// The normalised path.
    Path,
    /// The method.
    Method,
    /// The host in lower case without its port.
    Host,
    /// The name of Envoy's route.
    Route,
    /// Always this text.
    Const(String),
}

/// One part of a rule's key: the first of its sources that has a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyPart {
    alternatives: Vec<Source>,
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
    fn value<'f, R: Request>(&'f self, facts: &'f Facts<'_, R>) -> Option<Cow<'f, [u8]>> {
        let owned = |value: Option<Vec<u8>>| Some(Cow::Owned(request::trimmed(&value?)?.to_vec()));
        let borrowed = |value: &'f [u8]| (!value.is_empty()).then_some(Cow::Borrowed(value));
        match self {
            Source::Header(name) => owned(facts.request.header(name)),
            Source::Ip => {
                let network = request::network(&facts.request.source_address()?)?;
                Some(Cow::Owned(network.to_string().into_bytes()))
            }
            Source::Path => borrowed(facts.path()),
            Source::Method => borrowed(facts.method()),
            Source::Host => borrowed(facts.host()),
            Source::Route => owned(facts.request.route()),
            Source::Const(text) => Some(Cow::Borrowed(text.as_bytes())),
        }
    }

    fn is_secret(&self) -> bool {
        matches!(self, Source::Header(name) if matches!(name.as_str(), "authorization" | "proxy-authorization" | "cookie"))
    }
}
