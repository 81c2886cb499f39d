//! The script that decides in Redis, composed at build time from the files in `lua/`.

/// The whole script.
pub const SOURCE: &str = include_str!(concat!(env!("OUT_DIR"), "/script.lua"));

/// Its SHA-1 in lower-case hex, by which Redis knows it.
pub const SHA1: &str = include_str!(concat!(env!("OUT_DIR"), "/script.sha1"));

/// The script without its clock: behind other Lua code that defines `now`, the same decisions in a time of one's own.
pub const DECISION: &str = include_str!(concat!(env!("OUT_DIR"), "/decision.lua"));

/// The script that reads live overrides, a page at a time.
pub const OVERRIDES: &str = include_str!(concat!(env!("OUT_DIR"), "/overrides.lua"));
