//! Redis by callouts.

use super::*;
use crate::host::worker::commands;
use proptest::prelude::*;

fn by(transport: &str, fields: &str) -> String {
    let auth = r#""auth":{"value":"user:token"}"#;
    let store = format!(r#"{{"store":{{"cluster":"weir-redis","transport":"{transport}",{auth}}},"#);
    format!("{store}{}}}", rule(&format!(r#","on_error":"deny"{fields}"#)))
}

/// Two rules for each request, and a call for each.
fn two_rules() -> String {
    by("upstash", "")
        .replace(r#""auth""#, r#""scope":"rule","auth""#)
        .replace(r#""rules":["#, r#""rules":[{"name":"all","key":["const:all"],"limits":["100/min"],"on_error":"deny"},"#)
}

/// The reply of a raw callout, behind that of its password.
fn resp(reply: &[u8]) -> Vec<u8> {
    [b"+OK\r\n", reply].concat()
}

/// Webdis's answer with a reply of integers.
fn json(reply: &[u8]) -> Vec<u8> {
    let integers: Vec<&str> = std::str::from_utf8(reply).unwrap().split("\r\n:").skip(1).map(str::trim).collect();
    format!(r#"{{"EVALSHA":[{}]}}"#, integers.join(",")).into_bytes()
}

fn bodies<V: Vm>(worker: &mut Worker<V>) -> Vec<String> {
    worker.vm.host(|host| host.callouts.iter().map(|call| String::from_utf8_lossy(&call.body).into_owned()).collect())
}

pub(crate) fn a_request_waits_for_its_callout_and_is_let_in<V: Vm>() {
    let answers =
        [("redis-call", resp(&allowed())), ("webdis", json(&allowed())), ("upstash", br#"{"result":[1,2,0,600]}"#.to_vec())];
    for (transport, answer) in answers {
        let mut worker: Worker<V> = Worker::start(&by(transport, ""));
        let id = worker.request_of("acme");
        assert!(matches!(worker.outcome(id), Outcome::Waiting));
        worker.turn();
        let timeouts: Vec<u32> = worker.vm.host(|host| host.callouts.iter().map(|call| call.timeout_ms).collect());
        assert_eq!(timeouts, [50]);
        worker.call_back(Some((200, &answer)));
        assert_eq!(worker.status(id), 200, "{transport}");
        let headers = worker.response(id, &[]);
        assert_eq!(value(&headers, "ratelimit-remaining"), Some("2"));
        assert_eq!(filter_state(&mut worker, id)[1], "weir_source=redis");
        assert_eq!(worker.vm.host(|host| host.metric("weir.store.connected")), 1);
    }
    let mut worker: Worker<V> = Worker::start(&by("webdis", ""));
    let id = worker.request_of("acme");
    worker.turn();
    worker.call_back(Some((200, &json(&denied()))));
    assert_eq!((worker.status(id), value(&answer(&mut worker, id).headers, "retry-after")), (429, Some("2")));
}

pub(crate) fn the_calls_of_a_request_are_one_pipeline<V: Vm>() {
    let mut worker: Worker<V> = Worker::start(&two_rules());
    let id = worker.request_of("acme");
    worker.turn();
    let sent = bodies(&mut worker);
    assert!(sent.len() == 1 && sent[0].starts_with("[[\"EVALSHA\",") && sent[0].contains("],[\"EVALSHA\","), "{sent:?}");
    let path = worker.vm.host(|host| host.callouts[0].headers.iter().find(|(name, _)| name == ":path").unwrap().1.clone());
    assert_eq!(path, "/pipeline");
    worker.call_back(Some((200, br#"[{"result":[1,2,0,600]},{"result":[0,0,1400,1800]}]"#)));
    assert_eq!(worker.status(id), 429);
}

pub(crate) fn a_script_that_a_server_does_not_know_is_brought_along<V: Vm>() {
    let mut worker: Worker<V> = Worker::start(&by("redis-call", ""));
    let id = worker.request_of("acme");
    worker.turn();
    worker.call_back(Some((200, &resp(NOSCRIPT))));
    worker.turn();
    let body = worker.vm.host(|host| host.callouts[0].body.clone());
    let verbs: Vec<String> = commands(&body).iter().map(|words| words[0].clone()).collect();
    assert_eq!(verbs, ["AUTH", "EVAL"]);
    worker.call_back(Some((200, &resp(&allowed()))));
    assert_eq!(worker.status(id), 200);
    assert_eq!(worker.vm.host(|host| host.metric("weir.store.noscript")), 1);
}

pub(crate) fn a_callout_that_comes_to_nothing_is_a_failure_of_its_own_request<V: Vm>() {
    let mut worker: Worker<V> = Worker::start(&by("redis-call", ""));
    let ids = requests(&mut worker, 4);
    worker.turn();
    worker.call_back(None);
    worker.call_back(Some((429, br#"{"message":"the backend's own"}"#)));
    worker.call_back(Some((200, &resp(b"*4\r\n:1\r\n:2"))));
    worker.call_back(Some((200, &resp(&allowed()))));
    assert_eq!(statuses(&mut worker, &ids), [503, 503, 503, 200]);
    assert_eq!(answer(&mut worker, ids[1]).body, r#"{"message":"Service unavailable"}"#);
    worker.vm.host(|host| host.faults.callouts = 1);
    let id = worker.request_of("refused");
    worker.turn();
    assert_eq!(worker.status(id), 503);
    assert_eq!(worker.vm.host(|host| host.metric("weir.store.failures")), 4);
}

pub(crate) fn a_request_that_is_over_is_not_acted_for_and_its_answer_counts<V: Vm>() {
    let mut worker: Worker<V> = Worker::start(&by("webdis", ""));
    let gone = worker.request_of("gone");
    let here = worker.request_of("here");
    worker.over_in_vm(gone);
    worker.turn();
    worker.call_back(Some((200, &json(&denied()))));
    worker.call_back(Some((200, &json(&allowed()))));
    assert_eq!((worker.status(gone), worker.status(here)), (0, 200));
    assert_eq!(worker.vm.host(|host| host.metric("weir.store.pending")), 0);
}

pub(crate) fn a_callout_that_never_ends_is_timed_out<V: Vm>() {
    let mut worker: Worker<V> = Worker::start(&by("webdis", ""));
    let id = worker.request_of("acme");
    worker.pass_ms(45);
    assert_eq!(worker.status(id), 0);
    worker.pass_ms(15);
    assert_eq!(worker.status(id), 503);
    worker.call_back(Some((200, &json(&allowed()))));
    assert_eq!(worker.status(id), 503, "its late answer changes nothing");
    assert_eq!(worker.vm.host(|host| host.metric("weir.store.timeouts")), 1);
}

pub(crate) fn a_server_that_is_away_is_looked_for_and_found<V: Vm>() {
    let mut worker: Worker<V> = Worker::start(&by("webdis", ""));
    for id in requests(&mut worker, 5) {
        worker.turn();
        worker.call_back(Some((503, b"upstream connect error")));
        assert_eq!(worker.status(id), 503);
    }
    let unasked = worker.request_of("unasked");
    assert_eq!((worker.status(unasked), bodies(&mut worker).len()), (503, 0), "the breaker is open");
    worker.pass_ms(40);
    assert!(bodies(&mut worker)[0].contains("rl%3Agreeting"), "{:?}", bodies(&mut worker));
    worker.call_back(Some((200, &json(&allowed()))));
    let asked = worker.request_of("asked");
    worker.turn();
    worker.call_back(Some((200, &json(&allowed()))));
    assert_eq!(worker.status(asked), 200);
    let told: Vec<String> = worker.vm.host(|host| host.logs.clone());
    assert!(told[0].contains("HTTP status 503") && told[1].contains("Redis answers"), "{told:?}");
}

pub(crate) fn the_password_is_in_the_environment<V: Vm>() {
    let configuration = by("redis-call", "").replace(r#"{"value":"user:token"}"#, r#"{"env":"REDIS_AUTH"}"#);
    let with = |environment: &[&str]| {
        let mut host = Host::new(&Arc::default(), "weir", configuration.as_str());
        host.environment = environment.iter().map(|text| (*text).to_owned()).collect();
        let (worker, configured): (Worker<V>, bool) = Worker::configure(host);
        (worker, configured)
    };
    let (mut worker, configured) = with(&["PATH=/bin", "REDIS_AUTHOR=x", "REDIS_AUTH=weir:pass=word"]);
    assert!(configured);
    worker.request_of("acme");
    worker.turn();
    let body = worker.vm.host(|host| host.callouts[0].body.clone());
    assert_eq!(commands(&body)[0], ["AUTH", "weir", "pass=word"]);
    let (mut worker, configured) = with(&["REDIS_AUTHOR=x"]);
    assert!(!configured);
    let told = worker.vm.host(|host| host.logs.clone());
    let wanted = "weir: configuration: store.auth.env: REDIS_AUTH isn't set in the VM's environment; \
                  vm_config.environment_variables sets it";
    assert_eq!(told, [wanted]);
}

pub(crate) fn every_request_ends_once_whatever_a_server_says<V: Vm>() {
    let body = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..40),
        Just(resp(&allowed())),
        Just(json(&denied())),
        Just(resp(NOSCRIPT)),
        Just(NOSCRIPT.to_vec()),
        Just(br#"{"result":[1,2,0,600]}"#.to_vec()),
        Just(br#"{"error":"ERR x"}"#.to_vec()),
    ];
    let status = prop_oneof![Just(200_u16), Just(400), Just(429), 100_u16..600];
    let answers = proptest::collection::vec((proptest::option::of((status, body)), any::<bool>()), 1..20);
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(40));
    let transports = prop_oneof![Just("redis-call"), Just("webdis"), Just("upstash")];
    runner
        .run(&(transports, answers), |(transport, answers)| {
            let mut worker: Worker<V> = Worker::start(&by(transport, ""));
            let mut ids = Vec::new();
            for (answer, leaves) in &answers {
                let id = worker.request_of("acme");
                worker.turn();
                if *leaves {
                    worker.over_in_vm(id);
                } else {
                    ids.push(id);
                }
                if worker.vm.host(|host| !host.callouts.is_empty()) {
                    worker.call_back(answer.as_ref().map(|(status, body)| (*status, body.as_slice())));
                }
            }
            worker.pass_ms(200);
            for id in ids {
                prop_assert!([200, 429, 503].contains(&worker.status(id)));
            }
            prop_assert_eq!(worker.vm.host(|host| host.metric("weir.store.pending")), 0);
            Ok(())
        })
        .unwrap();
}
