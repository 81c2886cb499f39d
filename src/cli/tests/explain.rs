//! `weir explain` as somebody calls it who wonders what a rule does.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

mod command;

use command::{file, weir};
use std::fs;
use std::path::PathBuf;

const CONFIGURATION: &str = r#"
store: {cluster: weir-redis}
exempt:
- path: {prefix: /healthz}
- methods: [OPTIONS]
block:
- ip: [203.0.113.0/24]
rules:
- name: per-key
  match: {path: {prefix: /v1}, methods: [GET]}
  key: ["header:x-api-key | ip", route]
  limits: [20/s burst 40, 1000/h]
  cost: {from: "header:x-cost"}
  tiers: {by: metadata:envoy.filters.http.jwt_authn/payload/plan, values: {standard: [100/5min sliding_window], internal: unlimited}}
  overrides: {"acme,search": [500/250ms]}
  live_overrides: {}
- name: queue
  select: route
  key: ["cookie:sid"]
  limits: [{count: 10, window: s, algorithm: leaky_bucket, burst: 50}]
  mode: shadow
- name: expensive
  when: request.size > 1000
  key: ["cel:request.host"]
  limits: [1/d fixed_window]
  enforce_percent: 10
- name: later
  key: [ip]
  limits: [1/s]
  mode: off
- name: strict
  match: {not: {headers: [{name: x-a}]}}
  key: ["jwt:sub"]
  limits: [1/s]
  on_missing: deny
"#;

/// What is told of a request with these options.
fn told(name: &str, options: &[&str]) -> String {
    let file = file(name, CONFIGURATION);
    let (code, told, faults) = weir(&[&["explain", &file][..], options].concat());
    assert_eq!((code, faults.as_str()), (0, ""), "{options:?}");
    told
}

#[test]
fn each_rule_says_what_it_makes_of_a_request() {
    let options = ["--path", "/v1/x/../y?z=1", "--host", "api.example.com", "-H", "X-Api-Key: acme", "-H", "x-cost: 3"];
    let wanted = r#"GET api.example.com/v1/x/../y?z=1 from 198.51.100.7
  per-key: applies
    subject  acme,images
    cost     3
    limits   by the rule
      20/s burst 40 token_bucket in rl:{per-key:acme,images}:tb:1000
      1000/h token_bucket in rl:{per-key:acme,images}:tb:3600000
    live     HGET rl:overrides:per-key acme,images goes before these
  queue: doesn't apply: it is for routes whose metadata names it
  expensive: doesn't apply: when "request.size > 1000" doesn't hold
    Envoy evaluates request.size > 1000; say what it gives: --cel 'request.size > 1000=…'
    Envoy evaluates request.host; say what it gives: --cel 'request.host=…'
  later: off
  strict: denies it (on_missing: deny): the request has no "jwt:sub"

"#;
    assert_eq!(told("whole.yaml", &[&options[..], &["--ip", "198.51.100.7", "--route", "images"]].concat()), wanted);
}

/// The lines that a rule says, joined.
fn of_rule(name: &str, rule: &str, options: &[&str]) -> String {
    let told = told(name, &[&["--path", "/v1", "--ip", "192.0.2.1"], options].concat());
    let lines = told.lines().skip_while(|line| !line.starts_with(&format!("  {rule}: ")));
    let mut own =
        lines.enumerate().take_while(|(place, line)| *place == 0 || line.starts_with("    ")).map(|(_, line)| line.trim());
    own.by_ref().collect::<Vec<_>>().join("; ")
}

