//! Finds Weir's configurations in a file: alone, in Envoy's configuration, in an Istio WasmPlugin; and what routes say beside them.

use crate::document::{Document, Unreadable, join};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use weir_core::config::{self, Config, Fault, Origin};
use weir_core::rules::{Level, Route, Rules};

/// How the type of Envoy's wasm filter ends.
const WASM: &str = "envoy.extensions.filters.http.wasm.v3.Wasm";
/// The role of weir.wasm that has no configuration.
const BRIDGE: &str = "weir.bridge";

/// What is in a file.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    /// The good configurations.
    pub(crate) plugins: Vec<Plugin>,
    /// The faults of all others, and of routes.
    pub(crate) faults: Vec<Told>,
    /// Filters that need no configuration.
    pub(crate) bridges: usize,
}

/// A good configuration.
#[derive(Debug)]
pub(crate) struct Plugin {
    /// The line that it begins in.
    pub(crate) line: Option<usize>,
    /// As it is written.
    pub(crate) value: Value,
    pub(crate) config: Config,
}

/// A fault and where it is told.
#[derive(Debug)]
pub(crate) struct Told {
    /// From 1; `None` where the file has no such line.
    pub(crate) line: Option<usize>,
    pub(crate) what: What,
}

/// What is wrong.
#[derive(Debug)]
pub(crate) enum What {
    /// The file, or what is around a configuration.
    File(String),
    /// A configuration.
    Config(Fault),
    /// The metadata of a route or virtual host.
    Metadata(Level, Fault),
}

impl Contents {
    /// Reads a file's text; `name` tells whether it can only be JSON.
    pub(crate) fn read(name: &str, text: &str) -> Contents {
        let mut contents = Contents::default();
        match documents(name, text) {
            Ok(documents) => {
                for document in &documents {
                    contents.search(document, &document.value, String::new());
                }
                if contents.is_empty() {
                    contents.alone(&documents);
                }
            }
            Err(told) => contents.faults.push(told),
        }
        contents
    }

    fn is_empty(&self) -> bool {
        self.plugins.is_empty() && self.faults.is_empty() && self.bridges == 0
    }

    /// Looks for Weir in a value of Envoy's or Kubernetes', and in what is inside of it.
    fn search(&mut self, document: &Document, value: &Value, path: String) {
        if is_wasm_filter(value) {
            return self.filter(document, &value["config"], &join(&path, "config"));
        }
        if value["kind"] == "WasmPlugin" {
            if value.pointer("/metadata/name").is_some_and(mentions_weir) || is_weir(&value["spec"], "pluginConfig") {
                let place = Place { document, path: join(&path, "spec.pluginConfig") };
                self.add(&place, value["spec"].get("pluginConfig"), Origin::Json);
            }
            return;
        }
        let before = self.plugins.len();
        for (name, inside) in inside(value) {
            self.search(document, inside, join(&path, &name));
        }
        // A connection manager: its filters, and the routes that they serve.
        if value.get("http_filters").is_some()
            && let Some(rules) = self.plugins.get(before).map(|plugin| Rules::new(&plugin.config))
        {
            self.routes(document, &value["route_config"], join(&path, "route_config"), Level::VirtualHost, &rules);
        }
    }

    /// Envoy's wasm filter.
    fn filter(&mut self, document: &Document, config: &Value, path: &str) {
        if config["root_id"] == BRIDGE {
            self.bridges = self.bridges.saturating_add(1);
            return;
        }
        if !is_weir(config, "configuration") {
            return;
        }
        let place = Place { document, path: join(path, "configuration") };
        let Some(given) = config.get("configuration") else { return self.add(&place, None, Origin::Json) };
        let value = &given["value"];
        let kind = given["@type"].as_str().unwrap_or_default();
        let place = Place { document, path: join(&place.path, "value") };
        match (kind.rsplit('/').next().unwrap_or_default(), value.as_str()) {
            ("google.protobuf.StringValue", Some(text)) => self.add_text(&place, text.as_bytes()),
            ("google.protobuf.BytesValue", Some(text)) => match STANDARD.decode(text) {
                Ok(bytes) => self.add_text(&place, &bytes),
                Err(error) => self.wrong(&place, format!("the value of the BytesValue isn't base64: {error}")),
            },
            ("google.protobuf.Struct", None) => self.add(&place, Some(&document.as_envoy_has_it(value)), Origin::Struct),
            _ => {
                let wanted = "allowed: a google.protobuf.StringValue, BytesValue or Struct with its value";
                self.wrong(&place, format!("a configuration of the type \"{kind}\" can't be read; {wanted}"));
            }
        }
    }

    /// Settings of routes and virtual hosts.
    fn routes(&mut self, document: &Document, value: &Value, path: String, level: Level, rules: &Rules) {
        if let Some(settings) = value.pointer("/metadata/filter_metadata/weir") {
            let place = Place { document, path: join(&path, "metadata.filter_metadata.weir") };
            let read = Route::parse(&document.as_envoy_has_it(settings), level, rules);
            for fault in read.err().unwrap_or_default() {
                self.faults.push(Told { line: place.line(&fault), what: What::Metadata(level, fault) });
            }
        }
        for (name, inside) in inside(value) {
            let level = if name == "routes" { Level::Route } else { level };
            self.routes(document, inside, join(&path, &name), level, rules);
        }
    }

