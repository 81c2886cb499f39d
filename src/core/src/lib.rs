//! All that decides in Weir. No host, no clock, no I/O: a request's values come in through a trait, time comes in as an
//! argument, and what is to be done goes out as data.
//!
//! A request goes one way through it: [`rules`] say which checks it needs, [`flow`] asks the [`store`] or the [`local`]
//! buckets, and [`answer`] says what the client sees.

#![forbid(unsafe_code)]
#![deny(missing_docs, clippy::arithmetic_side_effects)]
#![cfg_attr(test, allow(clippy::arithmetic_side_effects, reason = "a test that overflows fails"))]

pub mod answer;
pub mod config;
pub mod denials;
pub mod dice;
pub mod flow;
pub mod leases;
pub mod limit;
pub mod local;
pub mod request;
pub mod rules;
pub mod store;
