use super::*;
use crate::config::Config;
use crate::flow::Quota;
use crate::rules::RuleId;

fn rules() -> Rules {
    Rules::new(&Config::parse(br#"{"rules":[{"name":"per-key","key":["ip"],"limits":["100/min"]}]}"#).unwrap())
}

fn rule(rules: &Rules) -> RuleId {
    rules.iter().next().unwrap().0
}

fn decision(kind: Kind, quota: Option<Quota>) -> Decision {
    Decision {
        kind,
        source: Some(Source::Redis),
        rule: Some(rule(&rules())),
        subject: Some("acme".to_owned()),
        quota,
        shadow_denied: false,
        delay_ms: 0,
        tally: Vec::new(),
    }
}

fn header<'a>(answer: &'a Answer, name: &str) -> Option<&'a str> {
    answer.headers.iter().find(|(given, _)| *given == name).map(|(_, value)| value.as_str())
}

const QUOTA: Quota = Quota { limit: 100, remaining: 0, reset_ms: 1001 };

#[test]
fn a_denied_request_is_told_how_long_to_wait() {
    let waits = [(1, "1"), (999, "1"), (1000, "1"), (1001, "2"), (59_001, "60"), (9_007_199_254_740_991, "9007199254741")];
    for (retry_ms, wanted) in waits {
        let decision = decision(Kind::Denied { retry_ms: Some(retry_ms) }, Some(QUOTA));
        let answer = answer(&decision, &rules(), &Response::default()).unwrap();
        assert_eq!(header(&answer, "retry-after"), Some(wanted));
        assert_eq!((answer.status, answer.grpc_status), (429, 8));
        assert_eq!(answer.body, r#"{"message":"Too many requests"}"#);
        assert_eq!(answer.details, "weir_denied:per-key");
        let limits = ["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"].map(|name| header(&answer, name));
        assert_eq!(limits, [Some("100"), Some("0"), Some("2")]);
    }
}

#[test]
fn where_no_wait_helps_none_is_told() {
    let answer = answer(&decision(Kind::Denied { retry_ms: None }, Some(QUOTA)), &rules(), &Response::default()).unwrap();
    assert_eq!(header(&answer, "retry-after"), None);
}

#[test]
fn a_failed_store_is_not_the_clients_fault() {
    let decision = decision(Kind::Failed, None);
    let answer = answer(&decision, &rules(), &Response::default()).unwrap();
    assert_eq!((answer.status, answer.grpc_status), (503, 14));
    assert_eq!(answer.body, r#"{"message":"Service unavailable"}"#);
    assert_eq!(answer.details, "weir_failed:per-key");
    assert_eq!(answer.headers, [("content-type", "application/json".to_owned())]);
}

#[test]
fn an_allowed_request_is_told_what_is_left() {
    let decision = decision(Kind::Allowed, Some(Quota { limit: 100, remaining: 7, reset_ms: 0 }));
    assert_eq!(answer(&decision, &rules(), &Response::default()), None);
    let headers = limit_headers(&decision, &Response::default());
    let wanted = [("ratelimit-limit", "100"), ("ratelimit-remaining", "7"), ("ratelimit-reset", "0")];
    assert_eq!(headers, wanted.map(|(name, value)| (name, value.to_owned())));
}

#[test]
fn headers_can_be_switched_off() {
    let response = Response { ratelimit_headers: false, ..Response::default() };
    let decision = decision(Kind::Denied { retry_ms: Some(1) }, Some(QUOTA));
    assert_eq!(limit_headers(&decision, &response), []);
    let names: Vec<_> = answer(&decision, &rules(), &response).unwrap().headers.into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["content-type", "retry-after"]);
}

#[test]
fn the_access_log_says_who_decided_what_for_whom() {
    let rules = rules();
    let state = |decision: &Decision| {
        filter_state(decision, &rules).map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>()
    };
    let wanted = ["weir_verdict=denied", "weir_rule=per-key", "weir_subject=acme", "weir_source=redis"];
    assert_eq!(state(&decision(Kind::Denied { retry_ms: None }, None)), wanted);
    let failed = Decision { source: None, subject: None, ..decision(Kind::Failed, None) };
    assert_eq!(state(&failed), ["weir_verdict=error", "weir_rule=per-key"]);
}
