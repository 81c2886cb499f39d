//! Good and bad plugin configurations in Envoy.

use crate::beside_others;
use crate::servers::envoy_server::Setup;
use std::process::Command;

const RULE: &str = r#"{"rules":[{"name":"per-key","key":["header:x-api-key"],"limits":[{"count":1,"window":"day","burst":2}],"local":{"share":0.5}}]}"#;

#[test]
fn it_comes_as_text_bytes_or_a_struct() {
    let _machine = beside_others();
    let encoded = Command::new("bash").args(["-c", "printf %s \"$0\" | base64 -w0", RULE]).output().unwrap();
    let values = [
        ("StringValue", serde_json::to_string(RULE).unwrap()),
        ("BytesValue", String::from_utf8(encoded.stdout).unwrap()),
        ("Struct", RULE.to_owned()),
    ];
    for (message, value) in values {
        let envoy = Setup::sample("quickstart.yaml").with_configuration(message, &value).start();
        assert_eq!(envoy.statuses("a", 2), [200, 429], "{message}: half of a burst of two");
    }
}

#[test]
fn a_bad_one_stops_the_start_with_a_line_for_each_fault() {
    let _machine = beside_others();
    let bad = r#"{"store":{"clutser":"c"},"rules":[{"name":"Per Key","key":["ip"],"limits":["0/s"],"on_eror":"deny"}]}"#;
    let lines = [
        r#"store.clutser: "c": unknown field (did you mean "cluster"?); allowed: transport, cluster, timeout, key_prefix, scope, breaker"#,
        "store.cluster: missing; the name of the Envoy cluster that leads to Redis is wanted",
        r#"rules[0].name: "Per Key": 1 to 64 of a-z, 0-9, _ and - are wanted"#,
        r#"rules[0].limits[0]: "0/s": a count of 0 would deny every request; allowed: 1 to 9007199254740991"#,
        r#"rules[0].on_eror: "deny": unknown field (did you mean "on_error"?)"#,
    ];
    for (message, value) in [("StringValue", serde_json::to_string(bad).unwrap()), ("Struct", bad.to_owned())] {
        let (status, log) = Setup::sample("quickstart.yaml").with_configuration(message, &value).refused();
        assert!(!status.success(), "{status}");
        for line in lines {
            let found: Vec<&str> = log.lines().filter(|found| found.contains(line)).collect();
            assert_eq!(found.len(), 1, "{message}: {line}\n{log}");
            assert!(found[0].contains("weir: configuration: "), "{}", found[0]);
        }
    }
}

#[test]
fn none_at_all_stops_the_start_and_shows_the_smallest() {
    let _machine = beside_others();
    let (status, log) = Setup::local("").refused();
    assert!(!status.success(), "{status}");
    let smallest = r#"the smallest valid one is {"rules":[{"name":"all","key":["ip"],"limits":["10/s"]}]}"#;
    assert!(log.contains(smallest), "{log}");
    let smallest = r#"{"rules":[{"name":"all","key":["ip"],"limits":["10/s"]}]}"#;
    assert_eq!(Setup::local(smallest).start().get("/", &[]).status, 200);
}
