//! The field `store`.

use super::reader::{Item, Reader};
use super::{Breaker, Scope, Store};

pub(super) fn store(r: &mut Reader, item: &Item<'_>) -> Option<Store> {
    let o = r.object(item, &["transport", "cluster", "timeout", "key_prefix", "scope", "breaker"])?;
    let transport = o.get("transport").map_or(Some(()), |item| r.choice(&item, &[("redis", ())]));
    let cluster = match o.get("cluster") {
        Some(item) => name_text(r, &item, "the name of the Envoy cluster that leads to Redis"),
        None => r.missing(&o, "cluster", "the name of the Envoy cluster that leads to Redis is wanted"),
    };
    let timeout_ms = o.get("timeout").map_or(Some(50), |item| r.duration(&item, 1, 10_000));
    let key_prefix = o.get("key_prefix").map_or_else(|| Some("rl".to_owned()), |item| key_prefix(r, &item));
    let scopes = [("request", Scope::Request), ("rule", Scope::Rule)];
    let scope = o.get("scope").map_or(Some(Scope::Request), |item| r.choice(&item, &scopes));
    let usual = Breaker { failures: 5, open_ms: 1000 };
    let breaker = o.get("breaker").map_or(Some(usual), |item| breaker(r, &item, usual));
    transport?;
    Some(Store { cluster: cluster?, timeout_ms: timeout_ms?, key_prefix: key_prefix?, scope: scope?, breaker: breaker? })
}

fn breaker(r: &mut Reader, item: &Item<'_>, usual: Breaker) -> Option<Breaker> {
    let o = r.object(item, &["failures", "open"])?;
    let failures = o.get("failures").map_or(Some(usual.failures.into()), |item| r.integer(&item, 1..=1000));
    let open_ms = o.get("open").map_or(Some(usual.open_ms), |item| r.duration(&item, 10, 3_600_000));
    Some(Breaker { failures: u32::try_from(failures?).ok()?, open_ms: open_ms? })
}

fn key_prefix(r: &mut Reader, item: &Item<'_>) -> Option<String> {
    // No braces: the first pair in a Redis key is its hash tag.
    let wanted = "1 to 32 of A-Z, a-z, 0-9, _, -, . and : are wanted";
    let text = r.text(item, wanted)?;
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b':');
    if !(1..=32).contains(&text.len()) || !text.bytes().all(allowed) {
        return r.fault(item, wanted);
    }
    Some(text.to_owned())
}

fn name_text(r: &mut Reader, item: &Item<'_>, wanted: &str) -> Option<String> {
    let text = r.text(item, wanted)?;
    if text.is_empty() || text.chars().any(char::is_control) {
        return r.fault(item, format!("{wanted} is wanted"));
    }
    Some(text.to_owned())
}
