use super::*;
use crate::request::Sample;
use crate::rules::{LiveOverrides, Surroundings};
use crate::store::Decoder;
use std::cell::RefCell;
use std::collections::HashMap;

/// Shared data as a host keeps it.
#[derive(Default)]
struct Table {
    slots: RefCell<HashMap<u32, (Vec<u8>, u32)>>,
    broken: bool,
}

impl SharedData for Table {
    fn read(&self, slot: u32) -> Result<(Vec<u8>, u32), Unavailable> {
        if self.broken {
            return Err(Unavailable);
        }
        Ok(self.slots.borrow().get(&slot).cloned().unwrap_or_default())
    }
    fn write(&self, slot: u32, bytes: &[u8], read: u32) -> Result<bool, Unavailable> {
        self.slots.borrow_mut().insert(slot, (bytes.to_vec(), read + 1));
        Ok(true)
    }
}

fn plan(limiter: &Limiter, key: Option<&str>) -> Plan {
    let request = Sample::new(key.map(|key| ("k", key)));
    limiter.rules.plan(&request, Surroundings { route: None, live: &LiveOverrides::default(), roll: 0 })
}

/// A limiter whose rules are named `a`, `b`, …, with these fields each, and 60/min burst 5 where they have no limits.
fn limiter(scope: &str, rules: &[&str]) -> Limiter {
    let rules: Vec<String> = ('a'..)
        .zip(rules)
        .map(|(name, fields)| {
            let limits = if fields.contains("limits") { "" } else { r#","limits":["60/min burst 5"]"# };
            format!(r#"{{"name":"{name}","key":["header:k"]{limits}{fields}}}"#)
        })
        .collect();
    let store = if scope.is_empty() { String::new() } else { format!(r#""store":{{"cluster":"c","scope":"{scope}"}},"#) };
    let text = format!(r#"{{{store}"rules":[{}]}}"#, rules.join(","));
    Limiter::new(Config::parse(text.as_bytes()).unwrap_or_else(|faults| panic!("{text}: {faults:?}")))
}

fn begin(limiter: &Limiter, data: &Table) -> Step {
    limiter.begin(plan(limiter, Some("acme")), data, Now::default())
}

/// The decision of a request whose calls end so.
fn decide(limiter: &Limiter, data: &Table, results: Vec<CallResult>) -> Decision {
    let Step::Ask(mut flow, calls) = begin(limiter, data) else { panic!("nothing to ask") };
    assert_eq!(calls.len(), results.len());
    let last = results.len() - 1;
    for (part, result) in results.into_iter().enumerate() {
        assert_eq!(flow.settle(u16::try_from(part).unwrap(), result), part == last);
    }
    flow.decide(limiter, data, Now::default())
}

fn allowed(remaining: u64) -> Verdict {
    Verdict { outcome: Outcome::Allowed, remaining, reset_ms: 7000, delay_ms: 0 }
}

fn denied(retry_ms: u64) -> Verdict {
    Verdict { outcome: Outcome::Denied { retry_ms }, remaining: 0, reset_ms: 9000, delay_ms: 0 }
}

fn name(limiter: &Limiter, rule: Option<RuleId>) -> &str {
    rule.and_then(|rule| limiter.rules.get(rule)).map_or("-", |rule| rule.name.as_str())
}

/// What is counted, as `RULE Tally`, sorted.
fn tally(limiter: &Limiter, decision: &Decision) -> Vec<String> {
    let mut tally: Vec<String> =
        decision.tally.iter().map(|(rule, tally)| format!("{} {tally:?}", name(limiter, Some(*rule)))).collect();
    tally.sort();
    tally
}

/// The most there can be, what is left, and when it is whole again.
fn quota(decision: &Decision) -> Option<(u64, u64, u64)> {
    decision.quota.map(|quota| (quota.limit.burst(), quota.remaining, quota.reset_ms))
}

const FAILED: CallResult = Err(Failure::Timeout);

#[test]
fn a_request_that_no_rule_applies_to_goes_on() {
    let limiter = limiter("request", &[""]);
    let plan = plan(&limiter, None);
    assert!(matches!(limiter.begin(plan, &Table::default(), Now::default()), Step::Continue));
}

#[test]
fn a_missing_key_can_deny() {
    let limiter = limiter("request", &[r#","on_missing":"deny""#]);
    let plan = plan(&limiter, None);
    let Step::Decide(decision) = limiter.begin(plan, &Table::default(), Now::default()) else { panic!("not decided") };
    assert_eq!((decision.kind, decision.source), (Kind::Denied { retry_ms: None }, None));
    assert_eq!(tally(&limiter, &decision), ["a Denied"]);
}

#[test]
fn redis_lets_in_and_the_limit_with_the_least_left_is_told() {
    let limiter = limiter("request", &["", ""]);
    let decision = decide(&limiter, &Table::default(), vec![Ok(vec![allowed(4), allowed(0)])]);
    assert_eq!((decision.kind, decision.source), (Kind::Allowed, Some(Source::Redis)));
    assert_eq!(quota(&decision), Some((5, 0, 7000)));
    assert_eq!((name(&limiter, decision.rule), decision.subject.as_deref()), ("b", Some("acme")));
    assert_eq!(tally(&limiter, &decision), ["a Allowed", "b Allowed", "b NearLimit"]);
}

#[test]
fn redis_denies_and_the_longest_wait_is_told() {
    let limiter = limiter("rule", &["", "", ""]);
    let results = vec![Ok(vec![denied(100)]), Ok(vec![allowed(1)]), Ok(vec![denied(3000)])];
    let data = Table::default();
    let decision = decide(&limiter, &data, results);
    assert_eq!(decision.kind, Kind::Denied { retry_ms: Some(3000) });
    assert_eq!(tally(&limiter, &decision), ["a Denied", "c Denied"]);
    assert!(data.slots.borrow().is_empty());
}

#[test]
fn a_request_that_can_never_pass_is_told_no_wait() {
    let limiter = limiter("request", &["", ""]);
    let never = Verdict { outcome: Outcome::NeverPasses, remaining: 5, reset_ms: 0, delay_ms: 0 };
    let decision = decide(&limiter, &Table::default(), vec![Ok(vec![denied(100), never])]);
    assert_eq!(decision.kind, Kind::Denied { retry_ms: None });
}

#[test]
fn one_call_covers_a_request_or_a_rule() {
    for (scope, wanted) in [("request", 1), ("rule", 3)] {
        let limiter = limiter(scope, &["", "", ""]);
        let Step::Ask(_, calls) = begin(&limiter, &Table::default()) else { panic!("nothing to ask") };
        assert_eq!(calls.len(), wanted);
        let mut decoder = Decoder::default();
        calls.iter().for_each(|(_, call)| decoder.feed(&call.evalsha()));
        let commands = std::iter::from_fn(|| decoder.next_reply().unwrap()).count();
        assert_eq!(commands, wanted, "each call is one command");
    }
}

#[test]
fn when_the_store_fails_each_rule_says_what_becomes_of_it() {
    let data = Table::default();
    let local = limiter("request", &[""]);
    let passed = decide(&local, &data, vec![FAILED]);
    assert_eq!((passed.kind, passed.source), (Kind::Allowed, Some(Source::Local)));
    assert_eq!(quota(&passed), Some((5, 4, 1000)));
    assert_eq!(tally(&local, &passed), ["a Allowed", "a Error", "a LocalAllowed"]);

    let allow = limiter("request", &[r#","on_error":"allow""#]);
    let passed = decide(&allow, &data, vec![FAILED]);
    assert_eq!((passed.kind, passed.source, passed.quota), (Kind::Allowed, None, None));
    assert_eq!(tally(&allow, &passed), ["a Allowed", "a Error"]);

    let deny = limiter("request", &[r#","on_error":"deny""#]);
    let failed = decide(&deny, &data, vec![FAILED]);
    assert_eq!((failed.kind, failed.source), (Kind::Failed, None));
    assert_eq!(tally(&deny, &failed), ["a Error"]);
}

#[test]
fn the_fallback_bucket_denies_when_it_is_empty() {
    let (limiter, data) = (limiter("request", &[""]), Table::default());
    let kinds: Vec<Kind> = (0..6).map(|_| decide(&limiter, &data, vec![FAILED]).kind).collect();
    assert_eq!(kinds[..5], [Kind::Allowed; 5]);
    assert_eq!(kinds[5], Kind::Denied { retry_ms: Some(1000) });
    let denied = decide(&limiter, &data, vec![FAILED]);
    assert_eq!(denied.source, Some(Source::Local));
    assert_eq!(tally(&limiter, &denied), ["a Denied", "a Error", "a LocalDenied"]);
}

const LAYERS: &str = r#","limits":["100/s burst 40","5/h sliding_window","7/h fixed_window"]"#;

#[test]
fn of_several_limits_the_one_with_the_least_left_is_told_and_a_denying_one_before_it() {
    let limiter = limiter("request", &[LAYERS]);
    let decision = decide(&limiter, &Table::default(), vec![Ok(vec![allowed(40), allowed(3), allowed(2)])]);
    assert_eq!(quota(&decision), Some((7, 2, 7000)));
    let left_but_denied = Verdict { remaining: 4, ..denied(500) };
    let decision = decide(&limiter, &Table::default(), vec![Ok(vec![denied(100), left_but_denied, allowed(0)])]);
    assert_eq!(decision.kind, Kind::Denied { retry_ms: Some(500) });
    assert_eq!(quota(&decision), Some((40, 0, 9000)));
    assert_eq!(tally(&limiter, &decision), ["a Denied"], "the rule, once");
}

#[test]
fn every_algorithm_falls_back_to_a_bucket_of_its_own_and_layers_are_charged_together() {
    let (limiter, data) = (limiter("request", &[LAYERS]), Table::default());
    let decisions: Vec<Decision> = (0..7).map(|_| decide(&limiter, &data, vec![FAILED])).collect();
    let admitted = decisions.iter().filter(|decision| decision.kind == Kind::Allowed).count();
    assert_eq!(admitted, 5, "of the narrowest");
    assert_eq!(quota(&decisions[4]), Some((5, 0, 3_600_000)));
    assert_eq!(decisions[6].kind, Kind::Denied { retry_ms: Some(720_000) });
    let Step::Ask(mut flow, _) = begin(&limiter, &data) else { panic!("nothing to ask") };
    flow.settle(0, FAILED);
    let an_hour_later = flow.decide(&limiter, &data, Now { wall_ms: 3_600_000, us: 0 });
    assert_eq!(quota(&an_hour_later), Some((5, 4, 720_000)));
}

fn delayed(delay_ms: u64) -> Verdict {
    Verdict { delay_ms, ..allowed(1) }
}

#[test]
fn a_request_is_held_back_as_long_as_the_slowest_of_its_limits_wants() {
    let limiter =
        limiter("rule", &[r#","limits":["10/s leaky_bucket","100/h leaky_bucket"]"#, "", r#","on_error":"allow""#]);
    let data = Table::default();
    let slow = Ok(vec![delayed(100), delayed(3000)]);
    for others in [[Ok(vec![allowed(5)]), Ok(vec![allowed(5)])], [FAILED, FAILED]] {
        let [b, c] = others;
        let decision = decide(&limiter, &data, vec![slow.clone(), b, c]);
        assert_eq!((decision.kind, decision.delay_ms), (Kind::Allowed, 3000));
        assert_eq!(tally(&limiter, &decision).iter().filter(|counted| counted.ends_with("Delayed")).count(), 1);
    }
    let decision = decide(&limiter, &data, vec![slow, Ok(vec![denied(100)]), Ok(vec![allowed(5)])]);
    assert_eq!((decision.kind, decision.delay_ms), (Kind::Denied { retry_ms: Some(100) }, 0));
    assert_eq!(tally(&limiter, &decision), ["b Denied"]);
}

#[test]
fn where_no_more_requests_can_be_held_back_they_are_denied() {
    let limiter = limiter("rule", &["", ""]);
    let decision = decide(&limiter, &Table::default(), vec![Ok(vec![delayed(1500)]), Ok(vec![allowed(4)])]);
    let refused = decision.without_room();
    assert_eq!((refused.kind, refused.delay_ms), (Kind::Denied { retry_ms: Some(1500) }, 0));
    assert_eq!(tally(&limiter, &refused), ["a Denied"]);
}

#[test]
fn a_clean_denial_is_never_overruled_and_a_clean_answer_never_charges_the_fallback() {
    let (limiter, data) = (limiter("rule", &[r#","cache_denials":"0s""#, ""]), Table::default());
    let decision = decide(&limiter, &data, vec![Ok(vec![denied(100)]), FAILED]);
    assert_eq!((decision.kind, decision.source), (Kind::Denied { retry_ms: Some(100) }, Some(Source::Redis)));
    assert_eq!(tally(&limiter, &decision), ["a Denied", "b Error"]);
    let decision = decide(&limiter, &data, vec![Ok(vec![allowed(1)]), Ok(vec![allowed(2)])]);
    assert_eq!(decision.kind, Kind::Allowed);
    assert!(data.slots.borrow().is_empty(), "no bucket was touched");
}

#[test]
fn a_failed_rule_that_denies_wins_over_a_failed_rule_that_allows() {
    let limiter = limiter("rule", &[r#","on_error":"allow""#, r#","on_error":"deny""#, ""]);
    let data = Table::default();
    let decision = decide(&limiter, &data, vec![FAILED, FAILED, FAILED]);
    assert_eq!((decision.kind, name(&limiter, decision.rule)), (Kind::Failed, "b"));
    assert!(data.slots.borrow().is_empty());
}

#[test]
fn only_the_failed_rules_are_decided_by_their_buckets() {
    let (limiter, data) = (limiter("rule", &["", ""]), Table::default());
    let decision = decide(&limiter, &data, vec![Ok(vec![allowed(1)]), FAILED]);
    assert_eq!((decision.kind, decision.source), (Kind::Allowed, Some(Source::Local)));
    assert_eq!(tally(&limiter, &decision), ["a Allowed", "b Allowed", "b Error", "b LocalAllowed"]);
    assert_eq!(data.slots.borrow().len(), 1);
}

#[test]
fn without_a_store_the_buckets_decide_and_nothing_is_an_error() {
    let (limiter, data) = (limiter("", &["", r#","cost":5"#]), Table::default());
    let kinds: Vec<Kind> = (0..2)
        .map(|_| match begin(&limiter, &data) {
            Step::Decide(decision) => decision.kind,
            step => panic!("{step:?}"),
        })
        .collect();
    assert_eq!(kinds, [Kind::Allowed, Kind::Denied { retry_ms: Some(5000) }]);
}

#[test]
fn where_shared_data_does_not_work_requests_pass_and_errors_are_counted() {
    let limiter = limiter("", &[""]);
    let Step::Decide(decision) = begin(&limiter, &Table { broken: true, ..Table::default() }) else { panic!("asks") };
    assert_eq!(decision.kind, Kind::Allowed);
    assert_eq!(tally(&limiter, &decision), ["a Allowed", "a Error"]);
}

#[test]
fn a_second_result_for_a_call_is_ignored() {
    let (limiter, data) = (limiter("rule", &["", ""]), Table::default());
    let Step::Ask(mut flow, _) = begin(&limiter, &data) else { panic!("nothing to ask") };
    assert!(!flow.settle(0, Ok(vec![denied(100)])));
    assert!(!flow.settle(0, Ok(vec![allowed(5)])));
    assert!(!flow.settle(9, Ok(vec![allowed(5)])));
    assert!(flow.settle(1, Ok(vec![allowed(5)])));
    assert_eq!(flow.decide(&limiter, &data, Now::default()).kind, Kind::Denied { retry_ms: Some(100) });
}
