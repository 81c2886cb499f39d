//! Redis, without I/O: what is sent, what comes back, and the stream or the callouts that it goes by.

mod breaker;
mod call;
mod callouts;
mod client;
mod frame;
mod health;
mod http;
mod journal;
mod link;
mod overrides;
mod resp;
pub mod script;

pub use breaker::Breaker;
pub use call::{Call, LimitCall, verdicts};
pub use client::{Client, Counter, Effect, MAX_WAITING, Ticket};
pub use frame::{Unframer, header as frame_header};
pub use http::{HttpCall, HttpReply};
pub use journal::{Away, Journal};
pub use overrides::{Overrides, Read};
pub use resp::{Decoder, MAX_REPLY, Malformed, Reply};

use std::fmt;

/// Why the store gave no verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No reply in time.
    Timeout,
    /// There is no stream to Redis, or it closed before the reply came.
    Disconnected,
    /// Not asked: too many failures in a row ([`Breaker`]).
    BreakerOpen,
    /// Not asked: [`MAX_WAITING`] calls wait already.
    Overloaded,
    /// Redis answered with an error.
    Error(String),
    /// What is between here and Redis answered with this status of HTTP.
    Status(u16),
    /// Redis answered with something that isn't the script's reply.
    BadReply(&'static str),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Timeout => f.write_str("no reply in time"),
            Failure::Disconnected => f.write_str("no connection"),
            Failure::BreakerOpen => f.write_str("not asked after failures in a row"),
            Failure::Overloaded => f.write_str("too many calls are waiting"),
            Failure::Error(text) => write!(f, "error reply: {text}"),
            Failure::Status(status) => write!(f, "HTTP status {status}"),
            Failure::BadReply(what) => write!(f, "unexpected reply: {what}"),
        }
    }
}

/// The most decimal digits of a number.
const MAX_DIGITS: usize = 20;

/// A number's plain decimal digits, at the end of `buffer`.
fn digits(number: u64, buffer: &mut [u8; MAX_DIGITS]) -> &[u8] {
    let mut rest = number;
    let mut used = 0_usize;
    for digit in buffer.iter_mut().rev() {
        *digit = b'0'.saturating_add(u8::try_from(rest % 10).unwrap_or_default());
        rest /= 10;
        used = used.saturating_add(1);
        if rest == 0 {
            break;
        }
    }
    buffer.get(MAX_DIGITS.saturating_sub(used)..).unwrap_or_default()
}

/// Writes a number in plain decimal digits.
pub(crate) fn decimal(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(digits(number, &mut [0; MAX_DIGITS]));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_plain_digits() {
        for number in [0, 7, 10, 999_999_999_999_999, (1 << 53) - 1, u64::MAX] {
            let mut out = Vec::new();
            decimal(&mut out, number);
            assert_eq!(out, number.to_string().into_bytes());
        }
    }
}
