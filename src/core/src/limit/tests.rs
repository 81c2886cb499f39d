//! What holds for every algorithm.

use super::*;
use proptest::prelude::*;

const START_MS: u64 = 1_700_000_000_000;

/// A limit, and a history that has been played on it: what is stored in the end, and when that is.
#[derive(Debug)]
struct History {
    limit: Limit,
    state: Option<State>,
    now_ms: u64,
    /// What was admitted, and when.
    admitted: Vec<(u64, u64)>,
}

impl History {
    fn charge(&mut self, cost: u64) -> Verdict {
        let (verdict, stored) = State::charge(self.state.as_ref(), &self.limit, self.now_ms, cost);
        if stored.is_some() {
            self.state = stored;
        }
        if verdict.outcome == Outcome::Allowed {
            self.admitted.push((self.now_ms, cost));
        }
        verdict
    }

    fn check_at(&self, now_ms: u64, cost: u64) -> Verdict {
        State::check(self.state.as_ref(), &self.limit, now_ms, cost)
    }
}

fn limits() -> impl Strategy<Value = Limit> {
    let amounts = prop_oneof![4 => 1_u64..30, 1 => (MAX_COUNT - 3)..=MAX_COUNT, 1 => 1..=MAX_COUNT];
    let windows = prop_oneof![3 => 1_u64..50, 3 => 100_u64..5000, 1 => Just(60_000), 1 => 1..=MAX_WINDOW_MS];
    (proptest::sample::select(Algorithm::ALL.to_vec()), amounts.clone(), windows, amounts).prop_map(
        |(algorithm, count, window_ms, burst)| {
            let limit = Limit::new(algorithm, count, window_ms).unwrap();
            limit.with_burst(burst).unwrap_or(limit)
        },
    )
}

