//! Envoy's metadata: of a request (`metadata:` sources), of its route and of its virtual host ([`super::route`]).
//!
//! The host gives a single value without its type: eight bytes may be a text or a number. So where it matters the whole message
//! is read, which has the types.

use crate::request::{Request, Unreadable};
use prost::Message;
use prost_types::value::Kind;
use prost_types::{Struct, Value};
use std::collections::BTreeMap;

/// `envoy.config.core.v3.Metadata`, as far as it is read.
#[derive(Clone, PartialEq, Message)]
struct Metadata {
    #[prost(btree_map = "string, message", tag = "1")]
    filter_metadata: BTreeMap<String, Struct>,
}

/// The struct that a message has under a namespace.
pub(super) fn namespace(message: &[u8], name: &str) -> Option<Struct> {
    Metadata::decode(message).ok()?.filter_metadata.remove(name)
}

/// The message of a request's dynamic metadata with these texts, each by its filter's name and the path of the value.
pub fn message(values: &[(Vec<String>, String)]) -> Vec<u8> {
    let mut metadata = Metadata::default();
    for (path, text) in values {
        if let Some((filter, keys)) = path.split_first() {
            put(metadata.filter_metadata.entry(filter.clone()).or_default(), keys, text);
        }
    }
    metadata.encode_to_vec()
}

fn put(fields: &mut Struct, keys: &[String], text: &str) {
    let Some((first, rest)) = keys.split_first() else { return };
    let value = fields.fields.entry(first.clone()).or_default();
    match &mut value.kind {
        kind if rest.is_empty() => *kind = Some(Kind::StringValue(text.to_owned())),
        Some(Kind::StructValue(inner)) => put(inner, rest, text),
        kind => {
            let mut inner = Struct::default();
            put(&mut inner, rest, text);
            *kind = Some(Kind::StructValue(inner));
        }
    }
}

/// A value of a request's dynamic metadata as text: a string as it is, numbers and booleans as their JSON text.
pub(super) fn text(request: &impl Request, path: &[String]) -> Option<Vec<u8>> {
    let (filter, keys) = path.split_first()?;
    let value = match request.property(&format!("metadata\0filter_metadata\0{}", path.join("\0"))) {
        Ok(None) => return None,
        Ok(Some(value)) => value,
        Err(Unreadable) => Vec::new(),
    };
    // A number has eight bytes, a boolean one; a list or an object has zeros in it.
    if !matches!(value.len(), 0 | 1 | 8) && value.iter().all(|b| !b.is_ascii_control()) {
        return Some(value);
    }
    let message = request.property("metadata").ok()??;
    let fields = namespace(&message, filter)?;
    match at(fields, keys)?.kind? {
        Kind::StringValue(text) => Some(text.into_bytes()),
        Kind::NumberValue(number) => Some(plain(number).into_bytes()),
        Kind::BoolValue(flag) => Some(flag.to_string().into_bytes()),
        Kind::NullValue(_) | Kind::StructValue(_) | Kind::ListValue(_) => None,
    }
}

fn at(mut fields: Struct, keys: &[String]) -> Option<Value> {
    let (first, rest) = keys.split_first()?;
    let value = fields.fields.remove(first)?;
    match (rest, value.kind) {
        ([], kind) => Some(Value { kind }),
        (rest, Some(Kind::StructValue(inner))) => at(inner, rest),
        _ => None,
    }
}

/// A number without exponent or needless fraction: `5`, `0.5`.
fn plain(number: f64) -> String {
    format!("{number}")
}
