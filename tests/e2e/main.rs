//! Weir as its users run it: real Envoy, real Redis, real clients.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "a test fails by a panic"
)]

#[allow(dead_code, reason = "each test binary uses a part of it")]
#[path = "../servers/mod.rs"]
mod servers;

mod algorithms;
mod answers;
mod bytes;
mod configuration;
mod decisions;
mod denials;
mod failures;
mod faults;
mod leases;
mod load;
mod metrics;
mod observability;
mod rules;
mod samples;
mod soak;
mod transports;
mod upstream;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

static MACHINE: RwLock<()> = RwLock::new(());

/// Held by a test that shares the machine with others.
fn beside_others() -> RwLockReadGuard<'static, ()> {
    MACHINE.read().unwrap_or_else(PoisonError::into_inner)
}

/// Held by a test that measures times or makes load.
fn alone() -> RwLockWriteGuard<'static, ()> {
    MACHINE.write().unwrap_or_else(PoisonError::into_inner)
}

/// Set when it is dropped, also by a panic.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Answers came within the timeout and 20 ms. The machine may stall a few.
fn assert_in_time<T: std::fmt::Debug>(answers: &[(T, Duration)], timeout: Duration) {
    let late: Vec<_> = answers.iter().filter(|(_, took)| *took > timeout + Duration::from_millis(20)).collect();
    assert!(!answers.is_empty() && late.len() * 100 <= answers.len(), "{} of {}: {late:?}", late.len(), answers.len());
    assert!(late.iter().all(|(_, took)| *took < Duration::from_secs(1)), "{late:?}");
}

/// A plugin configuration with a store and one rule that counts API keys; `fields` of the rule.
fn with_store(fields: &str) -> String {
    format!(r#"{{"store":{{"cluster":"weir-redis"}},"rules":[{{"name":"per-key","key":["header:x-api-key"],{fields}}}]}}"#)
}
