//! Decisions without Redis: token buckets in the proxy's shared data, which all workers of an Envoy share.
//!
//! Shared data has no expiry and its keys can't be deleted, so there is a fixed number of keys, [`SLOTS`], and each holds
//! the buckets of up to [`slot::MAX_BUCKETS`] subjects. Writes are compare-and-swap with bounded retries.

mod slot;

pub use slot::{BucketId, MAX_BUCKETS};

use crate::limit::{Limit, Outcome, Verdict, token_bucket};
use crate::rules::Subject;

/// How many keys of shared data there are. With 48 bytes a bucket, all of them full hold 16,384 subjects in some 800 KiB.
pub const SLOTS: u32 = 1024;

/// How often a write that another worker got ahead of is tried again.
pub const ATTEMPTS: usize = 64;

/// Shared data as the buckets need it. Whoever implements it asks the host; tests keep a table.
pub trait SharedData {
    /// A slot's bytes and the number that a write has to name to replace them.
    ///
    /// # Errors
    /// The host can't say.
    fn read(&self, slot: u32) -> Result<(Vec<u8>, u32), Unavailable>;

    /// Replaces a slot's bytes if nobody has written it since it was read; whether it did.
    ///
    /// # Errors
    /// The host can't say.
    fn write(&self, slot: u32, bytes: &[u8], read: u32) -> Result<bool, Unavailable>;
}

/// The host's shared data doesn't work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unavailable;

/// A request's charge on one limit.
#[derive(Debug)]
pub struct Charge<'a> {
    /// The bucket.
    pub bucket: BucketId,
    /// Its limit.
    pub limit: &'a Limit,
    /// What the request takes.
    pub cost: u64,
}

impl<'a> Charge<'a> {
    /// The charge of a rule on a subject.
    pub fn new(rule: &str, subject: &Subject, limit: &'a Limit, cost: u64) -> Charge<'a> {
        Charge { bucket: BucketId::of(rule, subject, limit), limit, cost }
    }
}

/// Charges all of them or none, and says what each limit makes of it.
///
/// A bucket that other workers write without pause denies for a millisecond, once the attempts are used up: it is at its
/// limit, or about to be, and admitting unseen would be a hole.
///
/// # Errors
/// Shared data doesn't work; nothing was charged that could be given back.
pub fn charge_all(data: &impl SharedData, charges: &[Charge<'_>], now_ms: u64) -> Result<Vec<Verdict>, Unavailable> {
    // One alone needs no look ahead.
    if charges.len() > 1 {
        let seen: Vec<Verdict> = charges.iter().map(|charge| look(data, charge, now_ms)).collect::<Result<_, _>>()?;
        if seen.iter().any(|verdict| verdict.outcome != Outcome::Allowed) {
            return Ok(seen);
        }
    }
    let mut verdicts = Vec::with_capacity(charges.len());
    for (done, charge) in charges.iter().enumerate() {
        let verdict = take(data, charge, now_ms);
        let refused = !matches!(verdict, Ok(Verdict { outcome: Outcome::Allowed, .. }));
        if refused {
            for earlier in charges.iter().take(done) {
                // What can't be given back stays charged: too strict for one request, never too lax.
                let _ = give_back(data, earlier, now_ms);
            }
        }
        verdicts.push(verdict?);
        if refused {
            break;
        }
    }
    Ok(verdicts)
}

fn look(data: &impl SharedData, charge: &Charge<'_>, now_ms: u64) -> Result<Verdict, Unavailable> {
    let (bytes, _) = data.read(charge.bucket.slot())?;
    Ok(token_bucket::check(slot::find(&bytes, charge.bucket), charge.limit, now_ms, charge.cost))
}

fn take(data: &impl SharedData, charge: &Charge<'_>, now_ms: u64) -> Result<Verdict, Unavailable> {
    let taken = update(data, charge, now_ms, |state| {
        let (verdict, state) = token_bucket::charge(state, charge.limit, now_ms, charge.cost);
        (state, verdict)
    })?;
    Ok(taken.unwrap_or(Verdict { outcome: Outcome::Denied { retry_ms: 1 }, remaining: 0, reset_ms: 1, delay_ms: 0 }))
}

fn give_back(data: &impl SharedData, charge: &Charge<'_>, now_ms: u64) -> Result<(), Unavailable> {
    update(data, charge, now_ms, |state| {
        (state.map(|state| token_bucket::refund(state, charge.limit, now_ms, charge.cost)), ())
    })?;
    Ok(())
}

/// Reads a bucket, writes what `step` makes of it where it makes something, and gives what it says; `None` where other workers
/// got ahead every time.
fn update<T>(
    data: &impl SharedData,
    charge: &Charge<'_>,
    now_ms: u64,
    step: impl Fn(Option<token_bucket::State>) -> (Option<token_bucket::State>, T),
) -> Result<Option<T>, Unavailable> {
    let slot = charge.bucket.slot();
    for _ in 0..ATTEMPTS {
        let (bytes, read) = data.read(slot)?;
        let (state, said) = step(slot::find(&bytes, charge.bucket));
        let Some(state) = state else { return Ok(Some(said)) };
        let full_at_ms = token_bucket::full_at_ms(state, charge.limit);
        let bytes = slot::replace(&bytes, charge.bucket, state, full_at_ms, now_ms);
        if data.write(slot, &bytes, read)? {
            return Ok(Some(said));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests;
