//! `weir check` as it is called from a script.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod command;

use command::{file, weir};
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const GOOD: &str = r#"{"rules":[{"name":"all","key":["ip"],"limits":["10/s"]}]}"#;
const BAD: &str = "{\n\"rules\": [{\"name\":\"all\",\"key\":[\"ip\"],\n  \"limits\":[\"0/s\"],\"modes\":\"off\"}]}";

/// The lines that are told about a file, without its name.
fn told(name: &str, text: &str) -> Vec<String> {
    let file = file(name, text);
    let (_, _, faults) = weir(&["check", &file]);
    faults.lines().map(|line| line.strip_prefix(&format!("{file}:")).unwrap_or(line).trim_start().to_owned()).collect()
}

#[test]
fn a_good_file_is_told_so() {
    let good = file("good.json", GOOD);
    assert_eq!(weir(&["check", &good]), (0, format!("{good}: ok, 1 rule\n"), String::new()));
}

#[test]
fn every_fault_of_a_bad_file_is_a_line_and_the_other_files_are_read_too() {
    let (good, bad) = (file("good-beside.json", GOOD), file("bad.json", BAD));
    let (code, told, faults) = weir(&["check", &bad, &good]);
    assert_eq!((code, told), (1, format!("{good}: ok, 1 rule\n")));
    let lines: Vec<&str> = faults.lines().collect();
    assert_eq!(lines.len(), 2, "{faults}");
    assert!(lines.iter().all(|line| line.starts_with(&format!("{bad}:3: rules[0]."))), "{faults}");
    assert!(faults.contains(r#"did you mean "mode""#), "{faults}");
}

#[test]
fn a_file_that_can_not_be_read_is_another_exit_code() {
    let (code, told, faults) = weir(&["check", "/nowhere/weir.json"]);
    assert_eq!((code, told.as_str()), (2, ""));
    assert!(faults.starts_with("/nowhere/weir.json: can't be read: "), "{faults}");
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("bytes.yaml");
    fs::write(&path, b"rules: \xff").unwrap();
    let file = path.display().to_string();
    assert_eq!(weir(&["check", &file]), (2, String::new(), format!("{file}: can't be read: it isn't UTF-8\n")));
}

#[test]
fn standard_input_is_a_file_too() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    let mut weir = command.args(["check", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    weir.stdin.take().unwrap().write_all(GOOD.as_bytes()).unwrap();
    let output = weir.wait_with_output().unwrap();
    assert_eq!(output.stdout, b"-: ok, 1 rule\n");
}

#[test]
fn without_a_command_the_usage_is_told() {
    for arguments in [&[][..], &["check"], &["chek", "x"]] {
        let (code, told, usage) = weir(arguments);
        assert_eq!((code, told.as_str()), (2, ""), "{arguments:?}");
        assert!(usage.contains("Usage: weir"), "{usage}");
    }
}

#[test]
fn for_a_program_it_is_json() {
    let (good, bad) = (file("good-for-json.json", GOOD), file("bad-for-json.json", BAD));
    let (code, told, faults) = weir(&["check", "--format", "json", &good, &bad, "/nowhere/x"]);
    assert_eq!((code, faults.as_str()), (2, ""));
    let mut told: Value = serde_json::from_str(&told).unwrap();
    assert!(told[2]["error"].as_str().unwrap().starts_with("can't be read: "));
    let message = told[1]["faults"][1]["message"].take();
    assert_eq!(message, "a count of 0 would deny every request; allowed: 1 to 9007199254740991");
    assert_eq!(told[0], json!({"file": good, "ok": true, "faults": []}));
    assert_eq!(told[1]["ok"], false);
    let wanted = json!({"line": 3, "metadata_of": null, "path": "rules[0].limits[0]", "value": "\"0/s\"", "message": null});
    assert_eq!(told[1]["faults"][1], wanted);
}

#[test]
fn the_files_of_the_project_are_good() {
    let envoy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../envoy");
    let files = ["quickstart.yaml", "redis.yaml", "redis-listener.yaml", "istio/wasmplugin.yaml", "istio/cluster.yaml"];
    let files = files.map(|file| envoy.join(file).display().to_string());
    let (code, told, faults) = weir(&[&["check"][..], &files.each_ref().map(String::as_str)].concat());
    assert_eq!((code, faults.as_str()), (0, ""));
    let told: Vec<&str> = told.lines().map(|line| line.rsplit(": ").next().unwrap()).collect();
    assert_eq!(told, ["ok, 1 rule", "ok, 1 rule", "ok, 1 rule", "ok, 1 rule", "ok, the bridge, which has no configuration"]);
}

/// An Envoy configuration: a filter with this `configuration`, after one of somebody else's; and these `routes`.
fn envoy(configuration: &str, routes: &str) -> String {
    format!(
        "static_resources:
  listeners:
  - filter_chains:
    - filters:
      - typed_config:
          \"@type\": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          http_filters:
          - typed_config:
              \"@type\": type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm
              config: {{name: other, configuration: {{\"@type\": type.googleapis.com/google.protobuf.StringValue, value: \"{{}}\"}}}}
          - typed_config:
              \"@type\": type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm
              config:
                vm_config: {{code: {{local: {{filename: /etc/weir.wasm}}}}}}
                configuration:
                  \"@type\": type.googleapis.com/google.protobuf.{configuration}
          route_config: {routes}
"
    )
}

#[test]
fn in_envoys_configuration_the_lines_are_the_files() {
    let literal = "StringValue\n                  value: |\n\n                    {\"rules\":\n                      []}";
    let list = r#"rules: []: a list of 1 to 1000 is wanted: rules, such as [{"name":"all","key":["ip"],"limits":["10/s"]}]"#;
    let missing = "rules: missing; a list of 1 to 1000 rules is wanted".to_owned();
    let table = [
        (literal.to_owned(), vec![format!("19: {list}")]),
        ("StringValue\n                  value: '{\"rules\":[]}'".to_owned(), vec![format!("17: {list}")]),
        (
            "StringValue\n                  value: |\n                    {\"rules\":\n                    ]}".to_owned(),
            vec!["19: configuration: neither JSON nor a protobuf Struct: expected value at line 2 column 1".to_owned()],
        ),
        ("BytesValue\n                  value: e30=".to_owned(), vec![format!("17: {missing}")]),
        (
            "BytesValue\n                  value: e3".to_owned(),
            vec!["17: the value of the BytesValue isn't base64: Invalid padding".to_owned()],
        ),
        ("Struct\n                  value:\n                    rules: []".to_owned(), vec![format!("18: {list}")]),
        ("Struct\n                  value: {}".to_owned(), vec![format!("17: {missing}")]),
        (
            "Int64Value\n                  value: 1".to_owned(),
            vec![
                "17: a configuration of the type \"type.googleapis.com/google.protobuf.Int64Value\" can't be read; allowed: a google.protobuf.StringValue, BytesValue or Struct with its value"
                    .to_owned(),
            ],
        ),
    ];
    for (number, (configuration, wanted)) in table.into_iter().enumerate() {
        assert_eq!(told(&format!("envoy-{number}.yaml"), &envoy(&configuration, "{}")), wanted, "{configuration}");
    }
}

#[test]
fn fractions_are_text_in_a_struct_as_envoy_makes_them() {
    let rule = |fields: &str| {
        let rule = format!("{{name: a, key: [ip], limits: [1/s], {fields}}}");
        envoy(&format!("Struct\n                  value: {{rules: [{rule}]}}"), "{}")
    };
    assert_eq!(told("fraction-good.yaml", &rule("local: {share: 0.5}, mode: off")), Vec::<String>::new());
    let integer = "an integer from 0 to 100 is wanted";
    let wanted = format!("17: rules[0].enforce_percent: \"0.5\": {integer}");
    assert_eq!(told("fraction-bad.yaml", &rule("enforce_percent: 0.5")), [wanted]);
    let plugin = "kind: WasmPlugin\nspec: {url: weir.wasm, pluginConfig: {rules: [{name: a, key: [ip], limits: [1/s], enforce_percent: 0.5}]}}";
    assert_eq!(told("fraction-plugin.yaml", plugin), [format!("2: rules[0].enforce_percent: 0.5: {integer}")]);
}

#[test]
fn metadata_of_routes_is_checked_against_the_rules_beside_it() {
    let configuration =
        "StringValue\n                  value: '{\"rules\":[{\"name\":\"all\",\"key\":[\"ip\"],\"limits\":[\"10/s\"]}]}'";
    let routes = "
            virtual_hosts:
            - metadata: {filter_metadata: {weir: {limits: {al: [1/s]}}}}
              routes:
              - metadata:
                  filter_metadata:
                    weir: {cost: 0.5}
              - metadata: {filter_metadata: {weir: {rules: [all]}}}";
    let wanted = [
        "20: metadata of a virtual host: limits.al: [\"1/s\"]: there is no rule \"al\" (did you mean \"all\"?)",
        "24: metadata of a route: cost: \"0.5\": an integer from 0 to 2147483648 is wanted",
    ];
    assert_eq!(told("routes.yaml", &envoy(configuration, routes)), wanted);
}

#[test]
fn of_kubernetes_files_the_plugins_are_checked() {
    let text = "
kind: Service
metadata: {name: weir}
---
kind: List
items:
- kind: WasmPlugin
  spec: {url: oci://registry.example.com/other, pluginConfig: {}}
- kind: WasmPlugin
  metadata: {name: weir}
  spec:
    pluginConfig:
      rules: 1
---
kind: WasmPlugin
metadata: {name: weir}
spec: {}
";
    let empty =
        r#"configuration: empty; the smallest valid one is {"rules":[{"name":"all","key":["ip"],"limits":["10/s"]}]}"#;
    let wanted = [
        r#"13: rules: 1: a list of 1 to 1000 is wanted: rules, such as [{"name":"all","key":["ip"],"limits":["10/s"]}]"#
            .to_owned(),
        format!("17: {empty}"),
    ];
    assert_eq!(told("plugins.yaml", text), wanted);
}

#[test]
fn a_file_without_weir_is_no_good_one() {
    let wanted = ["no configuration of Weir in it: neither a wasm filter of Envoy's, nor a WasmPlugin, nor one alone"];
    assert_eq!(told("service.yaml", "kind: Service\n"), wanted);
    assert_eq!(told("two.yaml", "rules: []\n---\nrules: []\n"), wanted);
    let empty =
        r#"configuration: empty; the smallest valid one is {"rules":[{"name":"all","key":["ip"],"limits":["10/s"]}]}"#;
    assert_eq!(told("nothing.yaml", "# nothing\n"), [empty]);
    assert_eq!(told("nothing.json", ""), [empty]);
    assert_eq!(
        told("broken.yaml", "rules:\n- a: [\n"),
        ["3: no YAML: while parsing a node, did not find expected node content"]
    );
    let broken = "1: configuration: neither JSON nor a protobuf Struct: EOF while parsing a list at line 1 column 10";
    assert_eq!(told("broken.json", "{\"rules\":["), [broken]);
    assert_eq!(told("flow.yaml", "{rules: [{name: a, key: [ip], limits: [1/s]}]}"), Vec::<String>::new());
}

#[test]
fn a_reader_that_goes_away_is_no_fault() {
    let bad = file("bad-for-nobody.json", BAD);
    let script = format!("{} check --format json {bad} | true; exit ${{PIPESTATUS[0]}}", env!("CARGO_BIN_EXE_weir"));
    let output = Command::new("bash").args(["-c", &script]).output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8(output.stderr).unwrap()), (Some(1), String::new()));
}

#[test]
fn the_schema_is_json() {
    let (code, told, _) = weir(&["schema"]);
    let schema: Value = serde_json::from_str(&told).unwrap();
    assert_eq!((code, &schema["$schema"]), (0, &json!("https://json-schema.org/draft/2020-12/schema")));
}
