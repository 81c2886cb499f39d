//! The configurations that the documents show, read as the filter reads them.

#![cfg(not(target_family = "wasm"))]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::string_slice, reason = "tests")]

use std::path::Path;
use weir_core::config::Config;

/// The blocks of a document in that language.
fn blocks<'d>(document: &'d str, language: &str) -> Vec<&'d str> {
    let fence = format!("```{language}\n");
    document.split(&fence).skip(1).map(|rest| &rest[..rest.find("\n```").unwrap()]).collect()
}

fn document(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)).unwrap()
}

#[test]
fn every_configuration_in_the_documents_is_a_good_one() {
    for (name, at_least) in [("README.md", 1), ("envoy/README.md", 2)] {
        let text = document(name);
        let blocks = blocks(&text, "yaml");
        assert!(blocks.len() >= at_least, "{name} has {} samples", blocks.len());
        for block in blocks {
            let value: serde_json::Value = serde_saphyr::from_str(block).unwrap_or_else(|e| panic!("{name}: {e}\n{block}"));
            let read = Config::parse(value.to_string().as_bytes());
            assert!(read.is_ok(), "{name}: {read:?}\n{block}");
        }
    }
}

#[test]
fn the_readme_shows_a_fault_as_it_is_told() {
    let text = document("README.md");
    let faults = Config::parse(br#"{"rules":[{"name":"a","key":["ip"],"limits":["100/month"]}]}"#).unwrap_err();
    assert!(text.contains(&format!("```\n{}\n```", faults[0])), "{}", faults[0]);
}
