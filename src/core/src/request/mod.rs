//! What a decision may ask of a request, and how it is read.

mod address;
mod fields;
mod headers;
mod path;
mod sample;

pub use address::{Network, address, forwarded};
pub use fields::{MAX_TOKEN, claim, cookie, integer, query};
pub use headers::Headers;
pub use path::normalise as path;
pub use sample::Sample;

use std::borrow::Cow;

/// A request as a decision sees it. All values are bytes: nothing a client sends is assumed to be UTF-8.
///
/// Whoever implements it answers from the host; tests answer from a table.
pub trait Request {
    /// All of its headers. It is asked for at most once a request.
    fn headers(&self) -> Headers;

    /// The value of the header of that lower-case name, several lines joined with `,`; `None` where there is none.
    fn header(&self, name: &str) -> Option<Vec<u8>>;

    /// One of Envoy's attributes; the parts of its path are joined with NUL. `Ok(None)` where there is none of that name.
    ///
    /// # Errors
    /// There is one, and it can't be given as bytes.
    fn property(&self, path: &str) -> Result<Option<Vec<u8>>, Unreadable>;

    /// The value of a CEL expression, as the host writes values: text as it is, a boolean as one byte. `None` where it has none
    /// for this request.
    fn evaluate(&self, expression: &str) -> Option<Vec<u8>>;
}

/// An attribute that can't be given as bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreadable;

/// A host in lower case without its port; brackets of an IPv6 address stay.
pub fn host(authority: &[u8]) -> Cow<'_, [u8]> {
    let port = authority.iter().rposition(|b| *b == b':').filter(|colon| {
        let (name, port) = authority.split_at(*colon);
        let digits = port.iter().skip(1).all(u8::is_ascii_digit);
        // Without brackets, several colons are an IPv6 address, and none of them begins a port.
        digits && (name.ends_with(b"]") || !name.contains(&b':'))
    });
    let name = port.and_then(|colon| authority.get(..colon)).unwrap_or(authority);
    if name.iter().any(u8::is_ascii_uppercase) { Cow::Owned(name.to_ascii_lowercase()) } else { Cow::Borrowed(name) }
}

/// A header's value without the spaces and tabs around it; `None` where nothing is left.
pub fn trimmed(value: &[u8]) -> Option<&[u8]> {
    let blank = |b: &u8| matches!(b, b' ' | b'\t');
    let start = value.iter().position(|b| !blank(b))?;
    let end = value.iter().rposition(|b| !blank(b))?;
    value.get(start..=end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_told_apart_by_neither_case_nor_port() {
        let table: [(&str, &str); 8] = [
            ("Api.Example.com", "api.example.com"),
            ("api.example.com:8443", "api.example.com"),
            ("[2001:DB8::1]:443", "[2001:db8::1]"),
            ("[2001:db8::1]", "[2001:db8::1]"),
            ("2001:db8::1", "2001:db8::1"),
            ("api.example.com:", "api.example.com"),
            ("a:b", "a:b"),
            ("", ""),
        ];
        for (given, wanted) in table {
            assert_eq!(host(given.as_bytes()), wanted.as_bytes(), "{given}");
        }
    }

    #[test]
    fn blanks_around_a_value_go_and_blanks_alone_are_nothing() {
        assert_eq!(trimmed(b" \tk 1\t "), Some(&b"k 1"[..]));
        assert_eq!(trimmed(b" \t"), None);
        assert_eq!(trimmed(b""), None);
    }
}
