use super::*;
use crate::config::Config;
use crate::limit::State;
use crate::request::Sample;
use crate::rules::{Checks, LiveOverrides, Plan, Rules, Surroundings};
use proptest::prelude::*;

const MS: u64 = 1000;
const TERMS: Terms = Terms { max: 100, every_ms: 200 };

/// Checks of a request with each of these API keys, under one rule with these limits and this cost.
fn checks(limits: &str, cost: u64, keys: &[&str]) -> Vec<Check> {
    let text = format!(r#"{{"rules":[{{"name":"r","key":["header:k"],"limits":[{limits}],"cost":{cost}}}]}}"#);
    let rules = Rules::new(&Config::parse(text.as_bytes()).unwrap());
    let plan = |key: &&str| {
        let around = Surroundings { route: None, live: &LiveOverrides::default(), roll: 0 };
        match rules.plan(&Sample::new([("k", *key)]), around) {
            Plan::Checks(Checks { mut checks, .. }) => checks.remove(0),
            other => panic!("{other:?}"),
        }
    };
    keys.iter().map(plan).collect()
}

fn left(remaining: u64, reset_ms: u64) -> Verdict {
    Verdict { outcome: Outcome::Allowed, remaining, reset_ms, delay_ms: 0 }
}

/// Meets so many requests at once; the leases that are wanted then.
fn meet(leases: &mut Leases, checks: &[Check], requests: u64, now_us: u64) -> Vec<Wanted> {
    (0..requests).filter_map(|_| leases.meet(checks, TERMS, now_us).wanted).collect()
}

/// Leases that have met a subject twenty times at 0, and what is wanted when Redis has said this of a request.
fn warmed(checks: &[Check], known: Verdict) -> (Leases, Option<Wanted>) {
    let mut leases = Leases::default();
    assert!(meet(&mut leases, checks, 19, 0).is_empty(), "nothing is known yet");
    leases.learn(checks, &[known], 0, MS);
    let wanted = leases.meet(checks, TERMS, MS).wanted;
    (leases, wanted)
}

/// How many requests are paid for at a time.
fn paid(leases: &mut Leases, checks: &[Check], now_us: u64) -> usize {
    (0..1000).take_while(|_| leases.meet(checks, TERMS, now_us).paid.is_some()).count()
}

#[test]
fn a_subject_that_comes_seldom_is_never_leased() {
    let (checks, mut leases) = (checks(r#""1000/s""#, 1, &["acme"]), Leases::default());
    for i in 0..1000 {
        // Three in each 200 ms.
        let now_us = i * 67 * MS;
        assert_eq!(leases.meet(&checks, TERMS, now_us), Met { paid: None, wanted: None });
        leases.learn(&checks, &[left(1000, 1)], now_us, now_us);
    }
}

#[test]
fn a_lease_is_for_what_came_lately_and_within_its_bounds() {
    let cases = [
        ("20 came", r#""10000/min fixed_window""#, 1, 9000, Some(20)),
        ("a quarter of what is left", r#""10000/min fixed_window""#, 1, 43, Some(10)),
        ("the same in requests", r#""10000/min fixed_window""#, 4, 43, Some(8)),
        ("not for one request", r#""10000/min fixed_window""#, 1, 7, None),
        ("a read is no charge", r#""10000/min fixed_window""#, 0, 9000, None),
        ("a log can't", r#""10000/min sliding_log""#, 1, 9000, None),
        ("nor can what holds back", r#""10000/min leaky_bucket""#, 1, 9000, None),
        ("a bucket with room for it", r#""10000/min""#, 1, 9000, Some(20)),
    ];
    for (name, limits, cost, remaining, wanted) in cases {
        let checks = checks(limits, cost, &["acme"]);
        let (_, lease) = warmed(&checks, left(remaining, 30_000));
        assert_eq!(lease.map(|lease| lease.costs), wanted.map(|cost| vec![cost]), "{name}");
    }
    let checks = checks(r#""10000/min fixed_window""#, 1, &["acme"]);
    let mut leases = Leases::default();
    meet(&mut leases, &checks, 500, 0);
    leases.learn(&checks, &[left(9000, 30_000)], 0, MS);
    assert_eq!(meet(&mut leases, &checks, 3, MS)[0].costs, [100], "max, and one at a time");
    assert_eq!(meet(&mut leases, &checks, 50, MS), []);
}

#[test]
fn a_lease_is_spent_and_told_and_ends_in_time() {
    let checks = checks(r#""10000/min fixed_window""#, 2, &["acme", "other"]);
    let (acme, other) = (&checks[..1], &checks[1..]);
    let (mut leases, wanted) = warmed(acme, left(9000, 30_000));
    let Wanted { id, costs } = wanted.unwrap();
    assert_eq!(costs, [40]);
    leases.settle(id, &[left(8960, 30_000)], 3 * MS);
    let first = leases.meet(acme, TERMS, 4 * MS).paid.unwrap();
    assert_eq!(first, [left(8960 + 38, 29_999)], "what is left and what is held");
    assert_eq!(leases.meet(acme, TERMS, 4 * MS).paid.unwrap(), [left(8960 + 36, 29_999)]);
    assert_eq!(leases.meet(other, TERMS, 4 * MS).paid, None, "another's");
    assert_eq!(paid(&mut leases, acme, 201 * MS - 1), 18, "until 200 ms after it was asked for");
    leases.settle(id, &[left(8960, 30_000)], 5 * MS);
    assert_eq!(leases.meet(acme, TERMS, 5 * MS).paid, None, "it is settled once");

    let (mut leases, wanted) = warmed(acme, left(9000, 30_000));
    leases.settle(wanted.unwrap().id, &[left(8960, 30_000)], 3 * MS);
    assert_eq!(paid(&mut leases, acme, 201 * MS), 0, "its time is over");
}

#[test]
fn a_lease_ends_with_its_window() {
    let until = |limits: &str, reset_ms| {
        let checks = checks(limits, 1, &["acme"]);
        let (mut leases, wanted) = warmed(&checks, left(9000, reset_ms));
        leases.settle(wanted.unwrap().id, &[left(8980, reset_ms)], 2 * MS);
        leases.hot(key(&checks)).unwrap().held.first().map(|lease| lease.until_us / MS)
    };
    assert_eq!(until(r#""10000/min fixed_window""#, 50), Some(1 + 49), "asked for at 1 ms");
    assert_eq!(until(r#""10000/min fixed_window""#, 2), None);
    assert_eq!(until(r#""10000/min sliding_window""#, 60_050), Some(1 + 49), "the reset is that of the window after");
    assert_eq!(until(r#""10000/min sliding_window""#, 119_000), Some(1 + 200));
}

#[test]
fn what_is_held_and_what_comes_back_is_never_more_than_a_bucket_holds() {
    // 1,000 a second, 200 of them in the time of a lease.
    let checks = checks(r#""1000/s""#, 1, &["acme"]);
    let (mut leases, wanted) = warmed(&checks, left(999, 1));
    let Wanted { id, costs } = wanted.unwrap();
    assert_eq!(costs, [20 + 201], "a full bucket is charged as much more as comes back");
    leases.settle(id, &[left(1000 - 221, 221)], 2 * MS);
    assert_eq!(paid(&mut leases, &checks, 201 * MS - 1), 20);

    let (mut leases, wanted) = warmed(&checks, left(500, 500));
    let Wanted { id, costs } = wanted.unwrap();
    assert_eq!(costs, [20], "in half a bucket there is room for it");
    leases.settle(id, &[left(950, 50)], 2 * MS);
    assert_eq!(paid(&mut leases, &checks, 31 * MS), 0, "it was fuller than known: 20 and 29 that come back, and no more");
}

#[test]
fn the_next_lease_comes_before_the_last_one_ends() {
    let checks = checks(r#""10000/min fixed_window""#, 1, &["acme"]);
    let (mut leases, wanted) = warmed(&checks, left(9000, 30_000));
    leases.settle(wanted.unwrap().id, &[left(8980, 30_000)], 2 * MS);
    assert_eq!(meet(&mut leases, &checks, 11, 3 * MS), [], "enough is there");
    let next = meet(&mut leases, &checks, 7, 3 * MS);
    assert_eq!(next.len(), 1, "little is left");
    leases.settle(next[0].id, &[left(8940, 30_000)], 4 * MS);
    let held: usize = usize::try_from(next[0].costs[0]).unwrap();
    assert_eq!(paid(&mut leases, &checks, 5 * MS), 2 + held, "after the rest of the first one");
}

#[test]
fn after_a_failure_or_a_denial_no_lease_is_taken_for_a_while() {
    let checks = checks(r#""10000/min fixed_window""#, 1, &["acme"]);
    for verdicts in [vec![], vec![Verdict { outcome: Outcome::Denied { retry_ms: 9 }, ..left(9000, 9) }]] {
        let (mut leases, wanted) = warmed(&checks, left(9000, 30_000));
        leases.settle(wanted.unwrap().id, &verdicts, 2 * MS);
        assert_eq!(meet(&mut leases, &checks, 50, 201 * MS), []);
        assert_eq!(meet(&mut leases, &checks, 50, 202 * MS).len(), 1);
    }
}

#[test]
fn no_more_subjects_are_remembered_than_two_generations() {
    let names: Vec<String> = (0..3 * GENERATION).map(|i| format!("s{i}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (all, mut leases) = (checks(r#""10000/min fixed_window""#, 1, &names), Leases::default());
    for check in &all {
        meet(&mut leases, std::slice::from_ref(check), 2, 0);
        assert!(leases.len() <= 2 * GENERATION);
    }
    assert_eq!(leases.len(), 2 * GENERATION);
    // One that is met again and again stays, whoever comes between.
    let often = std::slice::from_ref(&all[0]);
    for check in &all {
        meet(&mut leases, often, 1, 0);
        meet(&mut leases, std::slice::from_ref(check), 1, 0);
    }
    assert!(leases.hot(key(often)).is_some());
}

/// Redis, and what would be in it if each request had been charged when it was let in.
struct Both {
    limits: Vec<Limit>,
    charged: Vec<Option<State>>,
    let_in: Vec<Option<State>>,
}

impl Both {
    /// One call of the script.
    fn call(&mut self, costs: &[u64], now_ms: u64) -> Vec<Verdict> {
        charge(&self.limits, &mut self.charged, costs, now_ms)
    }

    /// Lets a request in, and panics where the limits themselves would not.
    fn let_in(&mut self, costs: &[u64], now_ms: u64) {
        let verdicts = charge(&self.limits, &mut self.let_in, costs, now_ms);
        assert!(verdicts.iter().all(|verdict| verdict.outcome == Outcome::Allowed), "at {now_ms}: {verdicts:?}");
    }
}

fn charge(limits: &[Limit], states: &mut [Option<State>], costs: &[u64], now_ms: u64) -> Vec<Verdict> {
    let steps = || limits.iter().zip(&*states).zip(costs);
    let allowed =
        steps().all(|((limit, state), cost)| State::check(state.as_ref(), limit, now_ms, *cost).outcome == Outcome::Allowed);
    let steps = steps().map(|((limit, state), cost)| {
        if allowed {
            let (verdict, charged) = State::charge(state.as_ref(), limit, now_ms, *cost);
            return (verdict, charged.or_else(|| state.clone()));
        }
        (State::check(state.as_ref(), limit, now_ms, *cost), state.clone())
    });
    let (verdicts, charged): (Vec<_>, Vec<_>) = steps.unzip();
    states.clone_from_slice(&charged);
    verdicts
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Several workers lease of the same limits. Whatever they let in, the limits would have let in then; and where they are asked for
    /// less than there is, next to nothing is denied.
    #[test]
    fn leases_let_in_nothing_that_the_limits_would_not(
        limits in prop_oneof![
            Just(r#""1000/s""#), Just(r#""1000/s burst 300""#), Just(r#""200/s burst 1000""#), Just(r#""500/s burst 20""#),
            Just(r#""600/s sliding_window""#), Just(r#""3000/10s sliding_window""#),
            Just(r#""1000/s","2500/10s sliding_window""#), Just(r#""400/s burst 500","900/3s""#),
        ],
        cost in 1..4_u64,
        workers in 1..5_usize,
        every_ms in prop_oneof![Just(50_u64), Just(200), Just(1000)],
        // How many milliseconds until the next burst, how many requests are in it, and how late Redis answers.
        bursts in prop::collection::vec((0..40_u64, 1..60_u64, 0..5_u64), 1..200),
    ) {
        let checks = checks(limits, cost, &["acme"]);
        let of = &checks[0].limits.limits;
        let mut both = Both { limits: of.clone(), charged: vec![None; of.len()], let_in: vec![None; of.len()] };
        let costs = vec![cost; of.len()];
        let terms = Terms { max: 200, every_ms };
        let mut leases: Vec<Leases> = (0..workers).map(|_| Leases::default()).collect();
        let mut late: Vec<(usize, LeaseId, Vec<Verdict>, u64)> = Vec::new();
        let mut now_ms = 1_000_000;
        for (pause, requests, delay) in bursts {
            now_ms += pause;
            let at = usize::try_from(requests).unwrap() % workers;
            late.retain(|(worker, id, verdicts, due_ms)| {
                if *due_ms <= now_ms {
                    leases[*worker].settle(*id, verdicts, now_ms * MS);
                }
                *due_ms > now_ms
            });
            for _ in 0..requests {
                let Met { paid, wanted } = leases[at].meet(&checks, terms, now_ms * MS);
                if paid.is_some() {
                    both.let_in(&costs, now_ms);
                } else {
                    let verdicts = both.call(&costs, now_ms);
                    if verdicts.iter().all(|verdict| verdict.outcome == Outcome::Allowed) {
                        both.let_in(&costs, now_ms);
                    }
                    leases[at].learn(&checks, &verdicts, now_ms * MS, now_ms * MS);
                }
                if let Some(Wanted { id, costs }) = wanted {
                    let verdicts = both.call(&costs, now_ms);
                    late.push((at, id, verdicts, now_ms + delay));
                }
            }
        }
    }
}
