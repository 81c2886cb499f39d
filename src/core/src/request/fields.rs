//! Values inside of headers: cookies, query parameters, claims of a bearer token.

use base64::Engine;
use base64::alphabet::URL_SAFE;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use percent_encoding::percent_decode;
use serde_json::value::RawValue;
use std::collections::HashMap;

/// The longest bearer token that is looked into, in bytes.
pub const MAX_TOKEN: usize = 16 * 1024;

/// The first cookie of that name in the `cookie` header's lines: without the spaces around it and one pair of quotes.
pub fn cookie<'h>(lines: impl Iterator<Item = &'h [u8]>, name: &str) -> Option<&'h [u8]> {
    let mut pieces = lines.flat_map(|line| line.split(|b| *b == b';'));
    pieces.find_map(|piece| {
        let equals = piece.iter().position(|b| *b == b'=')?;
        let (given, value) = piece.split_at(equals);
        let value = value.get(1..)?.trim_ascii();
        let unquoted = value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\""));
        (given.trim_ascii() == name.as_bytes()).then(|| unquoted.unwrap_or(value))
    })
}

/// The first query parameter of that name in a request target, decoded: `%20` and `+` are a space.
pub fn query(target: &[u8], name: &str) -> Option<Vec<u8>> {
    let end = target.iter().position(|b| *b == b'#').unwrap_or(target.len());
    let target = target.get(..end)?;
    let start = target.iter().position(|b| *b == b'?')?;
    let decode = |text: &[u8]| -> Vec<u8> {
        let spaced: Vec<u8> = text.iter().map(|b| if *b == b'+' { b' ' } else { *b }).collect();
        percent_decode(&spaced).collect()
    };
    target.get(start..)?.get(1..)?.split(|b| *b == b'&').find_map(|pair| {
        let equals = pair.iter().position(|b| *b == b'=').unwrap_or(pair.len());
        let (given, value) = pair.split_at(equals);
        (decode(given) == name.as_bytes()).then(|| decode(value.get(1..).unwrap_or_default()))
    })
}

/// A claim of the bearer token in an `authorization` header: a string as it is, a number or boolean as its JSON text.
///
/// The token is **not** verified. `name` is a claim's name, or a path of names with dots between them; a name with dots in it
/// (`https://example.com/plan`) is found as well. `None` for what isn't there, objects and arrays, a header of another
/// scheme, and a token that isn't one or is over [`MAX_TOKEN`].
pub fn claim(authorization: &[u8], name: &str) -> Option<Vec<u8>> {
    const BASE64URL: GeneralPurpose = GeneralPurpose::new(
        &URL_SAFE,
        GeneralPurposeConfig::new()
            .with_decode_padding_mode(DecodePaddingMode::Indifferent)
            .with_decode_allow_trailing_bits(true),
    );
    let authorization = authorization.trim_ascii();
    let space = authorization.iter().position(|b| *b == b' ')?;
    let (scheme, token) = authorization.split_at(space);
    let token = token.trim_ascii_start();
    if !scheme.eq_ignore_ascii_case(b"bearer") || token.len() > MAX_TOKEN {
        return None;
    }
    let mut parts = token.split(|b| *b == b'.');
    let (_, payload, _) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() {
        return None;
    }
    find(&BASE64URL.decode(payload).ok()?, name)
}

fn find(object: &[u8], name: &str) -> Option<Vec<u8>> {
    // Raw, so that a number keeps all of its digits.
    let fields: HashMap<String, &RawValue> = serde_json::from_slice(object).ok()?;
    if let Some(value) = fields.get(name) {
        return scalar(value.get());
    }
    name.match_indices('.').find_map(|(dot, _)| {
        let (outer, inner) = (name.get(..dot)?, name.get(dot.saturating_add(1)..)?);
        find(fields.get(outer)?.get().as_bytes(), inner)
    })
}

fn scalar(json: &str) -> Option<Vec<u8>> {
    match json.bytes().next()? {
        b'"' => serde_json::from_str::<String>(json).ok().map(String::into_bytes),
        b'{' | b'[' | b'n' => None,
        _ => Some(json.as_bytes().to_vec()),
    }
}