#[test]
fn the_limits_are_those_that_hold() {
    let plan = |plan: &str| format!("envoy.filters.http.jwt_authn/payload/plan={plan}");
    let live = "live     HGET rl:overrides:per-key";
    let tier = of_rule("tier.yaml", "per-key", &["--route", "r", "--metadata", &plan("standard")]);
    let wanted = "subject  2~192.0.2.1,r; cost     1; limits   by the tier; \
                  100/5m sliding_window in rl:{per-key:2~192.0.2.1,r}:sw:300000";
    assert_eq!(tier, format!("per-key: applies; {wanted}; {live} 2~192.0.2.1,r goes before these"));
    let unlimited = of_rule("unlimited.yaml", "per-key", &["--route", "r", "--metadata", &plan("internal")]);
    assert_eq!(unlimited, "per-key: doesn't limit 2~192.0.2.1,r: unlimited by the tier");
    let metadata = plan("standard");
    let options = ["--route", "search", "-H", "x-api-key: acme", "--metadata", &metadata];
    let by_subject = of_rule("override.yaml", "per-key", &options);
    assert!(
        by_subject.contains("limits   by the override; 500/250ms token_bucket in rl:{per-key:acme,search}:tb:250"),
        "{by_subject}"
    );
}

#[test]
fn a_routes_metadata_changes_what_holds() {
    let with = |name: &str, rule: &str, settings: &str, more: &[&str]| {
        of_rule(name, rule, &[&["--route", "r", "--route-metadata", settings], more].concat())
    };
    let own = with("own.yaml", "per-key", "{limits: {per-key: [5/s]}, cost: 7}", &[]);
    assert!(
        own.contains("subject  2~192.0.2.1,r!r; cost     7; limits   by the route's metadata; 5/s token_bucket"),
        "{own}"
    );
    let disabled = with("disabled.yaml", "per-key", "{disabled: true}", &[]);
    assert_eq!(disabled, "per-key: doesn't apply: the route's metadata disables all rules");
    let other = with("other.yaml", "per-key", "{rules: [queue]}", &[]);
    assert_eq!(other, "per-key: doesn't apply: the route's metadata names other rules");
    let named = with("named.yaml", "queue", "{rules: [queue]}", &["-H", "cookie: sid=x"]);
    assert!(named.starts_with("queue: applies in shadow; subject  #"), "{named}");
    assert!(named.contains("10/s burst 50 leaky_bucket in rl:{queue:#"), "{named}");
    let of_host = of_rule("of-host.yaml", "per-key", &["--virtual-host-metadata", "{\"cost\": 9}", "--route", "r"]);
    assert!(of_host.contains("cost     9"), "{of_host}");
}

#[test]
fn what_envoy_evaluates_is_told_by_options() {
    let options = ["--cel", "request.size > 1000=true", "--cel", "request.host=a.example"];
    let wanted = "expensive: applies, enforced on 10 % of requests; subject  a.example; cost     1; limits   by the rule; \
                  1/d fixed_window in rl:{expensive:a.example}:fw:86400000";
    assert_eq!(of_rule("cel.yaml", "expensive", &options), wanted);
    let not = of_rule("cel-false.yaml", "expensive", &["--cel", "request.size > 1000=false", "--cel", "request.host=x"]);
    assert_eq!(not, "expensive: doesn't apply: when \"request.size > 1000\" doesn't hold");
}

#[test]
fn a_condition_that_does_not_hold_is_shown() {
    let method = told("method.yaml", &["--path", "/v1", "--method", "POST"]);
    assert!(method.contains("  per-key: doesn't apply: match.methods [\"GET\"] doesn't hold\n"), "{method}");
    let path = told("path.yaml", &["--path", "/v10", "-H", "x-a: 1"]);
    assert!(path.contains("  per-key: doesn't apply: match.path {\"prefix\":\"/v1\"} doesn't hold\n"), "{path}");
    assert!(path.contains("  strict: doesn't apply: match.not {\"headers\":[{\"name\":\"x-a\"}]} doesn't hold\n"), "{path}");
    let key = of_rule("key.yaml", "per-key", &[]);
    assert_eq!(key, "per-key: doesn't apply (on_missing: skip): the request has no \"route\"");
}

