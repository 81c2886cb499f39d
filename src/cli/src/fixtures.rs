//! The configurations in `tests/fixtures/config`: the good ones with what they compile to, the bad ones with every line that is said
//! about them; and whether the schema takes the same ones.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use crate::document::Document;
use crate::plugins::Contents;
use crate::schema::SCHEMA;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use weir_core::config::{Config, Origin};

/// Bad ones that a schema can't tell: it knows no arithmetic in texts, and nothing of what stands elsewhere.
const BEYOND_THE_SCHEMA: [&str; 21] = [
    "cache_denials--2h",
    "lease--of-a-log",
    "lease-every--6s",
    "lease-every--9ms",
    "limits--10-0ms",
    "limits--10-32d",
    "limits--9007199254740992-s",
    "limits--delay-of-a-bucket",
    "limits--burst-of-a-log",
    "limits--10-s-burst-5-fixed_window",
    "limits--window-twice",
    "live_overrides-every--500ms",
    "limits-max_delay--2h",
    "match-headers-regex--unclosed",
    "match-ip--10.0.0.1-8",
    "match-path-regex--unclosed",
    "names-twice",
    "response-retry_after_jitter--2h",
    "store-breaker-open--2h",
    "store-timeout--0ms",
    "store-timeout--11s",
];

fn files(kind: &str) -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/config").join(kind);
    let mut files: Vec<PathBuf> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension != "txt"));
    files.sort();
    files
}

fn name(file: &Path) -> String {
    file.file_name().unwrap().to_str().unwrap().to_owned()
}

fn value(file: &Path) -> Value {
    let text = fs::read_to_string(file).unwrap();
    if name(file).ends_with(".json") {
        serde_json::from_str(&text).unwrap()
    } else {
        Document::all(&text).unwrap().remove(0).value
    }
}

#[test]
fn every_bad_one_is_told_in_the_lines_that_it_begins_with() {
    let files = files("bad");
    assert!(files.len() > 150, "{}", files.len());
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let contents = Contents::read(&name(&file), &text);
        let told: String = contents.faults.iter().map(|told| format!("# {}: {told}\n", told.line.unwrap())).collect();
        let wanted: String =
            text.lines().take_while(|line| line.starts_with("# ")).map(|line| format!("{line}\n")).collect();
        assert_eq!(told, wanted, "{}", file.display());
        assert!(!told.is_empty() && contents.plugins.is_empty(), "{}", file.display());
    }
}

/// `WEIR_BLESS=1` writes down what they compile to now.
#[test]
fn every_good_one_compiles_to_what_is_written_beside_it() {
    for file in files("ok") {
        let contents = Contents::read(&name(&file), &fs::read_to_string(&file).unwrap());
        assert!(contents.faults.is_empty(), "{}: {:?}", file.display(), contents.faults);
        let compiled = format!("{:#?}\n", contents.plugins[0].config);
        let beside = file.with_extension("txt");
        if std::env::var_os("WEIR_BLESS").is_some() {
            fs::write(&beside, &compiled).unwrap();
        }
        assert_eq!(compiled, fs::read_to_string(&beside).unwrap(), "{}", file.display());
    }
}

pub(super) fn validator() -> jsonschema::Validator {
    jsonschema::draft202012::new(&serde_json::from_str(SCHEMA).unwrap()).unwrap()
}

#[test]
fn the_schema_is_one() {
    jsonschema::draft202012::meta::validate(&serde_json::from_str(SCHEMA).unwrap()).unwrap();
}

#[test]
fn schema_and_filter_take_the_same_configurations() {
    let validator = validator();
    for file in files("ok") {
        let errors: Vec<String> = validator.iter_errors(&value(&file)).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{}: {errors:?}", file.display());
    }
    let taken: Vec<String> =
        files("bad").iter().filter(|file| validator.is_valid(&value(file))).map(|file| name(file)).collect();
    let mut beyond: Vec<String> = BEYOND_THE_SCHEMA.iter().map(|name| format!("{name}.yaml")).collect();
    beyond.sort();
    assert_eq!(taken, beyond);
}

/// The lists of fields of all objects in a schema that have no other ones.
pub(super) fn fields_of_schema(schema: &Value, found: &mut BTreeSet<BTreeSet<String>>) {
    if schema["additionalProperties"] == false {
        found.insert(schema["properties"].as_object().unwrap().keys().cloned().collect());
    }
    match schema {
        Value::Object(fields) => fields.values().for_each(|field| fields_of_schema(field, found)),
        Value::Array(items) => items.iter().for_each(|item| fields_of_schema(item, found)),
        _ => {}
    }
}

/// Puts an unknown field into each object of a value, one at a time, and hands each result over.
fn with_an_unknown_field(whole: &Value, pointer: &str, each: &mut impl FnMut(Value)) {
    match whole.pointer(pointer).unwrap() {
        Value::Object(fields) => {
            let mut changed = whole.clone();
            changed.pointer_mut(pointer).unwrap()["zzz"] = json!("unknown");
            each(changed);
            for name in fields.keys() {
                with_an_unknown_field(whole, &format!("{pointer}/{}", name.replace('/', "~1")), each);
            }
        }
        Value::Array(items) => (0..items.len()).for_each(|i| with_an_unknown_field(whole, &format!("{pointer}/{i}"), each)),
        _ => {}
    }
}

#[test]
fn schema_and_filter_know_the_same_fields() {
    let mut in_schema = BTreeSet::new();
    fields_of_schema(&serde_json::from_str(SCHEMA).unwrap(), &mut in_schema);
    let mut in_filter = BTreeSet::new();
    let everything = value(&files("ok").into_iter().find(|file| name(file) == "everything.yaml").unwrap());
    with_an_unknown_field(&everything, "", &mut |changed| {
        let faults = Config::from_value(&changed, Origin::Json).unwrap_err();
        let allowed = faults.iter().find_map(|fault| fault.message().strip_prefix("unknown field; allowed: "));
        // Where any field may stand, this one has no limits.
        in_filter.extend(allowed.map(|allowed| allowed.split(", ").map(str::to_owned).collect::<BTreeSet<_>>()));
    });
    assert_eq!(in_schema, in_filter);
}
