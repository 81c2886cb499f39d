//! The core where a `usize` has 32 bits, as in the filter: what a length, a count or a time beyond them could be cut to.
//!
//! Under Node these run as wasm, natively as ordinary tests.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::cell::RefCell;
use std::collections::HashMap;
use wasm_bindgen_test::wasm_bindgen_test;
use weir_core::answer;
use weir_core::config::Config;
use weir_core::flow::{Decision, Kind, Limiter, Now, Step};
use weir_core::local::{SharedData, Unavailable};
use weir_core::request::Sample;
use weir_core::rules::{LiveOverrides, Plan, Surroundings};
use weir_core::store::{Client, Decoder, Effect, Malformed, Reply, Ticket, Unframer};

/// A moment whose milliseconds and microseconds don't fit into 32 bits.
const NOW_MS: u64 = 1_800_000_000_000;

fn plan(limiter: &Limiter) -> Plan {
    let request = Sample::new([("x-api-key", "k")]);
    limiter.rules.plan(&request, Surroundings { route: None, live: &LiveOverrides::default(), roll: 0 })
}

#[derive(Default)]
struct Data(RefCell<HashMap<u32, Vec<u8>>>);

impl SharedData for Data {
    fn read(&self, slot: u32) -> Result<(Vec<u8>, u32), Unavailable> {
        Ok((self.0.borrow().get(&slot).cloned().unwrap_or_default(), 0))
    }

    fn write(&self, slot: u32, bytes: &[u8], _: u32) -> Result<bool, Unavailable> {
        self.0.borrow_mut().insert(slot, bytes.to_vec());
        Ok(true)
    }
}

fn limiter(store: &str, limit: &str) -> Limiter {
    let text = format!(r#"{{{store}"rules":[{{"name":"r","key":["header:x-api-key"],"limits":["{limit}"]}}]}}"#);
    Limiter::new(Config::parse(text.as_bytes()).unwrap())
}

fn decide(limiter: &Limiter, data: &Data, now_ms: u64) -> Decision {
    match limiter.begin(plan(limiter), data, Now { wall_ms: now_ms, us: 0 }) {
        Step::Decide(decision) => decision,
        step => panic!("{step:?}"),
    }
}

fn limit_headers(limiter: &Limiter, decision: &Decision) -> Vec<String> {
    answer::limit_headers(decision, &limiter.rules).into_iter().map(|(_, value)| value).collect()
}

#[wasm_bindgen_test(unsupported = test)]
fn a_request_is_asked_of_redis_and_let_in() {
    let limiter = limiter(r#""store":{"cluster":"weir-redis"},"#, "100/min burst 3");
    let mut client = Client::new(limiter.store.as_ref().unwrap(), 1);
    let now_us = NOW_MS * 1000;
    let (mut effects, data) = (Vec::new(), Data::default());
    let Step::Ask(mut flow, calls) = limiter.begin(plan(&limiter), &data, Now { wall_ms: NOW_MS, us: 0 }) else {
        panic!("Redis is to be asked")
    };
    let calls = calls.into_iter().map(|(part, call)| (Ticket::Request { id: 7, part }, call));
    client.ask(calls, now_us, &mut effects);
    client.poll(now_us, &mut effects);
    client.opened(true, now_us, &mut effects);
    client.received(b"*4\r\n:1\r\n:1\r\n:0\r\n:0\r\n*4\r\n:1\r\n:2\r\n:0\r\n:4294968000\r\n", now_us, &mut effects);
    let results: Vec<_> = effects
        .into_iter()
        .filter_map(|effect| match effect {
            Effect::Done { ticket, result, .. } => Some((ticket, result)),
            _ => None,
        })
        .collect();
    let [(Ticket::Request { id: 7, part: 0 }, result)] = &results[..] else { panic!("{results:?}") };
    assert!(flow.settle(0, result.clone()));
    let decision = flow.decide(&limiter, &data, Now { wall_ms: NOW_MS, us: 0 });
    assert_eq!(decision.kind, Kind::Allowed);
    assert_eq!(limit_headers(&limiter, &decision), ["3", "2", "4294968"]);
}

#[wasm_bindgen_test(unsupported = test)]
fn the_greatest_limit_is_not_cut() {
    let (limiter, data) = (limiter("", "9007199254740991/31d"), Data::default());
    let decision = decide(&limiter, &data, NOW_MS);
    assert_eq!(limit_headers(&limiter, &decision), ["9007199254740991", "9007199254740990", "1"]);
}

#[wasm_bindgen_test(unsupported = test)]
fn a_wait_beyond_32_bits_is_told_whole() {
    let (limiter, data) = (limiter("", "1/31d burst 2"), Data::default());
    let kinds = [0, 0, 1].map(|later| decide(&limiter, &data, NOW_MS + later).kind);
    let wait = 31 * 24 * 60 * 60 * 1000 - 1;
    assert_eq!(kinds, [Kind::Allowed, Kind::Allowed, Kind::Denied { retry_ms: Some(wait) }]);
    let reset = decide(&limiter, &data, NOW_MS + 1).quota.unwrap().reset_ms;
    assert_eq!(reset, wait + 31 * 24 * 60 * 60 * 1000);
    assert!(reset > u64::from(u32::MAX));
}

#[wasm_bindgen_test(unsupported = test)]
fn a_length_beyond_32_bits_is_refused_and_not_cut() {
    for bytes in [&b"$4294967299\r\nabc\r\n"[..], b"*4294967297\r\n:1\r\n", b"$-4294967297\r\n"] {
        let mut decoder = Decoder::default();
        decoder.feed(bytes);
        assert_eq!(decoder.next_reply(), Err(Malformed), "{}", String::from_utf8_lossy(bytes));
    }
    let mut decoder = Decoder::default();
    decoder.feed(b"*1\r\n:4294967297\r\n");
    assert_eq!(decoder.next_reply(), Ok(Some(Reply::Integers(vec![4_294_967_297]))));
}

#[wasm_bindgen_test(unsupported = test)]
fn the_longest_frame_is_taken_as_it_comes() {
    let mut unframer = Unframer::default();
    assert_eq!(unframer.take(b"\0\xff\xff\xff\xffabc"), b"abc");
    assert_eq!(unframer.take(b"def"), b"def");
}
