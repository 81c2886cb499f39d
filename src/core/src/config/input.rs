//! From the bytes that the host hands over to a JSON value.
//!
//! Envoy passes a `StringValue` or `BytesValue` on as its text, and a `google.protobuf.Struct` as that message's bytes.

use super::fault::Fault;
use super::reader::Origin;
use prost::Message;
use prost_types::value::Kind;
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::fmt;

/// What a configuration of nothing is answered with.
const SMALLEST: &str = r#"empty; the smallest valid one is {"rules":[{"name":"all","key":["ip"],"limits":["10/s"]}]}"#;

/// Reads a configuration's bytes as JSON text, or as a `Struct` where they are one; what the value says isn't looked at.
///
/// # Errors
/// They are neither, or there is nothing, or a field is given twice.
pub fn read(bytes: &[u8]) -> Result<(Value, Origin), Fault> {
    if bytes.trim_ascii().is_empty() {
        return Err(Fault::bare("", SMALLEST));
    }
    // JSON first: a Struct's first byte, 0x0a, is also a line break, with which a JSON text may begin.
    match serde_json::from_slice::<Unique>(bytes) {
        Ok(Unique(value)) => Ok((value, Origin::Json)),
        Err(error) => match prost_types::Struct::decode(bytes) {
            Ok(fields) if bytes.first() == Some(&0x0a) => Ok((json(fields), Origin::Struct)),
            _ => Err(Fault::unreadable(error.line(), format!("neither JSON nor a protobuf Struct: {error}"))),
        },
    }
}

/// A protobuf `Struct` as JSON.
pub(crate) fn json(message: prost_types::Struct) -> Value {
    Value::Object(message.fields.into_iter().map(|(name, value)| (name, json_value(value))).collect())
}

fn json_value(value: prost_types::Value) -> Value {
    match value.kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::NumberValue(number)) => Number::from_f64(number).map_or(Value::Null, Value::Number),
        Some(Kind::StringValue(text)) => Value::String(text),
        Some(Kind::BoolValue(flag)) => Value::Bool(flag),
        Some(Kind::StructValue(fields)) => json(fields),
        Some(Kind::ListValue(list)) => Value::Array(list.values.into_iter().map(json_value).collect()),
    }
}

/// A JSON value in which no object names a field twice: JSON keeps the last one, and what was lost is nowhere to be seen.
struct Unique(Value);

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Unique, D::Error> {
        deserializer.deserialize_any(UniqueVisitor).map(Unique)
    }
}

struct UniqueVisitor;

impl<'de> Visitor<'de> for UniqueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }
    fn visit_bool<E>(self, flag: bool) -> Result<Value, E> {
        Ok(Value::Bool(flag))
    }
    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(number.into())
    }
    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(number.into())
    }
    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(number.into())
    }
    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Unique(value)) = items.next_element()? {
            list.push(value);
        }
        Ok(Value::Array(list))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some((name, Unique(value))) = fields.next_entry::<String, Unique>()? {
            if map.contains_key(&name) {
                return Err(A::Error::custom(format_args!("the field {name:?} is given twice")));
            }
            map.insert(name, value);
        }
        Ok(Value::Object(map))
    }
}
