//! `weir schema`: the configuration's JSON Schema, for editors.

/// JSON Schema, draft 2020-12. It takes whatever the filter takes, and refuses what can be told without arithmetic in texts and
/// without what stands elsewhere; `fixtures.rs` holds the two against each other.
pub(crate) const SCHEMA: &str = include_str!("schema.json");
