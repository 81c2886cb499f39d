use super::*;
use crate::limit::{MAX_COUNT, MAX_WINDOW_MS};
use proptest::prelude::*;

const ALLOWED: Outcome = Outcome::Allowed;

fn limit(count: u64, window_ms: u64, burst: u64) -> Limit {
    Limit::token_bucket(count, window_ms, burst).unwrap()
}

fn verdict(outcome: Outcome, remaining: u64, reset_ms: u64) -> Verdict {
    Verdict { outcome, remaining, reset_ms, delay_ms: 0 }
}

/// A bucket with its limit and a clock.
struct Bucket {
    limit: Limit,
    state: Option<State>,
}

impl Bucket {
    fn charge(&mut self, now_ms: u64, cost: u64) -> Verdict {
        let (verdict, state) = charge(self.state, &self.limit, now_ms, cost);
        self.state = state.or(self.state);
        verdict
    }
}

#[test]
fn a_bucket_starts_full_and_refills_steadily() {
    let mut bucket = Bucket { limit: limit(100, 60_000, 3), state: None };
    assert_eq!(bucket.charge(0, 1), verdict(ALLOWED, 2, 600));
    assert_eq!(bucket.charge(0, 1), verdict(ALLOWED, 1, 1200));
    assert_eq!(bucket.charge(0, 1), verdict(ALLOWED, 0, 1800));
    assert_eq!(bucket.charge(0, 1), verdict(Outcome::Denied { retry_ms: 600 }, 0, 1800));
    assert_eq!(bucket.charge(599, 1), verdict(Outcome::Denied { retry_ms: 1 }, 0, 1201));
    assert_eq!(bucket.charge(600, 1), verdict(ALLOWED, 0, 1800));
    assert_eq!(bucket.charge(1_000_000, 0), verdict(ALLOWED, 3, 0));
}

#[test]
fn fractions_are_not_lost_however_often_it_is_asked() {
    let mut bucket = Bucket { limit: limit(3, 1000, 2), state: None };
    let admitted = (0..=100_000).filter(|now| bucket.charge(*now, 1).outcome == ALLOWED).count();
    assert_eq!(admitted, 2 + 300, "two at once, and then three a second");
}

#[test]
fn a_cost_above_the_capacity_never_passes() {
    let mut bucket = Bucket { limit: limit(10, 1000, 5), state: None };
    assert_eq!(bucket.charge(0, 6), verdict(Outcome::NeverPasses, 5, 0));
    assert_eq!(bucket.state, None);
}

#[test]
fn a_changed_limit_holds_at_once_and_loses_nothing() {
    let mut bucket = Bucket { limit: limit(10, 1000, 10), state: None };
    bucket.charge(0, 4);
    bucket.limit = limit(10, 1000, 5);
    assert_eq!(bucket.charge(0, 0).remaining, 5, "lowered");
    bucket.limit = limit(10, 1000, 100);
    assert_eq!(bucket.charge(0, 0).remaining, 6, "raised: what was taken stays taken");
    bucket.limit = limit(1000, 1000, 100);
    assert_eq!(bucket.charge(10, 0).remaining, 16, "the new rate");
}

#[test]
fn the_greatest_numbers_do_not_overflow() {
    let mut bucket = Bucket { limit: limit(MAX_COUNT, MAX_WINDOW_MS, MAX_COUNT), state: None };
    assert_eq!(bucket.charge(0, 1 << 31).remaining, MAX_COUNT - (1 << 31));
    assert_eq!(bucket.charge(u64::MAX, 1).remaining, MAX_COUNT - 1);
    let mut bucket = Bucket { limit: limit(1, MAX_WINDOW_MS, MAX_COUNT), state: None };
    assert_eq!(bucket.charge(0, MAX_COUNT), verdict(ALLOWED, 0, MAX_WAIT_MS), "a wait that no number holds");
    let broken = State { tokens: u64::MAX, frac: u64::MAX, at_ms: 0 };
    assert_eq!(check(Some(broken), &bucket.limit, u64::MAX, 1).remaining, MAX_COUNT);
    assert_eq!(full_at_ms(State { tokens: 0, frac: 0, at_ms: u64::MAX }, &bucket.limit), u64::MAX);
}