    /// A file that is nothing but a configuration.
    fn alone(&mut self, documents: &[Document]) {
        let foreign = ["static_resources", "dynamic_resources", "resources", "apiVersion", "kind", "@type"];
        match documents {
            [] => self.faults.extend(Config::parse(b"").err().into_iter().flatten().map(|fault| Told::new(None, fault))),
            [document] if !foreign.iter().any(|field| document.value.get(field).is_some()) => {
                self.add(&Place { document, path: String::new() }, Some(&document.value), Origin::Json);
            }
            _ => {
                let message =
                    "no configuration of Weir in it: neither a wasm filter of Envoy's, nor a WasmPlugin, nor one alone";
                self.faults.push(Told { line: None, what: What::File(message.to_owned()) });
            }
        }
    }

    fn add(&mut self, place: &Place<'_>, value: Option<&Value>, origin: Origin) {
        match value.map_or_else(|| Config::parse(b""), |value| Config::from_value(value, origin)) {
            Ok(config) => self.add_good(place, value.cloned().unwrap_or_default(), config),
            Err(faults) => faults.into_iter().for_each(|fault| self.tell(place, fault)),
        }
    }

    fn add_text(&mut self, place: &Place<'_>, text: &[u8]) {
        let read = config::read(text).map_err(|fault| vec![fault]);
        let faults = match read.and_then(|(value, origin)| Ok((Config::from_value(&value, origin)?, value))) {
            Ok((config, value)) => return self.add_good(place, value, config),
            Err(faults) => faults,
        };
        // The lines of the text are the file's, where it is JSON that can be read.
        let lines = std::str::from_utf8(text).ok().map(|text| Document::json(Value::Null, text));
        for fault in faults {
            let inner = fault.line().or_else(|| lines.as_ref()?.line(fault.path()));
            let line = place.document.line_in_text(&place.path, inner.unwrap_or(1));
            self.faults.push(Told::new(line, fault));
        }
    }

    fn add_good(&mut self, place: &Place<'_>, value: Value, config: Config) {
        self.plugins.push(Plugin { line: place.document.line(&place.path), value, config });
    }

    fn tell(&mut self, place: &Place<'_>, fault: Fault) {
        self.faults.push(Told::new(place.line(&fault), fault));
    }

    /// Tells what is wrong around a configuration.
    fn wrong(&mut self, place: &Place<'_>, message: String) {
        self.faults.push(Told { line: place.document.line(&place.path), what: What::File(message) });
    }
}

impl Told {
    fn new(line: Option<usize>, fault: Fault) -> Told {
        Told { line, what: What::Config(fault) }
    }
}

/// Where a configuration is.
struct Place<'d> {
    document: &'d Document,
    path: String,
}

impl Place<'_> {
    fn line(&self, fault: &Fault) -> Option<usize> {
        self.document.line(&join(&self.path, fault.path()))
    }
}

fn documents(name: &str, text: &str) -> Result<Vec<Document>, Told> {
    let only_json = name.ends_with(".json");
    if only_json || text.trim_start().starts_with('{') {
        match config::read(text.as_bytes()) {
            Ok((value, _)) => return Ok(vec![Document::json(value, text)]),
            Err(fault) if only_json => return Err(Told::new(fault.line(), fault)),
            Err(_) => {} // YAML may begin so too
        }
    }
    Document::all(text)
        .map_err(|Unreadable { line, message }| Told { line: Some(line), what: What::File(format!("no YAML: {message}")) })
}

/// The values inside of one, by the pieces of their paths.
fn inside(value: &Value) -> Vec<(String, &Value)> {
    match value {
        Value::Array(items) => items.iter().enumerate().map(|(place, item)| (format!("[{place}]"), item)).collect(),
        Value::Object(fields) => fields.iter().map(|(name, field)| (name.clone(), field)).collect(),
        _ => Vec::new(),
    }
}

fn is_wasm_filter(value: &Value) -> bool {
    value["@type"].as_str().is_some_and(|kind| kind.ends_with(WASM)) && value.get("config").is_some()
}

/// Whether a wasm filter is Weir's, which its names or that of its code say; its own configuration isn't asked.
fn is_weir(config: &Value, own: &str) -> bool {
    let Value::Object(fields) = config else { return false };
    fields.iter().any(|(name, value)| name != own && mentions_weir(value))
}

fn mentions_weir(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains("weir"),
        value => inside(value).into_iter().any(|(_, value)| mentions_weir(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SAMPLE: &str = include_str!("../../../envoy/istio/wasmplugin.yaml");

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[ -~\n\t\u{0}é☃&*!|>{}\\[\\]:,#?-]{0,80}", json in any::<bool>()) {
            let name = if json { "a.json" } else { "a.yaml" };
            let contents = Contents::read(name, &text);
            prop_assert!(!contents.plugins.is_empty() || !contents.faults.is_empty() || contents.bridges > 0);
        }

        #[test]
        fn a_file_with_a_piece_changed_is_read_or_refused(
            at in any::<proptest::sample::Index>(), piece in "[ -~\n\t&*|>{}:-]{0,4}", cut in 0..5_usize,
        ) {
            let start = at.index(SAMPLE.len());
            let end = (start + cut).min(SAMPLE.len());
            let text = format!("{}{piece}{}", SAMPLE.get(..start).unwrap_or_default(), SAMPLE.get(end..).unwrap_or_default());
            Contents::read("a.yaml", &text);
        }
    }
}
