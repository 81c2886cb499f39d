//! One path for all its spellings (RFC 3986 section 6.2.2, and runs of `/` merged), so that none of them dodges a rule.

/// The path of a request target: without query and fragment, percent-encoded unreserved characters decoded, other escapes
/// in upper-case hex, `.` and `..` resolved, runs of `/` merged. A `%` that begins no escape becomes `%25`; other bytes stay.
pub fn normalise(target: &[u8]) -> Vec<u8> {
    let end = target.iter().position(|b| matches!(b, b'?' | b'#')).unwrap_or(target.len());
    let target = target.get(..end).unwrap_or_default();
    if is_normal(target) {
        return target.to_vec();
    }
    resolve(target)
}

/// Whether nothing is to be done: the usual path has no escape, no empty segment and none that begins with a dot.
fn is_normal(path: &[u8]) -> bool {
    let mut before = 0;
    path.first() == Some(&b'/')
        && path.iter().all(|byte| {
            let plain = *byte != b'%' && !(before == b'/' && matches!(byte, b'/' | b'.'));
            before = *byte;
            plain
        })
}

fn resolve(path: &[u8]) -> Vec<u8> {
    let decoded = decode_unreserved(path);
    if !decoded.starts_with(b"/") {
        return decoded; // `*`, or a CONNECT's authority
    }
    let mut segments: Vec<&[u8]> = Vec::new();
    let mut directory = true; // whether the path ends in a slash
    for segment in decoded.split(|b| *b == b'/') {
        directory = matches!(segment, b"" | b"." | b"..");
        match segment {
            b"" | b"." => {}
            b".." => {
                segments.pop();
            }
            _ => segments.push(segment),
        }
    }
    let mut path = Vec::with_capacity(decoded.len());
    for segment in &segments {
        path.push(b'/');
        path.extend_from_slice(segment);
    }
    if directory {
        path.push(b'/');
    }
    path
}

fn decode_unreserved(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path;
    while let [first, after @ ..] = rest {
        rest = after;
        if let (b'%', [high, low, after @ ..]) = (*first, after)
            && let (Some(h), Some(l)) = (hex(*high), hex(*low))
        {
            rest = after;
            let byte = (h << 4) | l;
            if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
                out.push(byte);
            } else {
                out.extend([b'%', high.to_ascii_uppercase(), low.to_ascii_uppercase()]);
            }
        } else if *first == b'%' {
            out.extend(b"%25"); // no escape; left bare, it could become one together with what is decoded behind it
        } else {
            out.push(*first);
        }
    }
    out
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn spellings_of_a_path_are_one_path() {
        let table = [
            ("/login", "/login"),
            ("/login?x=1", "/login"),
            ("/login#f", "/login"),
            ("/login/", "/login/"),
            ("//login", "/login"),
            ("/a//b///c", "/a/b/c"),
            ("/%6Cogin", "/login"),
            ("/%6cogin", "/login"),
            ("/a%2fb", "/a%2Fb"),
            ("/a/./b/../c", "/a/c"),
            ("/a/..", "/"),
            ("/a/b/..", "/a/"),
            ("/a/.", "/a/"),
            ("/../../a", "/a"),
            ("/%2e%2E/a", "/a"),
            ("/a%zz%", "/a%25zz%25"),
            ("/%4%31", "/%2541"),
            ("/a?b/../c", "/a"),
            ("/", "/"),
            ("", ""),
            ("*", "*"),
        ];
        for (given, wanted) in table {
            assert_eq!(String::from_utf8_lossy(&normalise(given.as_bytes())), wanted, "{given}");
        }
    }

    proptest! {
        #[test]
        fn a_normalised_path_is_its_own_normal_form(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let mut target = vec![b'/'];
            target.extend(bytes);
            let once = normalise(&target);
            prop_assert_eq!(normalise(&once), once.clone());
        }

        #[test]
        fn a_path_that_looks_normal_is(path in "[/.%a2fF~-]{0,12}") {
            if is_normal(path.as_bytes()) {
                prop_assert_eq!(resolve(path.as_bytes()), path.into_bytes());
            }
        }
    }
}
