//! Reads a JSON value field by field and notes every fault on the way, so that all of them are told in one pass.

use super::fault::{Fault, did_you_mean};
use super::text;
use serde_json::{Map, Value};
use std::ops::RangeInclusive;

/// What the configuration came as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// JSON text.
    Json,
    /// A protobuf `Struct`. Envoy turns the fractions of a YAML file into strings there (`0.5` arrives as `"0.5"`).
    Struct,
}

/// Collects the faults.
pub(crate) struct Reader {
    origin: Origin,
    faults: Vec<Fault>,
    expressions: Vec<(String, String)>,
    /// Whether the configuration has a store.
    pub(crate) has_store: bool,
}

/// An object and where it is.
pub(crate) struct Object<'v> {
    path: String,
    map: &'v Map<String, Value>,
}

/// A value that is there, and where.
#[derive(Clone)]
pub(crate) struct Item<'v> {
    pub(crate) path: String,
    pub(crate) value: &'v Value,
}

impl<'v> Object<'v> {
    /// The field's path.
    pub(crate) fn path(&self, field: &str) -> String {
        if self.path.is_empty() { field.to_owned() } else { format!("{}.{field}", self.path) }
    }

    /// The field, where it is given.
    pub(crate) fn get(&self, field: &str) -> Option<Item<'v>> {
        self.map.get(field).map(|value| Item { path: self.path(field), value })
    }
}

impl<'v> Item<'v> {
    /// A field of an object, where it is given.
    pub(crate) fn field(&self, name: &str) -> Option<Item<'v>> {
        self.value.get(name).map(|value| Item { path: format!("{}.{name}", self.path), value })
    }
}

impl Reader {
    pub(crate) fn new(origin: Origin) -> Reader {
        Reader { origin, faults: Vec::new(), expressions: Vec::new(), has_store: false }
    }

    pub(crate) fn into_faults(self) -> Vec<Fault> {
        self.faults
    }

    /// Notes a CEL expression.
    pub(crate) fn expression(&mut self, item: &Item<'_>, text: &str) {
        self.expressions.push((item.path.clone(), text.to_owned()));
    }

    pub(crate) fn take_expressions(&mut self) -> Vec<(String, String)> {
        std::mem::take(&mut self.expressions)
    }

    /// Notes a fault of a value.
    pub(crate) fn fault<T>(&mut self, item: &Item<'_>, message: impl Into<String>) -> Option<T> {
        self.faults.push(Fault::new(&item.path, item.value, message));
        None
    }

    /// Notes that a field isn't there.
    pub(crate) fn missing<T>(&mut self, object: &Object<'_>, field: &str, wanted: &str) -> Option<T> {
        self.faults.push(Fault::bare(&object.path(field), format!("missing; {wanted}")));
        None
    }

