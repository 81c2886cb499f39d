use super::*;
use crate::config::Config;
use crate::flow::Quota;
use crate::limit::{Limit, MAX_COUNT};
use crate::rules::RuleId;

fn rules() -> Rules {
    rules_with("")
}

/// The rule `per-key` with these fields more.
fn rules_with(fields: &str) -> Rules {
    let text = format!(r#"{{"rules":[{{"name":"per-key","key":["ip"],"limits":["100/min"]{fields}}}]}}"#);
    Rules::new(&Config::parse(text.as_bytes()).unwrap_or_else(|faults| panic!("{text}: {faults:?}")))
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

fn quota(remaining: u64, reset_ms: u64) -> Option<Quota> {
    Some(Quota { limit: Limit::token_bucket(100, 60_000, 100).unwrap(), remaining, reset_ms })
}

#[test]
fn a_denied_request_is_told_how_long_to_wait() {
    let waits = [(1, "1"), (999, "1"), (1000, "1"), (1001, "2"), (59_001, "60"), (9_007_199_254_740_991, "9007199254741")];
    for (retry_ms, wanted) in waits {
        let decision = decision(Kind::Denied { retry_ms: Some(retry_ms) }, quota(0, 1001));
        let answer = answer(&decision, &rules(), 0).unwrap();
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
    let answer = answer(&decision(Kind::Denied { retry_ms: None }, quota(0, 1001)), &rules(), 0).unwrap();
    assert_eq!(header(&answer, "retry-after"), None);
}

#[test]
fn a_failed_store_is_not_the_clients_fault() {
    let decision = decision(Kind::Failed, None);
    let answer = answer(&decision, &rules(), 0).unwrap();
    assert_eq!((answer.status, answer.grpc_status), (503, 14));
    assert_eq!(answer.body, r#"{"message":"Service unavailable"}"#);
    assert_eq!(answer.details, "weir_failed:per-key");
    assert_eq!(answer.headers, [("content-type", "application/json".to_owned())]);
}

#[test]
fn an_allowed_request_is_told_what_is_left() {
    let decision = decision(Kind::Allowed, quota(7, 0));
    assert_eq!(answer(&decision, &rules(), 0), None);
    let headers = limit_headers(&decision, &rules());
    let wanted = [("ratelimit-limit", "100"), ("ratelimit-remaining", "7"), ("ratelimit-reset", "0")];
    assert_eq!(headers, wanted.map(|(name, value)| (name, value.to_owned())));
}

#[test]
fn each_family_of_headers_can_be_had_or_not() {
    let with = |families: &str| {
        let rules = rules_with(&format!(r#","response":{{"headers":{families}}}"#));
        let decision = decision(Kind::Denied { retry_ms: Some(1) }, quota(7, 1001));
        let headers = answer(&decision, &rules, 0).unwrap().headers;
        assert!(headers.ends_with(&limit_headers(&decision, &rules)), "the same as on an allowed response");
        headers.into_iter().skip(2).map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>()
    };
    assert_eq!(with("[]"), Vec::<String>::new());
    let usual = ["ratelimit-limit: 100", "ratelimit-remaining: 7", "ratelimit-reset: 2"];
    assert_eq!(with(r#"["ratelimit"]"#), usual);
    let older = usual.map(|line| format!("x-{line}"));
    assert_eq!(with(r#"["x-ratelimit"]"#), older);
    let structured = [r#"ratelimit-policy: "per-key";q=100;w=60"#, r#"ratelimit: "per-key";r=7;t=2"#];
    assert_eq!(with(r#"["structured"]"#), structured);
    let all = with(r#"["structured","x-ratelimit","ratelimit"]"#);
    assert_eq!(all, [&structured.map(str::to_owned)[..], &older, &usual.map(str::to_owned)].concat());
}

#[test]
fn a_structured_quota_is_what_comes_back_in_a_window() {
    let table = [
        // count, window, burst, remaining; q, w, r
        ((20, 1000, 40, 35), (20, 1, 20)),
        ((100, 60_000, 20, 20), (100, 60, 20)),
        ((5, 250, 5, 5), (20, 1, 5)),
        ((1, 300, 1, 1), (3, 1, 1)),
        ((10, 1500, 10, 3), (10, 2, 3)),
        ((MAX_COUNT, 1, MAX_COUNT, MAX_COUNT), (999_999_999_999_999_u64, 1, 999_999_999_999_999_u64)),
    ];
    for ((count, window_ms, burst, remaining), (q, w, r)) in table {
        let limit = Limit::token_bucket(count, window_ms, burst).unwrap();
        let lines = structured("a", Quota { limit, remaining, reset_ms: 0 }).map(|(_, value)| value);
        assert_eq!(lines, [format!("\"a\";q={q};w={w}"), format!("\"a\";r={r};t=0")]);
    }
}

fn denied_body(response: &str, retry_ms: Option<u64>, quota: Option<Quota>) -> (String, String) {
    let rules = rules_with(&format!(r#","response":{response}"#));
    let answer = answer(&decision(Kind::Denied { retry_ms }, quota), &rules, 0).unwrap();
    let content_type = header(&answer, "content-type").unwrap().to_owned();
    (answer.body, content_type)
}

#[test]
fn a_body_names_rule_limit_and_wait() {
    let text = r#"{"body":"{\"rule\":\"{rule}\",\"limit\":{limit},\"after\":{retry_after},\"{other}\":\"{ rule }\"}"}"#;
    let json = "application/json".to_owned();
    let wanted = r#"{"rule":"per-key","limit":100,"after":2,"{other}":"{ rule }"}"#;
    assert_eq!(denied_body(text, Some(1001), quota(0, 0)), (wanted.to_owned(), json.clone()));
    let without = r#"{"rule":"per-key","limit":null,"after":null,"{other}":"{ rule }"}"#;
    assert_eq!(denied_body(text, None, None), (without.to_owned(), json));
    assert_eq!(
        denied_body(r#"{"body":"","content_type":"text/plain"}"#, None, None),
        (String::new(), "text/plain".to_owned())
    );
}

#[test]
fn a_problem_is_that_of_the_draft() {
    let (body, content_type) = denied_body(r#"{"body":"problem","status":503}"#, Some(1), quota(0, 0));
    assert_eq!(content_type, "application/problem+json");
    let problem: serde_json::Value = serde_json::from_str(&body).unwrap();
    let wanted = serde_json::json!({
        "type": "https://iana.org/assignments/http-problem-types#quota-exceeded",
        "title": "Request cannot be satisfied as assigned quota has been exceeded",
        "status": 503,
        "violated-policies": ["per-key"],
    });
    assert_eq!(problem, wanted);
    assert_eq!(denied_body(r#"{"body":"problem","content_type":"application/json"}"#, None, None).1, "application/json");
}

#[test]
fn a_rule_says_what_differs_from_the_whole() {
    let text = r#"{"response":{"status":420,"body":"problem","grpc_status":"UNAVAILABLE","headers":[]},"rules":[
        {"name":"a","key":["ip"],"limits":["1/s"]},
        {"name":"b","key":["ip"],"limits":["1/s"],"response":{"body":"slow","grpc_status":"RESOURCE_EXHAUSTED","headers":["x-ratelimit"]}}]}"#;
    let rules = Rules::new(&Config::parse(text.as_bytes()).unwrap());
    let of = |rule: RuleId| {
        let decision = Decision { rule: Some(rule), ..decision(Kind::Denied { retry_ms: None }, quota(1, 0)) };
        let answer = answer(&decision, &rules, 0).unwrap();
        let headers: Vec<_> = answer.headers.iter().map(|(name, _)| *name).collect();
        let kind = header(&answer, "content-type").unwrap().to_owned();
        (answer.status, answer.body.len(), kind, answer.grpc_status, headers.len())
    };
    let ids: Vec<RuleId> = rules.iter().map(|(id, _)| id).collect();
    assert_eq!(of(ids[0]), (420, 186, "application/problem+json".to_owned(), 14, 1));
    assert_eq!(of(ids[1]), (420, 4, "application/json".to_owned(), 8, 4));
}

#[test]
fn jitter_adds_up_to_what_it_says() {
    let rules = rules_with(r#","response":{"retry_after_jitter":"3s"}"#);
    let decision = decision(Kind::Denied { retry_ms: Some(1000) }, None);
    let told = |random: u64| header(&answer(&decision, &rules, random).unwrap(), "retry-after").unwrap().to_owned();
    assert_eq!([0, 1, 1000, 1001, 3000, 3001].map(told), ["1", "2", "2", "3", "4", "1"]);
    for random in 0..5000 {
        assert!((1..=4).contains(&told(random).parse::<u64>().unwrap()));
    }
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
