//! One call of the script: what is sent, and what its reply says.

use super::{Failure, MAX_DIGITS, Reply, decimal, digits, script};
use crate::limit::{Limit, MAX_COUNT, MAX_DELAY_MS, Outcome, Verdict};

/// Arguments of the script for each limit, behind the keys.
const ARGUMENTS: u64 = 5;
/// Integers of the reply for each limit.
const INTEGERS: usize = 4;

/// One limit of one check.
#[derive(Debug)]
pub struct LimitCall<'a> {
    /// Its Redis key.
    pub key: Vec<u8>,
    /// The limit.
    pub limit: &'a Limit,
    /// What the request takes.
    pub cost: u64,
}

/// A call of the script for some limits, which are charged together or not at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// How many words follow the script: the number of keys, the keys, the arguments.
    words: u64,
    /// These words, in RESP.
    tail: Vec<u8>,
    limits: usize,
}

impl Call {
    /// The call for these limits, in this order.
    pub fn new(limits: &[LimitCall<'_>]) -> Call {
        let count = u64::try_from(limits.len()).unwrap_or(u64::MAX);
        let mut tail = Vec::with_capacity(limits.len().saturating_mul(160));
        number(&mut tail, count);
        for limit in limits {
            bulk(&mut tail, &limit.key);
        }
        for LimitCall { limit, cost, .. } in limits {
            bulk(&mut tail, limit.algorithm().code().as_bytes());
            for argument in [limit.count(), limit.window_ms(), limit.burst(), *cost] {
                number(&mut tail, argument);
            }
        }
        let words = count.saturating_mul(ARGUMENTS.saturating_add(1)).saturating_add(1);
        Call { words, tail, limits: limits.len() }
    }

    /// A call that shows whether Redis is there and can be written: it charges a bucket of its own, which is gone after a millisecond,
    /// so that a Redis without memory and a replica refuse it as they refuse any other.
    pub fn greeting(key_prefix: &str) -> Call {
        let limit = Limit::SMALLEST;
        Call::new(&[LimitCall { key: format!("{key_prefix}:greeting").into_bytes(), limit: &limit, cost: 1 }])
    }

    /// Whether this reply to it shows that the store is there, and does what it should: a script that it doesn't know it gets with the
    /// next call.
    pub(super) fn is_answered_by(&self, reply: Reply) -> bool {
        reply.is_noscript() || verdicts(reply, self.limits).is_ok()
    }

    /// How many limits it is for.
    pub fn limits(&self) -> usize {
        self.limits
    }

    /// The command that calls the script by its SHA-1.
    pub fn evalsha(&self) -> Vec<u8> {
        self.command(b"EVALSHA", script::SHA1)
    }

    /// The command that brings the script along.
    pub fn eval(&self) -> Vec<u8> {
        self.command(b"EVAL", script::SOURCE)
    }

    fn command(&self, verb: &[u8], script: &str) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.tail.len().saturating_add(script.len()).saturating_add(48));
        array(&mut out, self.words.saturating_add(2));
        bulk(&mut out, verb);
        bulk(&mut out, script.as_bytes());
        out.extend(&self.tail);
        out
    }
}

/// The verdicts in a reply to a call for that many limits.
///
/// # Errors
/// Anything that isn't wholly as the script writes it is a failure of the store: never a denial, never an admission.
pub fn verdicts(reply: Reply, limits: usize) -> Result<Vec<Verdict>, Failure> {
    let Reply::Integers(integers) = reply.checked()? else { return Err(Failure::BadReply("not an array of integers")) };
    if Some(integers.len()) != limits.checked_mul(INTEGERS) {
        return Err(Failure::BadReply("not four integers for each limit"));
    }
    let bad = Failure::BadReply("an integer is out of range");
    integers.chunks_exact(INTEGERS).map(verdict).collect::<Option<_>>().ok_or(bad)
}

