//! What is wrong with a configuration, told so that it can be mended: where, what is there, what is allowed.

use serde_json::Value;
use std::fmt;

/// The most characters of a value that a fault repeats.
const SHOWN: usize = 80;

/// One thing that is wrong with a configuration. Displayed as `path: value: what is wrong and what is allowed`, on one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    path: String,
    value: Option<String>,
    message: String,
    line: Option<usize>,
}

impl Fault {
    /// A fault of the value at `path` (`rules[0].limits[0]`; empty for the configuration as a whole).
    pub(crate) fn new(path: &str, value: &Value, message: impl Into<String>) -> Fault {
        let value = (is_empty(value) || !may_be_secret(path)).then(|| shown(value));
        Fault { path: path.to_owned(), value, message: message.into(), line: None }
    }

    /// A fault of a text that only the host can judge.
    pub fn of_text(path: &str, text: &str, message: impl Into<String>) -> Fault {
        Fault::new(path, &Value::from(text), message)
    }

    /// Where it is: `rules[0].limits[0]`; empty for the configuration as a whole.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The value that is there, as JSON, cut where it is long; `None` where there is none to show.
    pub fn value(&self) -> Option<&str> {
        self.value.as_deref()
    }

    /// What is wrong, and what is allowed.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The line of the text, from 1, in which it can't be read; `None` where it can.
    pub fn line(&self) -> Option<usize> {
        self.line
    }

    /// A fault that has no value to show: a field that isn't there, or no configuration at all.
    pub(crate) fn bare(path: &str, message: impl Into<String>) -> Fault {
        Fault { path: path.to_owned(), value: None, message: message.into(), line: None }
    }

    /// A fault of a text that can't be read, in a line of it.
    pub(crate) fn unreadable(line: usize, message: impl Into<String>) -> Fault {
        Fault { line: Some(line), ..Fault::bare("", message) }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.path.is_empty() { "configuration" } else { &self.path };
        match &self.value {
            Some(value) => write!(f, "{path}: {value}: {}", self.message),
            None => write!(f, "{path}: {}", self.message),
        }
    }
}

/// Whether there is nothing in it that could be a secret.
fn is_empty(value: &Value) -> bool {
    matches!(value, Value::Null | Value::Bool(_)) || value.as_str() == Some("")
}

/// Whether a secret may stand there, or would if a name weren't misspelt.
fn may_be_secret(path: &str) -> bool {
    const SECRETS: [&str; 4] = ["auth", "password", "secret", "token"];
    const HARMLESS: [&str; 6] = ["transport", "timeout", "key_prefix", "scope", "breaker", "path"];
    let (top, below) = path.split_once('.').unwrap_or((path, ""));
    let first = below.split('.').next().unwrap_or_default();
    let last = path.rsplit('.').next().unwrap_or_default();
    SECRETS.contains(&last) || (top == "store" && !HARMLESS.contains(&first))
}

/// A value as compact JSON (which has no line breaks), cut where it is long.
fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

/// ` (did you mean "limits"?)` where `given` is a near miss of one of `allowed`, else nothing.
pub(crate) fn did_you_mean(given: &str, allowed: &[&str]) -> String {
    let given = given.to_ascii_lowercase();
    let distance = |candidate: &&&str| strsim::osa_distance(&given, &candidate.to_ascii_lowercase());
    match allowed.iter().min_by_key(distance) {
        Some(best) if distance(&best) <= best.len().div_ceil(3) => format!(" (did you mean \"{best}\"?)"),
        _ => String::new(),
    }
}
