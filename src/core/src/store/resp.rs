//! An incremental decoder of RESP2 replies, of which flat arrays count: of integers (verdicts), and of texts (live overrides).
//!
//! Everything that Redis may send is understood well enough to find its end, so that one odd reply doesn't put the ones
//! behind it out of step. Lengths are bounded and nesting takes no stack: neither a broken nor a hostile peer can take the
//! VM's memory. (The crate `redis-protocol` recurses once for each `*1` of a nested array, without a limit.)

use super::Failure;

/// The most bytes of one reply.
pub const MAX_REPLY: usize = 1 << 20;

/// The most characters kept of an error or a status.
const MAX_TEXT: usize = 200;

/// One reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// An array of integers and nothing else.
    Integers(Vec<i64>),
    /// An array of bulk strings and nothing else, of one at least.
    Texts(Vec<Vec<u8>>),
    /// A status, such as `PONG`.
    Status(String),
    /// An error, such as `NOSCRIPT No matching script`.
    Error(String),
    /// Any other reply.
    Other,
}

impl Reply {
    /// An error is a failure of the store.
    pub(super) fn checked(self) -> Result<Reply, Failure> {
        match self {
            Reply::Error(text) => Err(Failure::Error(text)),
            reply => Ok(reply),
        }
    }

    /// Whether Redis doesn't know the script that it was to run.
    pub(super) fn is_noscript(&self) -> bool {
        matches!(self, Reply::Error(text) if text.starts_with("NOSCRIPT"))
    }
}

/// What came isn't RESP, or a reply over [`MAX_REPLY`]; where the next reply begins can't be known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// Puts replies together from bytes that may be cut anywhere.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: Vec<u8>,
    read: usize,
}

impl Decoder {
    /// Takes the next bytes of the stream.
    pub fn feed(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.read.min(self.buffer.len()));
        self.read = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole reply; `None` where more bytes are needed.
    ///
    /// # Errors
    /// The stream can't be read on from here.
    pub fn next_reply(&mut self) -> Result<Option<Reply>, Malformed> {
        let unread = self.buffer.get(self.read..).unwrap_or_default();
        match reply(unread)? {
            Some((reply, used)) if used <= MAX_REPLY => {
                self.read = self.read.saturating_add(used);
                Ok(Some(reply))
            }
            None if unread.len() <= MAX_REPLY => Ok(None),
            _ => Err(Malformed),
        }
    }
}

/// Every reply of a text that ends with the last one.
///
/// # Errors
/// It isn't RESP, or breaks off.
pub(super) fn replies(text: &[u8]) -> Result<Vec<Reply>, Failure> {
    let mut decoder = Decoder::default();
    decoder.feed(text);
    let mut replies = Vec::new();
    while let Some(reply) = decoder.next_reply().map_err(|Malformed| Failure::BadReply("not RESP"))? {
        replies.push(reply);
    }
    if decoder.read == decoder.buffer.len() { Ok(replies) } else { Err(Failure::BadReply("it breaks off")) }
}

