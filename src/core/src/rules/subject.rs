//! Subjects, and the Redis keys made of them.
//!
//! A subject is written so that no two different keys of requests give the same text, whatever bytes are in them, and so that
//! ordinary values stay readable:
//! - parts are joined with `,`;
//! - letters, digits and `- . _ : / @ + =` stand for themselves, every other byte is `%` and two hex digits;
//! - a value of a part's second or later alternative begins with its number and `~` (`2~198.51.100.7`);
//! - where a route has limits of its own, `!` and the route's name follow, and `!!` and its name for a virtual host;
//! - a credential is `#` and 32 hex digits of its SHA-256; a subject that would be over 128 bytes is `##` and 32 digits of its own.

use super::facts::Facts;
use super::source::{KeyPart, Value};
use crate::limit::Limit;
use crate::request::Request;
use sha2::{Digest, Sha256};
use std::fmt::{self, Write};

/// The most bytes of a Redis key.
pub const MAX_KEY_BYTES: usize = 256;

/// The most bytes of a subject: with the longest prefix and rule name a key still has at most [`MAX_KEY_BYTES`].
const MAX_BYTES: usize = 128;

/// Who is counted: printable ASCII without blanks, braces, quotes and line breaks, 1..=128 bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Subject(String);

impl Subject {
    /// The subject of a request under a rule's key.
    ///
    /// # Errors
    /// The place of the first part that has no value.
    pub(super) fn of<R: Request>(key: &[KeyPart], facts: &Facts<'_, R>) -> Result<Subject, usize> {
        let mut text = String::new();
        for (place, part) in key.iter().enumerate() {
            if place > 0 {
                text.push(',');
            }
            write_value(&mut text, &part.value(facts).ok_or(place)?);
        }
        Ok(Subject::bounded(text))
    }

    /// The subject where it is counted by itself, under `mark` and a name.
    pub(super) fn within(&self, mark: &str, name: &[u8]) -> Subject {
        let mut text = format!("{}{mark}", self.0);
        write_bytes(&mut text, name);
        Subject::bounded(text)
    }

    fn bounded(mut text: String) -> Subject {
        if text.len() > MAX_BYTES {
            let digest = Digested::of(text.as_bytes());
            text.clear();
            write_to(&mut text, format_args!("#{digest}"));
        }
        Subject(text)
    }

    /// Whether a text can be one.
    pub(crate) fn is_one(text: &str) -> bool {
        let allowed = |b: u8| is_plain(b) || b"%,~#!".contains(&b);
        (1..=MAX_BYTES).contains(&text.len()) && text.bytes().all(allowed)
    }

    /// As it stands in keys and logs.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Writes the Redis key of a limit: `rl:{RULE:SUBJECT}:tb:60000`. What is in the braces settles its slot in a Redis Cluster.
pub fn redis_key(out: &mut Vec<u8>, prefix: &str, rule: &str, subject: &Subject, limit: &Limit) {
    for text in [prefix, ":{", rule, ":", subject.as_str(), "}:", limit.algorithm().code(), ":"] {
        out.extend_from_slice(text.as_bytes());
    }
    crate::store::decimal(out, limit.window_ms());
}

fn write_value(text: &mut String, value: &Value<'_>) {
    if value.alternative > 0 {
        write_to(text, format_args!("{}~", value.alternative.saturating_add(1)));
    }
    if value.secret {
        return write_to(text, format_args!("{}", Digested::of(&value.bytes)));
    }
    write_bytes(text, &value.bytes);
}

fn write_bytes(text: &mut String, bytes: &[u8]) {
    let mut rest = bytes;
    while !rest.is_empty() {
        let plain = rest.iter().position(|byte| !is_plain(*byte)).unwrap_or(rest.len());
        let (before, after) = rest.split_at(plain);
        text.push_str(std::str::from_utf8(before).unwrap_or_default()); // what is plain is ASCII
        let Some((byte, after)) = after.split_first() else { return };
        write_to(text, format_args!("%{byte:02X}"));
        rest = after;
    }
}

/// A byte that stands for itself.
fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._:/@+=".contains(&byte)
}

fn write_to(text: &mut String, arguments: fmt::Arguments<'_>) {
    // Writing to a String can't fail.
    let _ = text.write_fmt(arguments);
}

/// `#` and half of a SHA-256 in hex.
struct Digested([u8; 32]);

impl Digested {
    fn of(bytes: &[u8]) -> Digested {
        Digested(Sha256::digest(bytes).into())
    }
}

impl fmt::Display for Digested {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('#')?;
        self.0.iter().take(16).try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
