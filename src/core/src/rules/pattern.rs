//! Regular expressions of a configuration.

use regex_lite::{Regex, RegexBuilder};
use std::fmt;

/// The most bytes of a pattern.
const MAX_LENGTH: usize = 512;
/// The most memory of a compiled one. Its size times the value's length is what a match costs at most.
const MAX_COMPILED: usize = 32 * 1024;

/// A regular expression that a whole value has to match, in time linear in the value's length. The syntax is that of the crate
/// `regex-lite`: Perl's without look-around and back-references; classes such as `\w` are ASCII.
#[derive(Clone)]
pub struct Pattern {
    text: String,
    whole: Regex,
}

impl Pattern {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn new(text: &str) -> Result<Pattern, String> {
        if text.is_empty() || text.len() > MAX_LENGTH {
            return Err(format!("{} bytes long; allowed: 1 to {MAX_LENGTH}", text.len()));
        }
        let compile = |text: &str| RegexBuilder::new(text).size_limit(MAX_COMPILED).build();
        // On its own first: a pattern that closes a group too many would be a good one inside of another.
        let compiled = compile(text).and_then(|_| compile(&format!("^(?:{text})$")));
        match compiled {
            Ok(whole) => Ok(Pattern { text: text.to_owned(), whole }),
            Err(error) => Err(format!("no regular expression: {}", error.to_string().replace('\n', " "))),
        }
    }

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether the whole value matches. Bytes that aren't UTF-8 are matched as U+FFFD.
    pub(super) fn holds(&self, value: &[u8]) -> bool {
        self.whole.is_match(&String::from_utf8_lossy(value))
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pattern({:?})", self.text)
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Pattern) -> bool {
        self.text == other.text
    }
}

impl Eq for Pattern {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_value_has_to_match() {
        let table: [(&str, &[u8], bool); 8] = [
            ("/v[0-9]+", b"/v12", true),
            ("/v[0-9]+", b"/v12/x", false),
            ("/v[0-9]+", b"x/v12", false),
            ("a|b", b"b", true),
            ("a|b", b"ab", false),
            ("(?i)gold", b"GOLD", true),
            ("a.", b"a\xff", true),
            ("a", b"a\n", false),
        ];
        for (pattern, value, wanted) in table {
            assert_eq!(Pattern::new(pattern).unwrap().holds(value), wanted, "{pattern} {value:?}");
        }
    }

    #[test]
    fn what_is_none_or_too_big_is_refused() {
        for bad in ["", "(", "a)(b", "[", "(?=x)", "\\1", "(a{500}){500}", &"a".repeat(MAX_LENGTH + 1)] {
            assert!(Pattern::new(bad).is_err(), "{bad}");
        }
        assert!(Pattern::new(&"a".repeat(MAX_LENGTH)).is_ok());
    }
}
