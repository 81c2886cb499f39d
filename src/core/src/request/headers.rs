//! A request's headers as the host hands them over, all at once: what a rule needs of them costs no further call.

use std::borrow::Cow;
use std::ops::Range;

/// Header lines in the order they came. Names are in lower case, pseudo-headers (`:path`) among them; values are any bytes.
#[derive(Clone, Debug, Default)]
pub struct Headers {
    bytes: Vec<u8>,
    /// Name and value of each line, by their places in `bytes`.
    lines: Vec<(Range<usize>, Range<usize>)>,
}

impl Headers {
    /// Reads the format in which a proxy-wasm host writes maps: the number of pairs, the lengths of each name and value, then
    /// these, each with a NUL behind it; numbers are little-endian and have 32 bits. What is cut short ends where it is cut.
    pub fn from_pairs(bytes: Vec<u8>) -> Headers {
        let number = |at: usize| {
            let digits = bytes.get(at..at.checked_add(4)?)?;
            usize::try_from(u32::from_le_bytes(digits.try_into().ok()?)).ok()
        };
        let count = number(0).unwrap_or(0);
        let mut lines = Vec::new();
        let mut at = count.saturating_mul(8).saturating_add(4);
        let mut text = |length: usize| {
            let range = at..at.checked_add(length)?;
            at = range.end.checked_add(1)?;
            (range.end < bytes.len()).then_some(range)
        };
        for place in 0..count {
            let lengths = place.saturating_mul(8).saturating_add(4);
            let Some((name, value)) = number(lengths).zip(number(lengths.saturating_add(4))) else { break };
            let Some(line) = text(name).and_then(|name| Some((name, text(value)?))) else { break };
            lines.push(line);
        }
        Headers { bytes, lines }
    }

    /// Headers of these names and values; names are put in lower case.
    pub fn new<N: AsRef<str>, V: AsRef<[u8]>>(given: impl IntoIterator<Item = (N, V)>) -> Headers {
        let mut headers = Headers::default();
        for (name, value) in given {
            let mut add = |text: &[u8]| {
                let start = headers.bytes.len();
                headers.bytes.extend_from_slice(text);
                start..headers.bytes.len()
            };
            let line = (add(name.as_ref().to_ascii_lowercase().as_bytes()), add(value.as_ref()));
            headers.lines.push(line);
        }
        headers
    }

    /// The values of the lines of that lower-case name.
    pub fn lines<'h>(&'h self, name: &str) -> impl Iterator<Item = &'h [u8]> {
        let bytes = |range: &Range<usize>| self.bytes.get(range.clone()).unwrap_or_default();
        let named = self.lines.iter().filter(move |(given, _)| bytes(given) == name.as_bytes());
        named.map(move |(_, value)| bytes(value))
    }

    /// The value of the header of that lower-case name, several lines joined with `,`.
    pub fn get(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        let mut lines = self.lines(name);
        let mut value = Cow::Borrowed(lines.next()?);
        for line in lines {
            let joined = value.to_mut();
            joined.push(b',');
            joined.extend_from_slice(line);
        }
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pairs(lines: &[(&[u8], &[u8])]) -> Vec<u8> {
        let number = |n: usize| u32::try_from(n).unwrap().to_le_bytes();
        let mut out = number(lines.len()).to_vec();
        lines.iter().for_each(|(name, value)| out.extend([number(name.len()), number(value.len())].concat()));
        for text in lines.iter().flat_map(|(name, value)| [name, value]) {
            out.extend(*text);
            out.push(0);
        }
        out
    }

    #[test]
    fn lines_of_one_name_are_joined_and_any_bytes_are_a_value() {
        let headers = Headers::from_pairs(pairs(&[(b":path", b"/"), (b"k", b"a\0\xff"), (b"x", b""), (b"k", b"b")]));
        assert_eq!(headers.get("k").as_deref(), Some(&b"a\0\xff,b"[..]));
        assert_eq!(headers.get(":path").as_deref(), Some(&b"/"[..]));
        assert_eq!(headers.get("x").as_deref(), Some(&b""[..]));
        assert_eq!(headers.get("K"), None);
        assert_eq!(headers.lines("k").collect::<Vec<_>>(), [&b"a\0\xff"[..], b"b"]);
    }

    proptest! {
        #[test]
        fn any_bytes_are_headers(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let headers = Headers::from_pairs(bytes);
            prop_assert!(headers.lines.len() <= 200);
            headers.get("x");
        }

        #[test]
        fn a_map_that_is_cut_keeps_its_whole_lines(cut in 0_usize..60) {
            let whole = pairs(&[(b"a", b"1"), (b"b", b"22"), (b"c", b"333")]);
            let headers = Headers::from_pairs(whole.iter().copied().take(cut).collect());
            for (name, value) in [("a", &b"1"[..]), ("b", b"22"), ("c", b"333")] {
                prop_assert!(headers.get(name).is_none_or(|given| given == value));
            }
        }
    }
}