/// One element of a reply.
enum Element<'b> {
    Integer(i64),
    Status(&'b [u8]),
    Error(&'b [u8]),
    Array(usize),
    Text(&'b [u8]),
    Other,
}

/// The reply at the start of `bytes` and its length.
fn reply(bytes: &[u8]) -> Result<Option<(Reply, usize)>, Malformed> {
    let Some((first, mut rest)) = element(bytes)? else { return Ok(None) };
    let reply = match first {
        Element::Array(items) => {
            let (mut integers, mut texts) = (Some(Vec::new()), Some(Vec::new()));
            let mut left = items;
            while left > 0 {
                let Some((item, after)) = element(rest)? else { return Ok(None) };
                rest = after;
                left = left.saturating_sub(1);
                if let Element::Array(inner) = item {
                    left = left.saturating_add(inner);
                }
                match (item, &mut integers, &mut texts) {
                    (Element::Integer(number), Some(integers), _) => {
                        integers.push(number);
                        texts = None;
                    }
                    (Element::Text(text), _, Some(texts)) => {
                        texts.push(text.to_vec());
                        integers = None;
                    }
                    _ => (integers, texts) = (None, None),
                }
                if left > MAX_REPLY {
                    return Err(Malformed);
                }
            }
            match (integers, texts) {
                (Some(integers), _) => Reply::Integers(integers),
                (None, Some(texts)) => Reply::Texts(texts),
                (None, None) => Reply::Other,
            }
        }
        Element::Status(text) => Reply::Status(printable(text)),
        Element::Error(text) => Reply::Error(printable(text)),
        Element::Integer(_) | Element::Text(_) | Element::Other => Reply::Other,
    };
    Ok(Some((reply, bytes.len().saturating_sub(rest.len()))))
}

/// The element at the start of `bytes`, without the items of an array, and what is behind it.
fn element(bytes: &[u8]) -> Result<Option<(Element<'_>, &[u8])>, Malformed> {
    let [kind, body @ ..] = bytes else { return Ok(None) };
    if !b"+-:$*".contains(kind) {
        return Err(Malformed);
    }
    let Some(end) = body.iter().position(|b| *b == b'\r') else { return Ok(None) };
    let (line, rest) = body.split_at(end);
    let rest = match rest {
        [b'\r', b'\n', rest @ ..] => rest,
        [b'\r'] => return Ok(None),
        _ => return Err(Malformed),
    };
    let element = match *kind {
        b'+' => Element::Status(line),
        b'-' => Element::Error(line),
        b':' => Element::Integer(integer(line).ok_or(Malformed)?),
        kind => match (kind, length(line)?) {
            (b'*', Some(items)) => Element::Array(items),
            (_, None) => Element::Other,
            (_, Some(size)) => return Ok(blob(rest, size)?.map(|(text, rest)| (Element::Text(text), rest))),
        },
    };
    Ok(Some((element, rest)))
}

/// A text, and what is behind it.
type Split<'b> = (&'b [u8], &'b [u8]);

/// A bulk string of `size` bytes, and what is behind it.
fn blob(bytes: &[u8], size: usize) -> Result<Option<Split<'_>>, Malformed> {
    match bytes.split_at_checked(size) {
        Some((text, [b'\r', b'\n', rest @ ..])) => Ok(Some((text, rest))),
        Some((_, [] | [b'\r'])) | None => Ok(None),
        Some(_) => Err(Malformed),
    }
}

/// A length: at most [`MAX_REPLY`], or `None` for -1, null.
fn length(line: &[u8]) -> Result<Option<usize>, Malformed> {
    match integer(line) {
        Some(-1) => Ok(None),
        Some(length) => match usize::try_from(length) {
            Ok(length) if length <= MAX_REPLY => Ok(Some(length)),
            _ => Err(Malformed),
        },
        None => Err(Malformed),
    }
}

fn integer(line: &[u8]) -> Option<i64> {
    let plain = line.strip_prefix(b"-").unwrap_or(line);
    let digits = !plain.is_empty() && plain.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(line).ok().filter(|_| digits)?.parse().ok()
}

/// The start of a text with nothing in it that a log line can't hold.
pub(super) fn printable(text: &[u8]) -> String {
    let shown = |b: &u8| if matches!(b, b' '..=b'~') { char::from(*b) } else { '?' };
    text.iter().take(MAX_TEXT).map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(bytes: &[u8], cut: usize) -> Result<Vec<Reply>, Malformed> {
        let mut decoder = Decoder::default();
        let mut replies = Vec::new();
        for chunk in bytes.chunks(cut.max(1)) {
            decoder.feed(chunk);
            while let Some(reply) = decoder.next_reply()? {
                replies.push(reply);
            }
        }
        Ok(replies)
    }

    #[test]
    fn every_kind_of_reply_is_one_reply_wherever_it_is_cut() {
        let bytes: &[u8] =
            b"*4\r\n:1\r\n:2\r\n:-3\r\n:0\r\n+PONG\r\n-NOSCRIPT No matching script.\r\n$-1\r\n*-1\r\n$3\r\na\r\n\r\n\
            :7\r\n*0\r\n*2\r\n*1\r\n:1\r\n$0\r\n\r\n*1\r\n+x\r\n*2\r\n$1\r\n0\r\n$3\r\n\r\n\xff\r\n*2\r\n$1\r\n0\r\n:1\r\n*1\r\n$-1\r\n";
        let wanted = [
            Reply::Integers(vec![1, 2, -3, 0]),
            Reply::Status("PONG".to_owned()),
            Reply::Error("NOSCRIPT No matching script.".to_owned()),
            Reply::Other,
            Reply::Other,
            Reply::Other,
            Reply::Other,
            Reply::Integers(vec![]),
            Reply::Other,
            Reply::Other,
            Reply::Texts(vec![b"0".to_vec(), b"\r\n\xff".to_vec()]),
            Reply::Other,
            Reply::Other,
        ];
        for cut in 1..=bytes.len() {
            assert_eq!(all(bytes, cut).unwrap(), wanted, "cut every {cut} bytes");
        }
    }

    #[test]
    fn what_is_not_resp_is_malformed() {
        let bad: [&[u8]; 12] = [
            b"HTTP/1.1 400 Bad Request\r\n",
            b"<html>",
            b":x\r\n",
            b":1_0\r\n",
            b":+1\r\n",
            b":9223372036854775808\r\n",
            b"*x\r\n",
            b"*-2\r\n",
            b"*2147483647\r\n",
            b"$9223372036854775807\r\n",
            b"$3\r\nabcd\r\n",
            b"+a\rb\r\n",
        ];
        for bytes in bad {
            assert_eq!(all(bytes, bytes.len()), Err(Malformed), "{}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn a_reply_may_be_nested_deeply_and_is_passed_over() {
        let mut bytes = b"*1\r\n".repeat(100_000);
        bytes.extend(b":1\r\n+next\r\n");
        assert_eq!(all(&bytes, bytes.len()).unwrap(), [Reply::Other, Reply::Status("next".to_owned())]);
    }

    #[test]
    fn a_reply_without_an_end_is_given_up_at_the_limit() {
        let mut decoder = Decoder::default();
        decoder.feed(b"-");
        decoder.feed(&vec![b'x'; MAX_REPLY - 1]);
        assert_eq!(decoder.next_reply(), Ok(None));
        decoder.feed(b"x");
        assert_eq!(decoder.next_reply(), Err(Malformed));
    }

    #[test]
    fn texts_are_cut_and_made_printable() {
        let mut bytes = b"-ERR \x1b[2J\xff".to_vec();
        bytes.extend(vec![b'x'; 500]);
        bytes.extend(b"\r\n");
        let Reply::Error(text) = all(&bytes, 7).unwrap().remove(0) else { panic!("not an error") };
        assert!(text.starts_with("ERR ?[2J?xxx"), "{text}");
        assert_eq!(text.len(), MAX_TEXT);
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200), cut in 1_usize..50) {
            let _ = all(&bytes, cut);
        }

        #[test]
        fn near_misses_of_resp_are_decoded_or_refused(text in "([*$:+-][-0-9]{0,3}(\r\n|\r|\n)?){0,20}", cut in 1_usize..20) {
            let whole = all(text.as_bytes(), text.len());
            let cut = all(text.as_bytes(), cut);
            prop_assert_eq!(whole, cut);
        }
    }
}