/// Requests whose costs are small, or parts of the burst; pauses are parts of the window, or months.
fn histories() -> impl Strategy<Value = History> {
    let cost = prop_oneof![3 => (1_u64..4).prop_map(Ok), 2 => (0.0..1.1).prop_map(Err)];
    let pause = prop_oneof![2 => Just(0.0), 6 => 0.0..1.5, 1 => 0.0..100.0];
    (limits(), proptest::collection::vec((cost, pause), 1..40), 0_u64..100_000).prop_map(|(limit, steps, start)| {
        let mut history = History { limit, state: None, now_ms: START_MS + start, admitted: Vec::new() };
        for (cost, pause) in steps {
            history.charge(cost.unwrap_or_else(|part: f64| (limit.burst() as f64 * part) as u64).min(MAX_COUNT));
            history.now_ms += (limit.window_ms() as f64 * pause) as u64;
        }
        history
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn a_denied_request_is_let_in_after_its_wait_and_not_a_millisecond_earlier(history in histories(), part in 0.0..1.0) {
        let cost = ((history.limit.burst() as f64 * part) as u64 + 1).min(history.limit.burst());
        if let Outcome::Denied { retry_ms } = history.check_at(history.now_ms, cost).outcome {
            prop_assert!(retry_ms >= 1);
            prop_assume!(retry_ms < MAX_WAIT_MS); // longer ones are told as this
            let outcome = |now_ms| history.check_at(now_ms, cost).outcome;
            prop_assert_eq!(outcome(history.now_ms + retry_ms), Outcome::Allowed);
            prop_assert_eq!(outcome(history.now_ms + retry_ms - 1), Outcome::Denied { retry_ms: 1 });
        }
    }

    #[test]
    fn what_was_denied_is_denied_until_its_wait_is_over_whatever_is_charged_meanwhile(
        mut history in histories(), part in 0.0..1.0, others in proptest::collection::vec((0_u64..4, 0.0..0.3), 1..8),
    ) {
        let cost = ((history.limit.burst() as f64 * part) as u64 + 1).min(history.limit.burst());
        if let Outcome::Denied { retry_ms } = history.check_at(history.now_ms, cost).outcome {
            let until_ms = history.now_ms + retry_ms;
            for (other, pause) in others {
                history.now_ms = (history.now_ms + (retry_ms as f64 * pause) as u64).min(until_ms - 1);
                history.charge(other);
                let outcome = history.check_at(history.now_ms, cost).outcome;
                prop_assert!(matches!(outcome, Outcome::Denied { .. }), "{outcome:?}");
            }
        }
    }

    #[test]
    fn all_of_it_is_there_again_at_the_reset_and_not_a_millisecond_earlier(history in histories()) {
        let reset_ms = history.check_at(history.now_ms, 0).reset_ms;
        prop_assume!(reset_ms < MAX_WAIT_MS);
        let remaining = |now_ms| history.check_at(now_ms, 0).remaining;
        prop_assert_eq!(remaining(history.now_ms + reset_ms), history.limit.burst());
        if reset_ms > 0 {
            prop_assert!(remaining(history.now_ms + reset_ms - 1) < history.limit.burst());
        }
    }

    #[test]
    fn what_is_allowed_stays_so_until_somebody_takes_it(history in histories(), part in 0.0..1.0, later in 0.0..3.0) {
        // So layers of limits allow a request after the longest of their waits.
        let cost = (history.limit.burst() as f64 * part) as u64;
        prop_assume!(history.check_at(history.now_ms, cost).outcome == Outcome::Allowed);
        let later_ms = (history.limit.window_ms() as f64 * later) as u64;
        prop_assert_eq!(history.check_at(history.now_ms + later_ms, cost).outcome, Outcome::Allowed);
    }

    #[test]
    fn what_remains_can_be_taken_and_no_more(mut history in histories()) {
        let remaining = history.check_at(history.now_ms, 0).remaining;
        prop_assert!(remaining <= history.limit.burst());
        prop_assert_ne!(history.check_at(history.now_ms, remaining + 1).outcome, Outcome::Allowed);
        let verdict = history.charge(remaining);
        prop_assert_eq!((verdict.outcome, verdict.remaining), (Outcome::Allowed, 0));
    }

    #[test]
    fn a_denied_request_and_one_that_costs_nothing_change_nothing(mut history in histories()) {
        let before = history.state.clone();
        let more = history.check_at(history.now_ms, 0).remaining + 1;
        history.charge(0);
        history.charge(more);
        prop_assert_eq!(history.state, before);
    }

    #[test]
    fn a_cost_above_the_limit_never_passes(history in histories()) {
        prop_assume!(history.limit.burst() < MAX_COUNT);
        let verdict = history.check_at(history.now_ms, history.limit.burst() + 1);
        prop_assert_eq!(verdict.outcome, Outcome::NeverPasses);
    }

    #[test]
    fn a_clock_that_steps_back_grants_nothing_and_locks_nobody_out(mut history in histories(), back in 0.0..50.0) {
        let window_ms = history.limit.window_ms();
        let before = history.check_at(history.now_ms, 0).remaining;
        let back_ms = ((window_ms as f64 * back) as u64).min(START_MS / 2);
        history.now_ms -= back_ms;
        prop_assert!(history.charge(0).remaining <= before);
        // From here on it is as if time had never been another: nothing counts for longer than it would have.
        let verdict = history.check_at(history.now_ms, 0);
        let longest = match history.limit.algorithm() {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => u64::MAX,
            Algorithm::FixedWindow | Algorithm::SlidingLog => window_ms,
            Algorithm::SlidingWindow => 2 * window_ms,
        };
        prop_assert!(verdict.reset_ms <= longest);
        if longest == u64::MAX && verdict.reset_ms < MAX_WAIT_MS {
            prop_assert_eq!(history.check_at(history.now_ms + verdict.reset_ms, 0).remaining, history.limit.burst());
        }
    }

    #[test]
    fn no_interval_admits_more_than_its_algorithm_allows(history in histories()) {
        let (count, window_ms) = (u128::from(history.limit.count()), history.limit.window_ms());
        for (place, (from_ms, _)) in history.admitted.iter().enumerate() {
            let mut total = 0_u128;
            for (at_ms, cost) in &history.admitted[place..] {
                total += u128::from(*cost);
                let most = match history.limit.algorithm() {
                    Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                        // What it held, and what came in up to then.
                        let refill = count * u128::from(at_ms - from_ms);
                        u128::from(history.limit.burst()) + refill.div_ceil(window_ms.into())
                    }
                    // Any window's time touches at most two windows.
                    Algorithm::FixedWindow if at_ms - from_ms < window_ms => 2 * count,
                    Algorithm::SlidingLog if at_ms - from_ms < window_ms => count,
                    // Never more than the count in a window that begins where the windows do.
                    Algorithm::SlidingWindow if at_ms / window_ms == from_ms / window_ms => count,
                    _ => continue,
                };
                prop_assert!(total <= most, "{} in {} ms, at most {}", total, at_ms - from_ms, most);
            }
        }
    }
}

proptest! {
    #[test]
    fn what_a_leaky_bucket_admits_leaves_one_by_one_at_its_rate_and_waits_no_longer_than_it_may(
        (count, window_ms, waiting) in (1_u64..100, 1_u64..100_000, 1_u64..50),
        max_delay_ms in 1_u64..20_000,
        steps in proptest::collection::vec((1_u64..4, 0.0..2.0), 1..60),
    ) {
        let limit = Limit::leaky_bucket(count, window_ms, waiting, max_delay_ms).unwrap();
        let mut history = History { limit, state: None, now_ms: START_MS, admitted: Vec::new() };
        let mut before = None;
        for (cost, pause) in steps {
            let verdict = history.charge(cost);
            if verdict.outcome == Outcome::Allowed {
                prop_assert!(verdict.delay_ms <= max_delay_ms, "{} ms", verdict.delay_ms);
                let leaves_ms = history.now_ms + verdict.delay_ms;
                if let Some((left_ms, cost)) = before.replace((leaves_ms, cost)) {
                    prop_assert!(leaves_ms >= left_ms + cost * window_ms / count);
                }
            } else {
                prop_assert_eq!(verdict.delay_ms, 0);
            }
            history.now_ms += (window_ms as f64 / count as f64 * pause) as u64;
        }
    }
}

#[test]
fn a_leaky_bucket_lets_one_go_and_the_others_wait() {
    let delays = |waiting, max_delay_ms| {
        let limit = Limit::leaky_bucket(10, 1000, waiting, max_delay_ms).unwrap();
        let mut history = History { limit, state: None, now_ms: START_MS, admitted: Vec::new() };
        (0..6)
            .map(|_| match history.charge(1) {
                Verdict { outcome: Outcome::Allowed, delay_ms, .. } => Ok(delay_ms),
                Verdict { outcome, .. } => Err(outcome),
            })
            .collect::<Vec<_>>()
    };
    let full = |retry_ms| Err(Outcome::Denied { retry_ms });
    assert_eq!(delays(3, 10_000), [Ok(0), Ok(100), Ok(200), Ok(300), full(100), full(100)]);
    assert_eq!(delays(3, 250), [Ok(0), Ok(100), Ok(200), full(100), full(100), full(100)], "none waits longer");
    assert_eq!(delays(3, 99), [Ok(0), full(100), full(100), full(100), full(100), full(100)]);
}

#[test]
fn requests_of_one_instant_are_counted_one_by_one() {
    for algorithm in Algorithm::ALL {
        let limit = Limit::new(algorithm, 5, 10_000).unwrap();
        let mut history = History { limit, state: None, now_ms: START_MS, admitted: Vec::new() };
        let passed = (0..10).filter(|_| history.charge(1).outcome == Outcome::Allowed).count();
        assert_eq!(passed, 5, "{algorithm:?}");
    }
}

#[test]
fn a_limit_that_is_changed_holds_at_once_and_forgets_nothing() {
    for algorithm in Algorithm::ALL {
        let limit = |count| Limit::new(algorithm, count, 60_000).unwrap();
        let mut history = History { limit: limit(10), state: None, now_ms: 1_800_000_000_000, admitted: Vec::new() };
        history.charge(6);
        history.limit = limit(4);
        assert_eq!(
            history.check_at(history.now_ms, 0).remaining,
            if algorithm.has_burst() { 4 } else { 0 },
            "{algorithm:?}"
        );
        history.limit = limit(20);
        // A bucket that was 6 short of 10 has 4 tokens, whatever its capacity is now; the others have counted 6.
        assert_eq!(
            history.check_at(history.now_ms, 0).remaining,
            if algorithm.has_burst() { 4 } else { 14 },
            "{algorithm:?}"
        );
    }
}

#[test]
fn a_fixed_window_begins_with_its_first_request() {
    let limit = Limit::new(Algorithm::FixedWindow, 5, 60_000).unwrap();
    let mut history = History { limit, state: None, now_ms: START_MS, admitted: Vec::new() };
    history.charge(5);
    for (second, wait_ms) in [(0.5, 59_500), (58.1, 1_900), (59.9, 100)] {
        history.now_ms = START_MS + (second * 1000.0) as u64;
        assert_eq!(history.charge(1).outcome, Outcome::Denied { retry_ms: wait_ms }, "at {second} s");
    }
    history.now_ms = START_MS + 60_000;
    assert_eq!(history.charge(1).reset_ms, 60_000);
    history.now_ms += 11_000;
    assert_eq!(history.charge(1).reset_ms, 49_000);
}

#[test]
fn a_sliding_window_counts_the_part_of_the_previous_one_that_it_reaches_into() {
    let limit = Limit::new(Algorithm::SlidingWindow, 100, 60_000).unwrap();
    let window_start = START_MS / 60_000 * 60_000;
    let mut history = History { limit, state: None, now_ms: window_start, admitted: Vec::new() };
    history.charge(80);
    history.now_ms = window_start + 60_000 + 15_000; // three quarters of 80
    assert_eq!(history.charge(10).remaining, 30);
    // 60 + 10 + 31 is one too many; at 20.25 s, 53 + 10 + 37 are just as many as there may be.
    assert_eq!(history.check_at(history.now_ms, 31).outcome, Outcome::Denied { retry_ms: 750 });
    assert_eq!(history.check_at(history.now_ms, 37).outcome, Outcome::Denied { retry_ms: 5250 });
    // More than what this window leaves: in the next one, once the 10 of this one reach in with 5.
    assert_eq!(history.check_at(history.now_ms, 95).outcome, Outcome::Denied { retry_ms: 45_000 + 30_000 });
}