/// The integer that a text is, or the greatest one where it is beyond that. `None` where it isn't plain digits.
pub fn integer(text: &[u8]) -> Option<u64> {
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let number = std::str::from_utf8(text).ok().filter(|_| digits)?;
    Some(number.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::engine::general_purpose::{URL_SAFE as PADDED, URL_SAFE_NO_PAD as BARE};
    use proptest::prelude::*;

    #[test]
    fn cookies() {
        let table: [(&[&str], &str, Option<&str>); 12] = [
            (&["flag; sid=a=b=c; x=1"], "sid", Some("a=b=c")),
            (&["xsid=1; sid=2"], "sid", Some("2")),
            (&["sid=2;sid=3"], "sid", Some("2")),
            (&[" sid = v "], "sid", Some("v")),
            (&["sid=\"q\""], "sid", Some("q")),
            (&["sid=\"\"q\"\""], "sid", Some("\"q\"")),
            (&["sid=\""], "sid", Some("\"")),
            (&["a=1", "sid=2"], "sid", Some("2")),
            (&["sid"], "sid", None),
            (&["sid="], "sid", Some("")),
            (&["SID=1"], "sid", None),
            (&[], "sid", None),
        ];
        for (lines, name, wanted) in table {
            let found = cookie(lines.iter().map(|line| line.as_bytes()), name);
            assert_eq!(found, wanted.map(str::as_bytes), "{lines:?}");
        }
    }

    #[test]
    fn query_parameters() {
        let table = [
            ("/a?k=v", Some("v")),
            ("/a?x=1&k=v&k=w", Some("v")),
            ("/a?k=a%20b+c%2B", Some("a b c+")),
            ("/a?%6B=v", Some("v")),
            ("/a?k=a=b", Some("a=b")),
            ("/a?k=%zz%", Some("%zz%")),
            ("/a?k=1?k=2", Some("1?k=2")),
            ("/a?k", Some("")),
            ("/a?k=", Some("")),
            ("/a?K=v", None),
            ("/a#?k=v", None),
            ("/a?x=1#&k=v", None),
            ("/a", None),
            ("", None),
        ];
        for (target, wanted) in table {
            assert_eq!(query(target.as_bytes(), "k").as_deref(), wanted.map(str::as_bytes), "{target}");
        }
    }

    fn token(payload: &str) -> String {
        format!("e30.{}.c2ln", BARE.encode(payload))
    }

    #[test]
    fn claims() {
        let payload = r#"{"sub":"acme","n":12345,"big":123456789012345678901,"f":1.50,"b":true,"o":{"p":{"q":"deep"}},
            "https://example.com/plan":"gold","a.b":"dotted","a":{"b":"nested"},"l":[1],"z":null,"e":"","u":"\u00e9"}"#;
        let table = [
            ("sub", Some("acme")),
            ("n", Some("12345")),
            ("big", Some("123456789012345678901")),
            ("f", Some("1.50")),
            ("b", Some("true")),
            ("o.p.q", Some("deep")),
            ("https://example.com/plan", Some("gold")),
            ("a.b", Some("dotted")),
            ("u", Some("é")),
            ("e", Some("")),
            ("o", None),
            ("l", None),
            ("z", None),
            ("sub.x", None),
            ("nobody", None),
        ];
        for (name, wanted) in table {
            let found = claim(format!("Bearer {}", token(payload)).as_bytes(), name);
            assert_eq!(found.as_deref(), wanted.map(str::as_bytes), "{name}");
        }
    }

    #[test]
    fn the_scheme_has_any_case_and_the_token_any_length_and_padding() {
        for scheme in ["Bearer", "bearer", "BEARER ", "bEaReR   "] {
            // Lengths of 0, 1 and 2 modulo 3, and bytes that give `-` and `_`.
            for sub in ["ab", "abc", "abcd", "ÿþ?>~", "\u{ffff}\u{fffe}"] {
                let payload = format!(r#"{{"sub":"{sub}"}}"#);
                for encoded in [PADDED.encode(&payload), BARE.encode(&payload)] {
                    let header = format!("{scheme} e30.{encoded}.c2ln");
                    assert_eq!(claim(header.as_bytes(), "sub").as_deref(), Some(sub.as_bytes()), "{header}");
                }
            }
        }
    }

    #[test]
    fn what_is_no_token_has_no_claims() {
        let long = format!(r#"{{"sub":"{}"}}"#, "x".repeat(MAX_TOKEN));
        let two_parts = token(r#"{"sub":"a"}"#).rsplit_once('.').unwrap().0.to_owned();
        let four_parts = format!("{}.x", token(r#"{"sub":"a"}"#));
        for junk in [
            "Bearer",
            "Bearer ",
            "Bearer x",
            "Bearer ..",
            "Bearer a.b.c",
            "Basic YTpi",
            "",
            " ",
            &format!("Basic {}", token(r#"{"sub":"a"}"#)),
            &format!("Bearer {}", token("[1]")),
            &format!("Bearer {}", token("sub")),
            &format!("Bearer {}", token(&long)),
            &format!("Bearer {two_parts}"),
            &format!("Bearer {four_parts}"),
            &format!("Bearer {0},Bearer {0}", token(r#"{"sub":"a"}"#)),
        ] {
            assert_eq!(claim(junk.as_bytes(), "sub"), None, "{junk}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_missing(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            cookie(std::iter::once(bytes.as_slice()), "k");
            query(&bytes, "k");
            claim(&bytes, "k");
            let mut header = b"Bearer e30.".to_vec();
            header.extend(BARE.encode(&bytes).into_bytes());
            header.extend(b".x");
            claim(&header, "a.b");
        }
    }
}
