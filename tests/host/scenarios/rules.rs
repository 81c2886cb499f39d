//! Which rules a request meets, and with which limits, as the host says.

use super::configuration::{field, fields};
use super::*;
use serde_json::{Value, json};

/// The message that a host has of metadata: `envoy.config.core.v3.Metadata` with one namespace.
fn metadata(namespace: &str, settings: &Value) -> Vec<u8> {
    let entry = [field(1, namespace.as_bytes()), field(2, &fields(settings))].concat();
    field(1, &entry)
}

/// The attributes of a route with these settings.
fn route<V: Vm>(worker: &mut Worker<V>, level: &str, settings: &Value, key: &str) -> u32 {
    let whole = metadata("weir", settings);
    let seen = settings.to_string();
    let weir = format!("xds/{level}_metadata/filter_metadata/weir");
    let attributes = [
        (format!("xds/{level}_metadata"), Some(whole.as_slice())),
        // The host gives a namespace with a null in it as an error.
        (weir, (!seen.contains("null")).then_some(seen.as_bytes())),
        (format!("xds/{level}_name"), Some(&b"search"[..])),
    ];
    let attributes: Vec<(&str, Option<&[u8]>)> = attributes.iter().map(|(path, value)| (path.as_str(), *value)).collect();
    worker.request_with("192.0.2.1:1", &[("x-api-key", key.as_bytes())], &attributes)
}

fn metric<V: Vm>(worker: &mut Worker<V>, name: &str) -> i64 {
    worker.vm.host(|host| host.metric(name))
}

const TWO_RULES: &str = r#"{"rules":[
    {"name":"a","key":["header:x-api-key"],"limits":["1/d burst 3"]},
    {"name":"b","select":"route","key":["header:x-api-key"],"limits":["1/d burst 2"]}]}"#;

pub(crate) fn a_route_says_which_rules_apply_at_what_cost_and_with_which_limits<V: Vm>() {
    for level in ["route", "virtual_host"] {
        let table = [
            (json!({"disabled": true}), vec![200; 5]),
            (json!({"disabled": false}), vec![200, 200, 200, 429]),
            (json!({"rules": ["b"]}), vec![200, 200, 429]),
            (json!({"cost": 2}), vec![200, 429]),
            (json!({"limits": {"a": ["1/d"]}}), vec![200, 429]),
            (json!({"limits": {"a": "unlimited"}}), vec![200; 5]),
        ];
        for (settings, wanted) in table {
            let mut worker = Worker::<V>::start(TWO_RULES);
            let ids: Vec<u32> = wanted.iter().map(|_| route(&mut worker, level, &settings, "k")).collect();
            assert_eq!(statuses(&mut worker, &ids), wanted, "{level} {settings}");
            assert_eq!(metric(&mut worker, "weir.config.route_errors"), 0);
        }
    }
}

pub(crate) fn limits_of_a_route_leave_the_bucket_of_the_others_alone<V: Vm>() {
    let mut worker = Worker::<V>::start(TWO_RULES);
    let own = route(&mut worker, "route", &json!({"limits": {"a": ["1/d"]}}), "k");
    assert!(filter_state(&mut worker, own).contains(&"weir_subject=k!search".to_owned()));
    let ids = [(); 4].map(|()| worker.request_of("k"));
    assert_eq!(ids.map(|id| worker.status(id)), [200, 200, 200, 429]);
}

pub(crate) fn faulty_metadata_of_a_route_fails_no_request_and_is_told_once<V: Vm>() {
    let faulty = [
        (json!({"disabled": null}), "metadata of a route is ignored: disabled: null: true or false is wanted"),
        (
            json!({"cost": "five"}),
            r#"metadata of a route is ignored: cost: "five": an integer from 0 to 2147483648 is wanted"#,
        ),
        (
            json!({"rules": ["aa"]}),
            r#"metadata of a route is ignored: rules[0]: "aa": there is no rule "aa" (did you mean "a"?)"#,
        ),
        (json!({"limits": {"a": ["0/s"]}}), "limits.a[0]: \"0/s\": a count of 0 would deny every request"),
        (json!({"off": true}), "off: true: unknown field; allowed: disabled, rules, cost, limits"),
    ];
    for (settings, line) in faulty {
        let mut worker = Worker::<V>::start(TWO_RULES);
        let ids = [(); 4].map(|()| route(&mut worker, "route", &settings, "k"));
        assert_eq!(ids.map(|id| worker.status(id)), [200, 200, 200, 429], "as without it: {settings}");
        assert_eq!(metric(&mut worker, "weir.config.route_errors"), 4);
        let logs = worker.vm.host(|host| host.logs.clone());
        assert_eq!(logs.iter().filter(|log| log.contains(line)).count(), 1, "{line}: {logs:?}");
    }
}