    /// The value as an object that has no other fields than `fields`.
    pub(crate) fn object<'v>(&mut self, item: &Item<'v>, fields: &[&str]) -> Option<Object<'v>> {
        let Value::Object(map) = item.value else {
            return self.fault(item, format!("an object is wanted, with {}", fields.join(", ")));
        };
        let object = Object { path: item.path.clone(), map };
        for (name, value) in map {
            if !fields.contains(&name.as_str()) {
                let hint = did_you_mean(name, fields);
                let message = format!("unknown field{hint}; allowed: {}", fields.join(", "));
                self.faults.push(Fault::new(&object.path(name), value, message));
            }
        }
        Some(object)
    }

    /// The value as text.
    pub(crate) fn text<'v>(&mut self, item: &Item<'v>, wanted: &str) -> Option<&'v str> {
        match item.value {
            Value::String(text) => Some(text),
            _ => self.fault(item, format!("text is wanted: {wanted}")),
        }
    }

    /// The value as text of one to `most` bytes, all of them `allowed`.
    pub(crate) fn word<'v>(
        &mut self,
        item: &Item<'v>,
        most: usize,
        allowed: impl Fn(u8) -> bool,
        wanted: &str,
    ) -> Option<&'v str> {
        let text = self.text(item, wanted)?;
        if (1..=most).contains(&text.len()) && text.bytes().all(allowed) { Some(text) } else { self.fault(item, wanted) }
    }

    /// The value as a list of one to `most` items.
    pub(crate) fn list<'v>(&mut self, item: &Item<'v>, most: usize, wanted: &str) -> Option<Vec<Item<'v>>> {
        match item.value {
            Value::Array(values) if (1..=most).contains(&values.len()) => Some(items(&item.path, values)),
            _ if most == 1 => self.fault(item, format!("a list of one is wanted: {wanted}")),
            _ => self.fault(item, format!("a list of 1 to {most} is wanted: {wanted}")),
        }
    }

    /// The value as an object of one to `most` fields of any names.
    pub(crate) fn map<'v>(&mut self, item: &Item<'v>, most: usize, wanted: &str) -> Option<Vec<(&'v String, Item<'v>)>> {
        match item.value {
            Value::Object(map) if (1..=most).contains(&map.len()) => {
                let field = |(name, value)| (name, Item { path: format!("{}.{name}", item.path), value });
                Some(map.iter().map(field).collect())
            }
            _ => self.fault(item, format!("an object with 1 to {most} fields is wanted: {wanted}")),
        }
    }

    /// The value as a boolean.
    pub(crate) fn flag(&mut self, item: &Item<'_>) -> Option<bool> {
        match item.value.as_bool() {
            Some(flag) => Some(flag),
            None => self.fault(item, "true or false is wanted"),
        }
    }

    /// The value as a duration.
    pub(crate) fn duration(&mut self, item: &Item<'_>, least_ms: u64, most_ms: u64) -> Option<u64> {
        let given = item.value.as_str().and_then(text::duration_ms);
        match given.filter(|ms| (least_ms..=most_ms).contains(ms)) {
            Some(ms) => Some(ms),
            None => {
                let range = format!("{} to {}", text::spelled(least_ms), text::spelled(most_ms));
                self.fault(item, format!("a duration from {range} is wanted, such as 50ms or 1s"))
            }
        }
    }

    /// The value as an integer. `500000.0` and `5e5` are integers: a `Struct` has no others.
    pub(crate) fn integer(&mut self, item: &Item<'_>, range: RangeInclusive<u64>) -> Option<u64> {
        self.integer_or(item, range, "")
    }

    /// The same where something else may stand too.
    pub(crate) fn integer_or(&mut self, item: &Item<'_>, range: RangeInclusive<u64>, other: &str) -> Option<u64> {
        let integer = match item.value {
            Value::Number(number) => number.as_u64().or_else(|| number.as_f64().and_then(whole)),
            _ => None,
        };
        match integer.filter(|n| range.contains(n)) {
            Some(integer) => Some(integer),
            None => {
                let other = if other.is_empty() { String::new() } else { format!(", or {other}") };
                self.fault(item, format!("an integer from {} to {} is wanted{other}", range.start(), range.end()))
            }
        }
    }

    /// The value as a fraction above 0, at most 1.
    pub(crate) fn share(&mut self, item: &Item<'_>) -> Option<f64> {
        let number = match item.value {
            Value::Number(number) => number.as_f64(),
            Value::String(text) if self.origin == Origin::Struct => text.parse().ok(),
            _ => None,
        };
        match number.filter(|n| *n > 0.0 && *n <= 1.0) {
            Some(share) => Some(share),
            None => self.fault(item, "a number above 0 and at most 1 is wanted"),
        }
    }

    /// The value as one of some words.
    pub(crate) fn choice<T: Copy>(&mut self, item: &Item<'_>, choices: &[(&str, T)]) -> Option<T> {
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        let given = item.value.as_str();
        match choices.iter().find(|(name, _)| given == Some(name)) {
            Some((_, choice)) => Some(*choice),
            None => {
                let hint = given.map(|given| did_you_mean(given, &names)).unwrap_or_default();
                self.fault(item, format!("not known here{hint}; allowed: {}", names.join(", ")))
            }
        }
    }
}

fn items<'v>(path: &str, values: &'v [Value]) -> Vec<Item<'v>> {
    values.iter().enumerate().map(|(i, value)| Item { path: format!("{path}[{i}]"), value }).collect()
}

/// A double as the integer it is, where it is one that doubles hold exactly.
fn whole(number: f64) -> Option<u64> {
    const EXACT: f64 = (1_u64 << 53) as f64;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "whole and in range")]
    (number.fract() == 0.0 && (0.0..EXACT).contains(&number)).then_some(number as u64)
}
