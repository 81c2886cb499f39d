//! The documents: their configurations are read, and CONFIGURATION.md has every field.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use crate::document::Document;
use crate::fixtures::{fields_of_schema, validator};
use crate::plugins::Contents;
use crate::schema::SCHEMA;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use weir_core::config::{Config, Origin};
use weir_core::rules::{Level, Route, Rules};

/// A table's rows as their cells, by the heading that they stand under.
fn tables(document: &str) -> Vec<(String, Vec<String>)> {
    let mut heading = String::new();
    let mut rows = Vec::new();
    for line in document.lines() {
        if let Some(text) = line.strip_prefix('#') {
            heading = text.trim_start_matches('#').trim().to_owned();
        }
        if line.starts_with("| `") {
            let cells = line.replace("\\|", "\u{0}");
            let cells = cells.trim_matches('|').split(" | ").map(|cell| cell.trim().trim_matches('`').replace('\u{0}', "|"));
            rows.push((heading.clone(), cells.collect()));
        }
    }
    rows
}

fn one_yaml(text: &str) -> Value {
    Document::all(text).unwrap_or_else(|error| panic!("{text}: {error:?}")).remove(0).value
}

/// Where the fields of a section of the reference belong, and what there has to be beside them.
const SECTIONS: [(&str, &str, &str); 16] = [
    ("The whole", "", "{rules: [{name: r, key: [ip], limits: [1/s]}]}"),
    ("store", "/store", "{cluster: c}"),
    ("breaker", "/store/breaker", "{}"),
    ("client_ip", "/client_ip", "{}"),
    ("match", "/rules/0/match", "{}"),
    ("path", "/rules/0/match/path", "{}"),
    ("headers", "/rules/0/match/headers/0", "{}"),
    ("block", "/block/0", "{methods: [PUT]}"),
    ("response", "/response", "{}"),
    ("rules", "/rules/0", "{name: r, key: [ip], limits: [1/s]}"),
    ("limits", "/rules/0/limits/0", "{count: 1, window: s}"),
    ("cost", "/rules/0/cost", "{}"),
    ("tiers", "/rules/0/tiers", "{by: ip, values: {a: [1/s]}}"),
    ("live_overrides", "/rules/0/live_overrides", "{}"),
    ("lease", "/rules/0/lease", "{}"),
    ("local", "/rules/0/local", "{}"),
];

/// A good configuration with these fields at a place.
fn configuration_with(place: &str, beside: &str, fields: &Value) -> Value {
    let mut whole = one_yaml(
        "{store: {cluster: c, breaker: {}}, client_ip: {}, response: {}, block: [{methods: [PUT]}],
          rules: [{name: r, key: [ip], limits: [1/s], match: {path: {exact: /}, headers: [{name: a}]}, live_overrides: {}, local: {}}]}",
    );
    let mut at = one_yaml(beside);
    for (name, value) in fields.as_object().unwrap() {
        at[name] = value.clone();
    }
    if place.is_empty() {
        return at;
    }
    let (outer, name) = place.rsplit_once('/').unwrap();
    match whole.pointer_mut(outer).unwrap() {
        Value::Array(items) => items[0] = at,
        outer => outer[name] = at,
    }
    whole
}

fn document(name: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)).unwrap()
}

fn reference() -> Vec<(String, Vec<String>)> {
    tables(&document("CONFIGURATION.md"))
}

/// The blocks of a document in that language.
fn blocks<'d>(document: &'d str, language: &str) -> Vec<&'d str> {
    let after = document.split("```").skip(1).step_by(2);
    after.filter_map(|block| block.strip_prefix(language)?.strip_prefix('\n')).collect()
}

#[test]
fn every_configuration_in_the_documents_is_a_good_one() {
    let validator = validator();
    for (name, at_least) in [("README.md", 1), ("envoy/README.md", 2), ("CONFIGURATION.md", 1)] {
        let text = document(name);
        let blocks = blocks(&text, "yaml");
        assert!(blocks.len() >= at_least, "{name} has {} samples", blocks.len());
        for block in blocks {
            let value = one_yaml(block);
            assert_eq!(Config::from_value(&value, Origin::Json).err(), None, "{name}:\n{block}");
            assert!(validator.is_valid(&value), "{name}:\n{block}");
        }
    }
}

#[test]
fn the_schema_takes_the_samples() {
    let validator = validator();
    for name in ["quickstart.yaml", "redis.yaml", "redis-listener.yaml", "istio/wasmplugin.yaml"] {
        let contents = Contents::read(name, &document(&format!("envoy/{name}")));
        assert_eq!(contents.plugins.len(), 1, "{name}: {:?}", contents.faults);
        assert!(validator.is_valid(&contents.plugins[0].value), "{name}");
    }
}

#[test]
fn the_readme_shows_a_fault_as_it_is_told() {
    let faults = Config::parse(br#"{"rules":[{"name":"a","key":["ip"],"limits":["100/month"]}]}"#).unwrap_err();
    assert!(document("README.md").contains(&format!("```\n{}\n```", faults[0])), "{}", faults[0]);
}

#[test]
fn every_example_of_the_reference_is_a_good_one() {
    let validator = validator();
    let mut count = 0;
    for (heading, cells) in reference() {
        let Some((_, place, beside)) = SECTIONS.into_iter().find(|(section, ..)| *section == heading) else { continue };
        let fields = one_yaml(&cells[3]);
        assert!(fields.get(&cells[0]).is_some(), "{heading}: {cells:?}");
        let whole = configuration_with(place, beside, &fields);
        assert_eq!(Config::from_value(&whole, Origin::Json).err(), None, "{heading}: {cells:?}\n{whole:#}");
        assert!(validator.is_valid(&whole), "{heading}: {cells:?}\n{whole:#}");
        count += 1;
    }
    assert!(count > 60, "{count}");
}

#[test]
fn every_source_and_every_setting_of_a_route_in_the_reference_is_a_good_one() {
    let parsed =
        |value: &Value| Config::from_value(value, Origin::Json).unwrap_or_else(|faults| panic!("{value}: {faults:?}"));
    let rule = |key: &str| json!({"rules": [{"name": "all", "key": [key], "limits": ["1/s"]}]});
    let (mut sources, mut settings) = (0, 0);
    let rules = Rules::new(&parsed(&rule("ip")));
    for (heading, cells) in reference() {
        match heading.as_str() {
            "sources" => {
                parsed(&rule(&cells[2]));
                sources += 1;
            }
            "routes" => {
                let fields = one_yaml(&cells[3]);
                assert!(fields.get(&cells[0]).is_some(), "{cells:?}");
                Route::parse(&fields, Level::Route, &rules).unwrap_or_else(|faults| panic!("{cells:?}: {faults:?}"));
                settings += 1;
            }
            _ => {}
        }
    }
    assert_eq!((sources, settings), (17, 4));
}

/// The fields that objects in a schema have.
fn field_names(schema: &Value, found: &mut BTreeSet<String>) {
    let mut lists = BTreeSet::new();
    fields_of_schema(schema, &mut lists);
    found.extend(lists.into_iter().flatten());
}

#[test]
fn the_reference_has_every_field() {
    let mut wanted = BTreeSet::new();
    field_names(&serde_json::from_str(SCHEMA).unwrap(), &mut wanted);
    let named: BTreeSet<String> = reference().into_iter().map(|(_, cells)| cells[0].clone()).collect();
    let missing: Vec<&String> = wanted.difference(&named).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