#[test]
fn what_is_exempt_or_blocked_gets_no_further() {
    let exempt = told("exempt.yaml", &["--method", "OPTIONS", "--path", "/v1"]);
    assert_eq!(
        exempt,
        "OPTIONS /v1 from an unknown address\n  exempt, no rule sees it: exempt[1] {\"methods\":[\"OPTIONS\"]}\n\n"
    );
    let blocked = told("blocked.yaml", &["--ip", "203.0.113.9"]);
    assert_eq!(blocked, "GET / from 203.0.113.9\n  blocked with 403: block[0] {\"ip\":[\"203.0.113.0/24\"]}\n\n");
}

#[test]
fn requests_come_from_a_file() {
    let curl = file("curl.txt", "curl https://a.example/healthz\ncurl -X OPTIONS https://b.example/\n");
    let lines = told("from-file.yaml", &["--requests", &curl]);
    let lines: Vec<&str> = lines.lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(lines[0], "GET a.example/healthz from an unknown address");
    assert_eq!(lines[2], "OPTIONS b.example/ from an unknown address");
}

#[test]
fn without_a_store_there_are_no_keys_and_of_several_configurations_each_is_told() {
    let plugin = |limit: &str| {
        format!(
            "kind: WasmPlugin\nmetadata: {{name: weir}}\nspec: {{pluginConfig: {{rules: [{{name: a, key: [ip], limits: [{limit}]}}]}}}}\n"
        )
    };
    let file = file("plugins-explained.yaml", &format!("{}---\n{}", plugin("1/s"), plugin("2/s")));
    let (_, told, _) = weir(&["explain", &file, "--ip", "::ffff:192.0.2.1"]);
    let one = |line: usize, limit: &str| {
        let head = format!("{file}:{line}:\nGET / from 192.0.2.1\n  a: applies\n    subject  192.0.2.1\n    cost     1\n");
        format!("{head}    limits   by the rule\n      {limit} token_bucket\n\n")
    };
    assert_eq!(told, one(3, "1/s") + &one(7, "2/s"));
}

#[test]
fn the_readme_shows_what_is_told() {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let readme = fs::read_to_string(root.join("README.md")).unwrap();
    let command = readme.lines().find_map(|line| line.strip_prefix("weir explain envoy/redis.yaml ")).unwrap();
    let options = command.split("    #").next().unwrap().replace('\'', "").replace("-H x-api-key: acme", "-Hx-api-key:acme");
    let sample = root.join("envoy/redis.yaml").display().to_string();
    let (code, told, _) = weir(&[&["explain", &sample][..], &options.split(' ').collect::<Vec<_>>()].concat());
    assert_eq!(code, 0);
    assert!(readme.contains(&format!("```\n{}\n```", told.trim_end())), "{told}");
}

#[test]
fn what_can_not_be_told_is_said() {
    let good = file("explain-good.yaml", CONFIGURATION);
    let table = [
        (vec!["--header", "x"], "--header: \"x\" is no header; NAME: VALUE is wanted\n"),
        (vec!["--property", "x"], "--property: \"x\": A/B/C=VALUE is wanted\n"),
        (vec!["--cel", "x"], "--cel: \"x\": EXPRESSION=VALUE is wanted\n"),
        (vec!["--requests", "/nowhere/x"], "/nowhere/x: can't be read: No such file or directory (os error 2)\n"),
        (vec!["--route-metadata", "{cost: -1}"], "--route-metadata: cost: -1: an integer from 0 to 2147483648 is wanted\n"),
        (vec!["--route-metadata", "["], "--route-metadata: while parsing a node, did not find expected node content\n"),
    ];
    for (options, wanted) in table {
        let told = weir(&[&["explain", &good][..], &options].concat());
        assert_eq!(told, (2, String::new(), wanted.to_owned()), "{options:?}");
    }
    let bad = file("explain-bad.yaml", "rules: 1\n");
    let (code, told, faults) = weir(&["explain", &bad]);
    assert_eq!((code, told.as_str()), (1, ""));
    assert!(faults.starts_with(&format!("{bad}:1: rules: 1: ")), "{faults}");
}