fn verdict(integers: &[i64]) -> Option<Verdict> {
    let [status, remaining, retry, reset] = integers else { return None };
    let remaining = u64::try_from(*remaining).ok().filter(|n| *n <= MAX_COUNT)?;
    let retry_ms = u64::try_from(*retry).ok()?;
    let reset_ms = u64::try_from(*reset).ok()?;
    // An allowed request is let in now, or is to be held back so long.
    let (outcome, delay_ms) = match (*status, retry_ms) {
        (0, 1..) => (Outcome::Denied { retry_ms }, 0),
        (1, 0..=MAX_DELAY_MS) => (Outcome::Allowed, retry_ms),
        (2, 0) => (Outcome::NeverPasses, 0),
        _ => return None,
    };
    Some(Verdict { outcome, remaining, reset_ms, delay_ms })
}

/// The start of an array of so many words.
fn array(out: &mut Vec<u8>, words: u64) {
    out.push(b'*');
    decimal(out, words);
    out.extend(b"\r\n");
}

/// A command of these words.
pub(super) fn command(words: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::with_capacity(words.iter().map(|word| word.len().saturating_add(16)).sum());
    array(&mut out, u64::try_from(words.len()).unwrap_or(u64::MAX));
    words.iter().for_each(|word| bulk(&mut out, word));
    out
}

fn bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'$');
    decimal(out, u64::try_from(bytes.len()).unwrap_or(u64::MAX));
    out.extend(b"\r\n");
    out.extend(bytes);
    out.extend(b"\r\n");
}

fn number(out: &mut Vec<u8>, number: u64) {
    bulk(out, digits(number, &mut [0; MAX_DIGITS]));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_one_command_of_bulk_strings() {
        let limit = Limit::token_bucket(100, 60_000, 3).unwrap();
        let call = Call::new(&[LimitCall { key: b"rl:{r:a\r\nb}:tb:60000".to_vec(), limit: &limit, cost: 2 }]);
        let wanted = format!(
            "*9\r\n$7\r\nEVALSHA\r\n$40\r\n{}\r\n$1\r\n1\r\n$20\r\nrl:{{r:a\r\nb}}:tb:60000\r\n\
             $2\r\ntb\r\n$3\r\n100\r\n$5\r\n60000\r\n$1\r\n3\r\n$1\r\n2\r\n",
            script::SHA1
        );
        assert_eq!(String::from_utf8(call.evalsha()).unwrap(), wanted);
        let eval = String::from_utf8(call.eval()).unwrap();
        assert!(eval.starts_with(&format!("*9\r\n$4\r\nEVAL\r\n${}\r\n", script::SOURCE.len())), "{eval}");
    }

    #[test]
    fn a_reply_as_the_script_writes_it_is_its_verdicts() {
        let reply = Reply::Integers(vec![1, 2, 0, 1200, 0, 0, 600, 1800, 2, 3, 0, 0, 1, 1, 700, 900]);
        let wanted = [
            Verdict { outcome: Outcome::Allowed, remaining: 2, reset_ms: 1200, delay_ms: 0 },
            Verdict { outcome: Outcome::Denied { retry_ms: 600 }, remaining: 0, reset_ms: 1800, delay_ms: 0 },
            Verdict { outcome: Outcome::NeverPasses, remaining: 3, reset_ms: 0, delay_ms: 0 },
            Verdict { outcome: Outcome::Allowed, remaining: 1, reset_ms: 900, delay_ms: 700 },
        ];
        assert_eq!(verdicts(reply, 4).unwrap(), wanted);
    }

    #[test]
    fn anything_else_is_a_failure() {
        let bad = [
            Reply::Integers(vec![]),
            Reply::Integers(vec![1, 2, 0]),
            Reply::Integers(vec![1, 2, 0, 0, 1]),
            Reply::Integers(vec![3, 2, 0, 0]),
            Reply::Integers(vec![-1, 2, 0, 0]),
            Reply::Integers(vec![1, -8, 0, 0]),
            Reply::Integers(vec![1, 1 << 53, 0, 0]),
            Reply::Integers(vec![0, 0, 0, 0]),
            Reply::Integers(vec![0, 0, -1, 0]),
            Reply::Integers(vec![1, 0, 3_600_001, 0]),
            Reply::Integers(vec![2, 0, 5, 0]),
            Reply::Integers(vec![1, 0, 0, -2]),
            Reply::Status("OK".to_owned()),
            Reply::Other,
            Reply::Error("LOADING Redis is loading the dataset in memory".to_owned()),
        ];
        for reply in bad {
            assert!(verdicts(reply.clone(), 1).is_err(), "{reply:?}");
        }
    }
}
