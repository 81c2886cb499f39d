//! The field `store`.

use super::auth;
use super::reader::{Item, Object, Reader};
use super::{Breaker, Scope, Store, Transport};

const FIELDS: [&str; 9] = ["transport", "cluster", "timeout", "key_prefix", "scope", "path", "authority", "auth", "breaker"];

const TRANSPORTS: [(&str, Transport); 4] = [
    ("redis", Transport::Redis),
    ("redis-call", Transport::RedisCall),
    ("upstash", Transport::Upstash),
    ("webdis", Transport::Webdis),
];

pub(super) fn store(r: &mut Reader, item: &Item<'_>) -> Option<Store> {
    let o = r.object(item, &FIELDS)?;
    let transport = o.get("transport").map_or(Some(Transport::Redis), |item| r.choice(&item, &TRANSPORTS));
    let cluster = match o.get("cluster") {
        Some(item) => name_text(r, &item, "the name of the Envoy cluster that leads to Redis"),
        None => r.missing(&o, "cluster", "the name of the Envoy cluster that leads to Redis is wanted"),
    };
    let timeout_ms = o.get("timeout").map_or(Some(50), |item| r.duration(&item, 1, 10_000));
    let key_prefix = o.get("key_prefix").map_or_else(|| Some("rl".to_owned()), |item| key_prefix(r, &item));
    let scopes = [("request", Scope::Request), ("rule", Scope::Rule)];
    let scope = o.get("scope").map_or(Some(Scope::Request), |item| r.choice(&item, &scopes));
    let path = o.get("path").map_or_else(|| Some("/".to_owned()), |item| base_path(r, &item));
    let authority = match o.get("authority") {
        Some(item) => host(r, &item),
        None => cluster.clone(),
    };
    let auth = auth(r, &o, transport);
    let usual = Breaker { failures: 5, open_ms: 1000 };
    let breaker = o.get("breaker").map_or(Some(usual), |item| breaker(r, &item, usual));
    if transport.is_some_and(|transport| !transport.is_http()) {
        for item in ["path", "authority"].into_iter().filter_map(|field| o.get(field)) {
            r.fault::<()>(&item, "it goes with transport: upstash or webdis");
        }
    }
    Some(Store {
        transport: transport?,
        cluster: cluster?,
        timeout_ms: timeout_ms?,
        key_prefix: key_prefix?,
        scope: scope?,
        path: path?,
        authority: authority?,
        auth: auth?,
        breaker: breaker?,
    })
}

fn auth(r: &mut Reader, o: &Object<'_>, transport: Option<Transport>) -> Option<Option<auth::Auth>> {
    match (o.get("auth"), transport) {
        (Some(item), transport) => auth::auth(r, &item, transport).map(Some),
        (None, Some(Transport::Upstash)) => {
            r.missing(o, "auth", "Upstash's token is wanted, such as {\"env\":\"UPSTASH_TOKEN\"}")
        }
        (None, _) => Some(None),
    }
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
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b':');
    r.word(item, 32, allowed, wanted).map(str::to_owned)
}

/// The path before that of a call; it ends with a slash.
fn base_path(r: &mut Reader, item: &Item<'_>) -> Option<String> {
    let wanted = "a path is wanted that begins with / and has no query, of 200 printable ASCII characters at most";
    let path = r.word(item, 200, |b| b.is_ascii_graphic() && !matches!(b, b'?' | b'#'), wanted)?;
    if !path.starts_with('/') {
        return r.fault(item, wanted);
    }
    Some(format!("{}/", path.trim_end_matches('/')))
}

fn host(r: &mut Reader, item: &Item<'_>) -> Option<String> {
    let wanted = "a host is wanted, maybe with a port, such as eu1-example.upstash.io";
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.' | b':' | b'[' | b']');
    r.word(item, 255, allowed, wanted).map(str::to_owned)
}

fn name_text(r: &mut Reader, item: &Item<'_>, wanted: &str) -> Option<String> {
    let text = r.text(item, wanted)?;
    if text.is_empty() || text.chars().any(char::is_control) {
        return r.fault(item, format!("{wanted} is wanted"));
    }
    Some(text.to_owned())
}