pub(crate) fn requests_are_exempt_or_blocked_before_any_rule<V: Vm>() {
    let configuration = r#"{"exempt":[{"path":{"prefix":"/healthz"}},
            {"methods":["OPTIONS"],"headers":[{"name":"access-control-request-method"}]}],
        "block":[{"ip":["203.0.113.0/24"]},{"methods":["TRACE"],"status":405}],
        "rules":[{"name":"r","key":["const:all"],"limits":["1/d"]}]}"#;
    let mut worker = Worker::<V>::start(configuration);
    let preflight: &[(&str, &[u8])] = &[(":method", b"OPTIONS"), ("access-control-request-method", b"PUT")];
    for headers in [&[(":path", &b"/healthz?full"[..])][..], preflight].repeat(50) {
        let id = worker.request(headers);
        assert_eq!(worker.status(id), 200);
        assert_eq!(filter_state(&mut worker, id), ["weir_verdict=exempt"]);
    }
    let ids = [(); 2].map(|()| worker.request(&[]));
    assert_eq!(ids.map(|id| worker.status(id)), [200, 429], "nothing was charged before");
    let id = worker.request_from("203.0.113.9:1", &[(":path", b"/healthz")]);
    let blocked = answer(&mut worker, id);
    assert_eq!((blocked.status, blocked.details.as_str()), (403, "weir_blocked"));
    assert_eq!(filter_state(&mut worker, id), ["weir_verdict=blocked"]);
    let id = worker.request(&[(":method", b"TRACE")]);
    assert_eq!(worker.status(id), 405);
    assert_eq!(["exempt", "blocked"].map(|name| metric(&mut worker, &format!("weir.request.{name}"))), [100, 2]);
}

pub(crate) fn a_rule_in_shadow_is_told_and_nothing_comes_of_it<V: Vm>() {
    let configuration = r#"{"store":{"cluster":"weir-redis"},"rules":[
        {"name":"s","key":["header:x-api-key"],"limits":["1/d"],"mode":"shadow"},
        {"name":"r","key":["header:x-api-key"],"limits":["100/min burst 3"]}]}"#;
    let mut worker = connected_with::<V>(configuration, 2);
    let id = worker.request_of("k");
    assert_eq!(worker.sent().len(), 2, "each has a call of its own");
    worker.receive(&[allowed(), denied()].concat());
    assert_eq!(worker.status(id), 200);
    let state = filter_state(&mut worker, id);
    assert_eq!(state, ["weir_rule=s", "weir_source=redis", "weir_subject=k", "weir_verdict=shadow_denied"]);
    let headers = worker.response(id, &[]);
    assert_eq!(value(&headers, "ratelimit-limit"), Some("3"), "of the rule that is in force");
    let counted = ["s.shadow_denied", "s.denied", "r.denied"].map(|name| metric(&mut worker, &format!("weir.rule.{name}")));
    assert_eq!(counted, [1, 0, 0]);
}

pub(crate) fn a_part_of_the_requests_is_enforced_on<V: Vm>() {
    let configuration = r#"{"rules":[{"name":"r","key":["const:all"],"limits":["1/d"],"enforce_percent":30}]}"#;
    let mut worker = Worker::<V>::start(configuration);
    let ids: Vec<u32> = (0..1000).map(|_| worker.request(&[])).collect();
    let denied = statuses(&mut worker, &ids).into_iter().filter(|status| *status == 429).count();
    assert!((200..400).contains(&denied), "{denied} of 1000 denied");
    let counted = ["denied", "shadow_denied"].map(|name| metric(&mut worker, &format!("weir.rule.r.{name}")));
    assert_eq!(counted.iter().sum::<i64>(), 999);
}

