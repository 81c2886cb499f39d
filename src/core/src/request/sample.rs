//! A request out of a table.

use super::{Headers, Request, Unreadable};
use std::borrow::Cow;
use std::collections::BTreeMap;

/// A request whose values are all told beforehand: to explain what rules make of it, and for tests.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// Its headers.
    pub headers: Headers,
    /// Attributes, by their paths joined with NUL; `Err` for one that can't be given as bytes.
    pub properties: BTreeMap<String, Result<Vec<u8>, Unreadable>>,
    /// Values of CEL expressions.
    pub expressions: BTreeMap<String, Vec<u8>>,
}

impl Sample {
    /// A request with these headers, pseudo-headers among them.
    pub fn new<N: AsRef<str>, V: AsRef<[u8]>>(headers: impl IntoIterator<Item = (N, V)>) -> Sample {
        Sample { headers: Headers::new(headers), ..Sample::default() }
    }

    /// The same with an attribute; the parts of `path` may be joined with `/`.
    #[must_use]
    pub fn with(mut self, path: &str, value: impl AsRef<[u8]>) -> Sample {
        self.properties.insert(path.replace('/', "\0"), Ok(value.as_ref().to_vec()));
        self
    }
}

impl Request for Sample {
    fn headers(&self) -> Headers {
        self.headers.clone()
    }

    fn header(&self, name: &str) -> Option<Vec<u8>> {
        self.headers.get(name).map(Cow::into_owned)
    }

    fn property(&self, path: &str) -> Result<Option<Vec<u8>>, Unreadable> {
        self.properties.get(path).cloned().transpose()
    }

    fn evaluate(&self, expression: &str) -> Option<Vec<u8>> {
        self.expressions.get(expression).cloned()
    }
}
