//! What becomes of a request, and what its client is told.

use super::*;

pub(crate) fn a_request_waits_for_redis_and_is_let_in<V: Vm>() {
    let mut worker = Worker::<V>::start(&with_redis(""));
    let id = worker.request_of("a");
    assert!(matches!(worker.outcome(id), Outcome::Waiting));
    assert_eq!(worker.vm.host(|host| host.streams), 0, "a request opens no stream: it would be the request's");
    worker.turn();
    assert_eq!(worker.sent(), ["EVALSHA rl:greeting", "EVALSHA rl:{r:a}:tb:60000"]);
    worker.receive(&[GREETED, &allowed()].concat());
    assert!(matches!(worker.outcome(id), Outcome::Continued));
    let headers = worker.response(id, &[("server", "x"), ("ratelimit-limit", "of the upstream")]);
    let limits = ["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset", "server"].map(|name| value(&headers, name));
    assert_eq!(limits, [Some("3"), Some("2"), Some("1"), Some("x")]);
    assert_eq!(
        filter_state(&mut worker, id),
        ["weir_rule=r", "weir_source=redis", "weir_subject=a", "weir_verdict=allowed"]
    );
    worker.gone(id);
}

pub(crate) fn a_denied_request_is_told_its_wait<V: Vm>() {
    let mut worker = connected::<V>(&with_redis(""));
    let id = worker.request_of("a");
    worker.receive(&denied());
    let answer = answer(&mut worker, id);
    assert_eq!((answer.status, answer.grpc_status), (429, 8));
    assert_eq!((answer.body.as_str(), answer.details.as_str()), (r#"{"message":"Too many requests"}"#, "weir_denied:r"));
    let names = ["retry-after", "ratelimit-limit", "ratelimit-remaining", "ratelimit-reset", "content-type"];
    let wanted = [Some("2"), Some("3"), Some("0"), Some("2"), Some("application/json")];
    assert_eq!(names.map(|name| value(&answer.headers, name)), wanted);
    let headers = worker.vm.host(|host| host.requests[&id].response_headers.clone());
    assert_eq!(headers.len(), names.len(), "the response callback adds nothing: {headers:?}");
    worker.over_in_vm(id);
}

pub(crate) fn a_request_that_can_never_pass_is_told_no_wait<V: Vm>() {
    let mut worker = connected::<V>(&with_redis(r#","cost":4"#));
    let id = worker.request_of("a");
    worker.receive(&reply(2, 3, 0, 0));
    let answer = answer(&mut worker, id);
    assert_eq!((answer.status, value(&answer.headers, "retry-after")), (429, None));
    assert_eq!(value(&answer.headers, "ratelimit-remaining"), Some("3"));
}

/// Two rules, for all and by API key.
fn two_rules(scope: &str) -> String {
    format!(
        r#"{{"store":{{"cluster":"weir-redis","scope":"{scope}"}},"rules":[
            {{"name":"all","key":["const:all"],"limits":["9/s"]}},
            {{"name":"own","key":["header:x-api-key"],"limits":["5/s"]}}]}}"#
    )
}

pub(crate) fn a_request_is_decided_once_all_its_calls_are_settled<V: Vm>() {
    let mut worker = Worker::<V>::start(&two_rules("rule"));
    let cases = [
        ("a", [allowed(), allowed()], 200),
        ("a", [allowed(), denied()], 429),
        ("b", [denied(), allowed()], 429), // the denial of `a` is kept
    ];
    for (client, replies, wanted) in cases {
        let id = worker.request_of(client);
        if wanted == 200 {
            worker.turn();
            worker.receive(GREETED);
        }
        worker.receive(&replies[0]);
        assert_eq!(worker.status(id), 0, "one of two");
        worker.receive(&replies[1]);
        assert_eq!(worker.status(id), wanted);
    }
    assert_eq!(worker.sent()[1..3], ["EVALSHA rl:{all:all}:tb:1000", "EVALSHA rl:{own:a}:tb:1000"]);
}

pub(crate) fn a_request_is_let_in_by_all_its_rules_or_not_at_all<V: Vm>() {
    let mut worker = Worker::<V>::start(&two_rules("request"));
    let ids = [worker.request_of("a"), worker.request_of("b")];
    worker.turn();
    assert_eq!(worker.sent().len(), 3, "the greeting, and one call a request");
    let both = |one: &str, other: &str| format!("*8\r\n{one}{other}").into_bytes();
    worker.receive(GREETED);
    worker.receive(&both(":1\r\n:8\r\n:0\r\n:112\r\n", ":1\r\n:4\r\n:0\r\n:200\r\n"));
    worker.receive(&both(":1\r\n:8\r\n:0\r\n:112\r\n", ":0\r\n:0\r\n:2200\r\n:3000\r\n"));
    assert_eq!(filter_state(&mut worker, ids[0])[0], "weir_rule=own", "the least is left of it");
    assert_eq!(value(&worker.response(ids[0], &[]), "ratelimit-remaining"), Some("4"));
    let answer = answer(&mut worker, ids[1]);
    assert_eq!((answer.details.as_str(), value(&answer.headers, "retry-after")), ("weir_denied:own", Some("3")));
}

pub(crate) fn requests_that_no_rule_is_for_pass_untouched<V: Vm>() {
    for configuration in [with_redis(""), with_redis(r#","mode":"off""#)] {
        let mut worker = Worker::<V>::start(&configuration);
        let id = worker.request(&[]);
        assert!(matches!(worker.outcome(id), Outcome::Continued));
        assert_eq!(worker.response(id, &[("server", "x")]), [("server".to_owned(), "x".to_owned())]);
        assert_eq!(filter_state(&mut worker, id), Vec::<String>::new());
        worker.gone(id);
    }
}
