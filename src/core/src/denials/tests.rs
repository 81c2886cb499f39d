use super::*;
use crate::config::Config;
use crate::request::Sample;
use crate::rules::{Checks, LiveOverrides, Plan, Rules, Surroundings};

const SECOND: u64 = 1_000_000;

/// Checks of requests with these API keys, under one rule.
fn checks(keys: &[&str]) -> Vec<Check> {
    let text = br#"{"rules":[{"name":"r","key":["header:k"],"limits":["10/s"]}]}"#;
    let rules = Rules::new(&Config::parse(text).unwrap());
    let plan = |key: &&str| {
        let around = Surroundings { route: None, live: &LiveOverrides::default(), roll: 0 };
        match rules.plan(&Sample::new([("k", *key)]), around) {
            Plan::Checks(Checks { mut checks, .. }) => checks.remove(0),
            other => panic!("{other:?}"),
        }
    };
    keys.iter().map(plan).collect()
}

fn check() -> Check {
    checks(&["acme"]).remove(0)
}

fn verdict(outcome: Outcome) -> Verdict {
    Verdict { outcome, remaining: 0, reset_ms: 5000, delay_ms: 0 }
}

fn denied(retry_ms: u64) -> [Verdict; 1] {
    [verdict(Outcome::Denied { retry_ms })]
}

/// The wait and the reset of a denial that is kept.
fn kept(denials: &mut Denials, check: &Check, now_us: u64) -> Option<(u64, u64)> {
    let verdicts = denials.find(check, now_us)?;
    match verdicts[0].outcome {
        Outcome::Denied { retry_ms } => Some((retry_ms, verdicts[0].reset_ms)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_denial_stands_until_its_wait_is_over_and_not_longer() {
    let (check, mut denials) = (check(), Denials::default());
    denials.learn(&check, &denied(300), 1000, 3000, SECOND);
    assert_eq!(kept(&mut denials, &check, 3000), Some((300, 5000)));
    assert_eq!(kept(&mut denials, &check, 3001), Some((300, 5000)), "rounded up");
    assert_eq!(kept(&mut denials, &check, 103_000), Some((200, 4900)));
    assert_eq!(kept(&mut denials, &check, 300_999), Some((3, 4703)), "from when the answer came: nobody is told too little");
    assert_eq!(kept(&mut denials, &check, 301_000), None, "from when it was asked for: nobody is denied for too long");
}

#[test]
fn it_stands_no_longer_than_it_may_and_in_the_middle_one_request_asks() {
    let (check, mut denials) = (check(), Denials::default());
    denials.learn(&check, &denied(60_000), 0, 0, SECOND);
    assert_eq!(kept(&mut denials, &check, 499_999), Some((59_501, 4501)));
    assert_eq!(kept(&mut denials, &check, 500_000), None, "this one asks");
    assert_eq!(kept(&mut denials, &check, 500_000), Some((59_500, 4500)), "and no other");
    assert!(kept(&mut denials, &check, 999_999).is_some());
    assert_eq!(kept(&mut denials, &check, SECOND), None);
    denials.learn(&check, &denied(59_400), 500_000, 600_000, SECOND);
    assert_eq!(kept(&mut denials, &check, SECOND), None, "the middle of the new one");
    assert!(kept(&mut denials, &check, 1_499_999).is_some());
    assert_eq!(kept(&mut denials, &check, 1_500_000), None);
}

#[test]
fn what_no_wait_helps_is_denied_as_long_as_it_may_be_kept() {
    let (check, mut denials) = (check(), Denials::default());
    denials.learn(&check, &[verdict(Outcome::NeverPasses)], 0, 0, SECOND);
    assert_eq!(denials.find(&check, 1).unwrap()[0].outcome, Outcome::NeverPasses);
    assert_eq!(denials.find(&check, SECOND), None);
}

#[test]
fn the_longest_wait_counts_and_a_limit_whose_wait_is_over_denies_no_more() {
    let (check, mut denials) = (check(), Denials::default());
    denials.learn(&check, &[denied(100)[0], denied(200)[0], verdict(Outcome::Allowed)], 0, 0, SECOND);
    let outcomes: Vec<Outcome> = denials.find(&check, 150_000).unwrap().iter().map(|verdict| verdict.outcome).collect();
    assert_eq!(outcomes, [Outcome::Allowed, Outcome::Denied { retry_ms: 50 }, Outcome::Allowed]);
    assert_eq!(denials.find(&check, 200_000), None);
}

#[test]
fn other_rules_subjects_costs_and_limits_are_asked_for() {
    let (mut denials, [acme, other]) = (Denials::default(), <[Check; 2]>::try_from(checks(&["acme", "other"])).unwrap());
    denials.learn(&acme, &denied(300), 0, 0, SECOND);
    assert!(denials.find(&acme, 1).is_some());
    assert_eq!(denials.find(&other, 1), None);
    assert_eq!(denials.find(&Check { cost: 2, ..acme.clone() }, 1), None);
    let [same] = checks(&["acme"]).try_into().unwrap();
    assert_eq!(denials.find(&same, 1), None, "limits that look the same may be newer");
}

#[test]
fn what_is_allowed_ends_a_denial_and_an_older_answer_does_nothing() {
    let (check, mut denials) = (check(), Denials::default());
    denials.learn(&check, &denied(300), 10, 20, SECOND);
    denials.learn(&check, &[verdict(Outcome::Allowed)], 5, 30, SECOND);
    assert!(denials.find(&check, 40).is_some(), "it was asked for before");
    denials.learn(&check, &[verdict(Outcome::Allowed)], 15, 30, SECOND);
    assert_eq!(denials.find(&check, 40), None);
    assert!(denials.is_empty());
    denials.learn(&check, &denied(300), 50, 60, 0);
    assert!(denials.is_empty(), "it isn't to be kept");
}

#[test]
fn no_more_are_kept_than_two_generations() {
    let mut denials = Denials::default();
    let names: Vec<String> = (0..3 * GENERATION).map(|i| format!("s{i}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let all = checks(&names);
    for (i, check) in all.iter().enumerate() {
        denials.learn(check, &denied(300), 0, 0, SECOND);
        assert!(denials.len() <= 2 * GENERATION);
        assert!(denials.find(&all[i.saturating_sub(GENERATION - 1)], 1).is_some(), "the last ones are all there");
    }
    assert_eq!(denials.len(), 2 * GENERATION);
    for check in &all {
        denials.learn(check, &[verdict(Outcome::Allowed)], 1, 1, SECOND);
    }
    assert!(denials.is_empty(), "nothing is left of them");
}