#[test]
fn a_refund_is_what_was_taken_and_never_more_than_fits() {
    let limit = limit(10, 1000, 10);
    let (_, state) = charge(None, &limit, 0, 7);
    assert_eq!(check(Some(refund(state.unwrap(), &limit, 0, 7)), &limit, 0, 0).remaining, 10);
    assert_eq!(check(Some(refund(state.unwrap(), &limit, 0, 700)), &limit, 0, 0).remaining, 10);
}

fn limits() -> impl Strategy<Value = Limit> {
    let number = || prop_oneof![1_u64..=20, 1_u64..=100_000, 1_u64..=MAX_COUNT];
    let window = prop_oneof![1_u64..=10, 1_u64..=100_000, 1_u64..=MAX_WINDOW_MS];
    (number(), window, number()).prop_map(|(count, window, burst)| limit(count, window, burst))
}

fn states(limit: Limit) -> impl Strategy<Value = Option<State>> {
    let state = (0..=limit.burst(), 0..limit.window_ms(), 0_u64..1 << 42);
    prop_oneof![Just(None), state.prop_map(|(tokens, frac, at_ms)| Some(State { tokens, frac, at_ms }))]
}

/// A limit, a bucket of it, and a moment and cost that matter to it.
fn cases() -> impl Strategy<Value = (Limit, Option<State>, u64, u64)> {
    limits().prop_flat_map(|limit| {
        let cost = prop_oneof![0..=limit.burst(), 0_u64..=3];
        (Just(limit), states(limit), 0_u64..1 << 42, cost)
    })
}

proptest! {
    #[test]
    fn the_promised_moment_is_exact((limit, state, now, cost) in cases()) {
        if let Outcome::Denied { retry_ms } = check(state, &limit, now, cost).outcome {
            let state = charge(state, &limit, now, cost).1.or(state); // a clock that stepped back
            prop_assert!(retry_ms > 0);
            if retry_ms < MAX_WAIT_MS {
                prop_assert_eq!(check(state, &limit, now + retry_ms, cost).outcome, ALLOWED);
            }
            prop_assert_ne!(check(state, &limit, now + retry_ms - 1, cost).outcome, ALLOWED);
        }
    }

    #[test]
    fn reset_is_the_moment_from_which_it_is_full((limit, state, now, cost) in cases()) {
        let (verdict, stored) = charge(state, &limit, now, cost);
        let state = stored.or(state);
        let full = |at| state.is_none_or(|state| Level::of(Some(state), &limit, at).0 == super::full(&limit));
        if verdict.reset_ms < MAX_WAIT_MS {
            prop_assert!(full(now + verdict.reset_ms));
        }
        prop_assert!(verdict.reset_ms == 0 || !full(now + verdict.reset_ms - 1));
    }

    #[test]
    fn a_denied_request_leaves_the_bucket_as_it_is((limit, state, now, cost) in cases()) {
        let (verdict, stored) = charge(state, &limit, now, cost);
        if verdict.outcome != ALLOWED {
            prop_assert_eq!(check(stored.or(state), &limit, now, 0), check(state, &limit, now, 0));
        }
    }

    #[test]
    fn a_clock_that_steps_back_grants_nothing((limit, state, now, _) in cases(), back in 0_u64..1 << 42) {
        let before = check(state, &limit, now, 0).remaining;
        let stored = charge(state, &limit, now, 0).1.or(state);
        prop_assert!(check(stored, &limit, now.saturating_sub(back), 0).remaining <= before);
    }

    #[test]
    fn never_more_than_the_burst_and_the_rate_pass(
        (limit, _, _, _) in cases(),
        steps in proptest::collection::vec((0_u64..5000, 1_u64..10), 1..200),
    ) {
        let mut bucket = Bucket { limit, state: None };
        let (mut now, mut admitted) = (0, 0_u128);
        for (pause, cost) in steps {
            now += pause;
            if bucket.charge(now, cost).outcome == ALLOWED {
                admitted += u128::from(cost);
            }
            let refill = u128::from(limit.count()) * u128::from(now) / u128::from(limit.window_ms());
            prop_assert!(admitted <= u128::from(limit.burst()) + refill);
        }
    }
}
