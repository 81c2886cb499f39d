//! Configurations as the host hands them over.

use super::*;
use serde_json::{Value, json};

pub(crate) fn a_bad_configuration_is_refused_with_a_line_for_each_fault<V: Vm>() {
    let faults = [
        (
            "",
            vec![
                r#"configuration: empty; the smallest valid one is {"rules":[{"name":"all","key":["ip"],"limits":["10/s"]}]}"#,
            ],
        ),
        (
            r#"{"rules":[{"name":"r","key":["ip"],"limits":[{"limt":1,"window":"s","count":10.5}]}],"max-age":1}"#,
            vec![
                r#"max-age: 1: unknown field; allowed: store, client_ip, exempt, block, response, rules"#,
                r#"rules[0].limits[0].limt: 1: unknown field; allowed: count, window, burst, algorithm, max_delay"#,
                r#"rules[0].limits[0].count: 10.5: an integer from 1 to 9007199254740991 is wanted"#,
            ],
        ),
        (
            r#"{"rules":[{"name":"r","key":["ip"],"limits":["0/s"],"limts":["1/s"],"windowMS":1}]}"#,
            vec![
                r#"rules[0].limts: ["1/s"]: unknown field (did you mean "limits"?); allowed: name, select, match, when, key, limits, algorithm, cost, tiers, overrides, live_overrides, on_missing, on_error, local, mode, enforce_percent, cache_denials, lease, response"#,
                r#"rules[0].windowMS: 1: unknown field; allowed: name, select, match, when, key, limits, algorithm, cost, tiers, overrides, live_overrides, on_missing, on_error, local, mode, enforce_percent, cache_denials, lease, response"#,
                r#"rules[0].limits[0]: "0/s": a count of 0 would deny every request; allowed: 1 to 9007199254740991"#,
            ],
        ),
        (
            r#"{"rules":[{"name":"r","key":["ip"]}]}"#,
            vec![r#"rules[0].limits: missing; a list of 1 to 8 limits is wanted, such as ["10/s"]"#],
        ),
    ];
    for (configuration, lines) in faults {
        let (mut worker, configured) = Worker::<V>::configure(Host::new(&Arc::default(), "weir", configuration));
        assert!(!configured);
        let wanted: Vec<String> = lines.into_iter().map(|line| format!("weir: configuration: {line}")).collect();
        assert_eq!(worker.vm.host(|host| host.logs.clone()), wanted);
    }
}

pub(crate) fn a_struct_is_a_configuration<V: Vm>() {
    let configuration = json!({
        "response": {"status": 420, "headers": []},
        "rules": [{"name": "r", "key": ["header:x-api-key"], "limits": [{"count": 500_000, "window": "d", "burst": 1}]}],
    });
    let (mut worker, configured) = Worker::<V>::configure(Host::new(&Arc::default(), "weir", fields(&configuration)));
    assert!(configured, "{:?}", worker.vm.host(|host| host.logs.clone()));
    let ids = [worker.request_of("a"), worker.request_of("a"), worker.request_of("b")];
    assert_eq!(ids.map(|id| worker.status(id)), [200, 420, 200]);

    let fraction = json!({"rules": [{"name": "r", "key": ["ip"], "limits": [{"count": 10.5, "window": "s"}]}]});
    let (mut worker, configured) = Worker::<V>::configure(Host::new(&Arc::default(), "weir", fields(&fraction)));
    assert!(!configured);
    let wanted = "weir: configuration: rules[0].limits[0].count: 10.5: an integer from 1 to 9007199254740991 is wanted";
    assert_eq!(worker.vm.host(|host| host.logs.clone()), [wanted]);
}

pub(crate) fn a_new_configuration_takes_over_and_leaves_nothing_of_the_old_one<V: Vm>() {
    let mut worker = connected::<V>(&with_redis(""));
    let id = worker.request_of("waits");
    worker.pass_ms(20);
    worker.gone(id);
    worker.reconfigure(&with_redis(r#","cost":2"#));
    let gauges = ["connected", "pending"].map(|name| worker.vm.host(|host| host.metric(&format!("weir.store.{name}"))));
    assert_eq!(gauges, [0, 0]);
    let id = worker.request_of("a");
    worker.turn();
    worker.receive(&[GREETED, &allowed()].concat());
    assert_eq!(worker.status(id), 200);
    assert_eq!(worker.vm.host(|host| host.metric("weir.store.connected")), 1);
}

/// The bytes of a `google.protobuf.Struct`, which has a double for every number.
pub(super) fn fields(object: &Value) -> Vec<u8> {
    let entries = object.as_object().unwrap().iter();
    entries.flat_map(|(name, value)| field(1, &[field(1, name.as_bytes()), field(2, &message(value))].concat())).collect()
}

/// The bytes of a `google.protobuf.Value`.
fn message(value: &Value) -> Vec<u8> {
    match value {
        Value::Null => vec![0x08, 0],
        Value::Number(number) => [&[0x11], &number.as_f64().unwrap().to_le_bytes()[..]].concat(),
        Value::String(text) => field(3, text.as_bytes()),
        Value::Bool(flag) => vec![0x20, (*flag).into()],
        Value::Object(_) => field(5, &fields(value)),
        Value::Array(items) => field(6, &items.iter().flat_map(|item| field(1, &message(item))).collect::<Vec<u8>>()),
    }
}

/// A field of protobuf that holds bytes.
pub(super) fn field(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![number << 3 | 2];
    let mut length = bytes.len();
    while length >= 0x80 {
        out.push(u8::try_from(length & 0x7f).unwrap() | 0x80);
        length >>= 7;
    }
    out.push(u8::try_from(length).unwrap());
    out.extend(bytes);
    out
}
