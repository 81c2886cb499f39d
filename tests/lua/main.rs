//! The script in a real Redis: step by step against its Rust model in virtual time, and as it is shipped.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "a test fails by a panic"
)]

#[path = "../servers/mod.rs"]
#[allow(dead_code, reason = "each test binary uses a part of it")]
mod servers;

mod differential;
mod shipped;