pub(crate) fn expressions_are_the_hosts<V: Vm>() {
    let configuration =
        r#"{"rules":[{"name":"r","when":"true","key":["cel:request.headers['x-api-key']"],"limits":["1/d"]}]}"#;
    let mut worker = Worker::<V>::start(configuration);
    let ids =
        [worker.request_of("k"), worker.request_of("k"), worker.request_of("l"), worker.request(&[]), worker.request(&[])];
    assert_eq!(ids.map(|id| worker.status(id)), [200, 429, 200, 200, 200]);
    assert_eq!(metric(&mut worker, "weir.rule.r.missing_key"), 2);
    let never = r#"{"rules":[{"name":"r","when":"request.headers['x-api-key']","key":["ip"],"limits":["1/d"]}]}"#;
    let mut worker = Worker::<V>::start(never);
    let ids = [worker.request_of("k"), worker.request_of("k"), worker.request(&[]), worker.request(&[])];
    assert_eq!(ids.map(|id| worker.status(id)), [200; 4], "a text is not true");
    for (foreign, why) in [(0, "Envoy's CEL evaluator can't compile it"), (1, "this host has no CEL evaluator")] {
        let bad = r#"{"rules":[{"name":"r","when":"request.size <","key":["ip"],"limits":["1/d"]}]}"#;
        let mut host = Host::new(&Arc::default(), "weir", bad);
        host.faults.foreign = foreign;
        let (mut worker, configured) = Worker::<V>::configure(host);
        assert!(!configured);
        let line = format!(r#"weir: configuration: rules[0].when: "request.size <": {why}"#);
        assert_eq!(worker.vm.host(|host| host.logs.clone()), [line]);
    }
}

const LIVE: &str = r#"{"store":{"cluster":"weir-redis"},"rules":[
    {"name":"r","key":["header:x-api-key"],"limits":["100/min burst 3"],"live_overrides":{"every":"10s"}}]}"#;

fn page(texts: &[&str]) -> Vec<u8> {
    let items = texts.iter().map(|text| format!("${}\r\n{text}\r\n", text.len()));
    format!("*{}\r\n{}", texts.len(), items.collect::<String>()).into_bytes()
}

/// The burst that is asked for in the next request of `k`.
fn burst<V: Vm>(worker: &mut Worker<V>) -> String {
    let id = worker.request_of("k");
    worker.turn();
    let sent = worker.vm.host(|host| std::mem::take(&mut host.sent)).concat();
    worker.receive(&allowed());
    assert_eq!(worker.status(id), 200);
    super::super::worker::commands(&sent).pop().unwrap().get(7).unwrap().clone()
}

pub(crate) fn live_overrides_are_read_and_read_again<V: Vm>() {
    let mut worker = Worker::<V>::start(LIVE);
    let first = worker.request_of("k");
    worker.turn();
    worker.receive(&[GREETED, &allowed()].concat());
    assert_eq!(worker.status(first), 200);
    let asked = worker.sent();
    assert!(asked.last().unwrap().ends_with(" rl:overrides:r"), "{asked:?}");
    worker.receive(&page(&["0", "k", "500/s", "bad", "500", "other", "unlimited"]));
    assert_eq!(burst(&mut worker), "500");
    assert_eq!(metric(&mut worker, "weir.config.override_errors"), 1);
    worker.sent();
    worker.pass_ms(10_100);
    assert_eq!(worker.sent(), ["EVAL rl:overrides:r"]);
    worker.receive(&page(&["0", "bad", "500"]));
    assert_eq!(burst(&mut worker), "3", "it is there no more");
    let logs = worker.vm.host(|host| host.logs.clone());
    let told = logs.iter().filter(|log| log.contains("rule r: the live override of bad is ignored: ")).count();
    assert_eq!((told, metric(&mut worker, "weir.config.override_errors")), (1, 1), "once: {logs:?}");
    worker.pass_ms(10_100);
    assert_eq!(worker.sent().len(), 1);
    worker.receive(b"-WRONGTYPE no hash\r\n");
    assert_eq!(metric(&mut worker, "weir.config.override_errors"), 2);
}
