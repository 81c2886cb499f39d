//! The bytes of a slot: a version, then the buckets, [`BUCKET`] bytes each.

use super::SLOTS;
use crate::limit::Limit;
use crate::limit::token_bucket::State;
use crate::rules::Subject;
use sha2::{Digest, Sha256};

/// The most buckets of a slot.
pub const MAX_BUCKETS: usize = 16;

/// The first byte of a slot. Bytes that begin otherwise are another version's and count as empty.
const VERSION: u8 = 1;
const ID: usize = 16;
/// A bucket: its id, `tokens`, `frac`, `at_ms`, and when it will be full, the last four as little-endian integers.
const BUCKET: usize = ID + 4 * 8;

/// Which bucket: half of a SHA-256 over rule, algorithm, window and subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BucketId([u8; ID]);

impl BucketId {
    /// The bucket of a rule's limit for a subject.
    pub fn of(rule: &str, subject: &Subject, limit: &Limit) -> BucketId {
        let mut hash = Sha256::new();
        for text in [rule, limit.algorithm().code(), subject.as_str()] {
            hash.update(text.as_bytes());
            hash.update([0]); // none of them holds a NUL
        }
        hash.update(limit.window_ms().to_le_bytes());
        let digest: [u8; 32] = hash.finalize().into();
        let mut id = [0; ID];
        id.iter_mut().zip(digest).for_each(|(to, from)| *to = from);
        BucketId(id)
    }

    /// The slot that it is kept in, below [`SLOTS`].
    pub fn slot(self) -> u32 {
        let [a, b, c, d, ..] = self.0;
        u32::from_le_bytes([a, b, c, d]) % SLOTS
    }
}

struct Bucket {
    id: BucketId,
    state: State,
    full_at_ms: u64,
}

/// The bucket's state, where the slot has it. A bucket that isn't there is full.
pub(super) fn find(bytes: &[u8], id: BucketId) -> Option<State> {
    buckets(bytes).find(|bucket| bucket.id == id).map(|bucket| bucket.state)
}

/// The slot's bytes with the bucket put in. Buckets that are full by now are left out: they are the same as none. Where there
/// is no place, the one that will be full soonest goes: it has the least to lose.
pub(super) fn replace(bytes: &[u8], id: BucketId, state: State, full_at_ms: u64, now_ms: u64) -> Vec<u8> {
    let mut kept: Vec<Bucket> = buckets(bytes).filter(|b| b.id != id && b.full_at_ms > now_ms).collect();
    kept.sort_by_key(|bucket| std::cmp::Reverse(bucket.full_at_ms));
    kept.truncate(MAX_BUCKETS.saturating_sub(1));
    kept.push(Bucket { id, state, full_at_ms });
    let mut out = Vec::with_capacity(kept.len().saturating_mul(BUCKET).saturating_add(1));
    out.push(VERSION);
    for Bucket { id, state, full_at_ms } in kept {
        out.extend(id.0);
        for number in [state.tokens, state.frac, state.at_ms, full_at_ms] {
            out.extend(number.to_le_bytes());
        }
    }
    out
}

fn buckets(bytes: &[u8]) -> impl Iterator<Item = Bucket> {
    let body = match bytes {
        [VERSION, body @ ..] => body,
        _ => &[],
    };
    body.chunks_exact(BUCKET).filter_map(|chunk| {
        let (id, rest) = chunk.split_first_chunk::<ID>()?;
        let (numbers, _) = rest.as_chunks::<8>();
        let [tokens, frac, at_ms, full_at_ms] = numbers else { return None };
        let state = State {
            tokens: u64::from_le_bytes(*tokens),
            frac: u64::from_le_bytes(*frac),
            at_ms: u64::from_le_bytes(*at_ms),
        };
        Some(Bucket { id: BucketId(*id), state, full_at_ms: u64::from_le_bytes(*full_at_ms) })
    })
}
