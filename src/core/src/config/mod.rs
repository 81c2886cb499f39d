//! The plugin's configuration: bytes → JSON value → checked [`Config`]. [`crate::rules::Rules`] compiles it.
//!
//! Every fault is found in one pass and told with its path, the value and what is allowed. A field that isn't known is
//! refused: taken silently, a slip of the pen would be a limit that isn't there.

mod fault;
mod input;
mod reader;
mod text;

#[cfg(test)]
mod tests;

pub use fault::Fault;

use crate::limit::{Algorithm, Limit, MAX_DELAY_MS};
use crate::rules::{KeyPart, Match, PathMatch, Source};
use reader::{Item, Object, Reader};

/// The most rules of a configuration.
pub const MAX_RULES: usize = 1000;
/// The most key parts of a rule, and the most alternatives of a part.
pub const MAX_KEY_PARTS: usize = 8;
/// The most limits of a rule.
pub const MAX_LIMITS: usize = 8;
/// The greatest cost.
pub const MAX_COST: u64 = 1 << 31;
/// The most methods or hosts of a match.
const MAX_MATCHES: usize = 256;
/// The most bytes of a response's body.
const MAX_BODY: usize = 64 * 1024;

/// A checked configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Redis; `None`: every rule is decided locally.
    pub store: Option<Store>,
    /// The answer of a denied request.
    pub response: Response,
    /// At least one.
    pub rules: Vec<RuleConfig>,
}

/// Where decisions are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    /// The Envoy cluster that leads to Redis.
    pub cluster: String,
    /// For one decision, in milliseconds, 1..=10,000.
    pub timeout_ms: u64,
    /// First part of every Redis key.
    pub key_prefix: String,
    /// What one script call covers.
    pub scope: Scope,
    /// When to stop asking.
    pub breaker: Breaker,
}

/// What one script call covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// All checks of a request: charged together or not at all.
    Request,
    /// One rule: its keys are in one slot of a Redis Cluster.
    Rule,
}

/// When to stop asking a store that fails, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Breaker {
    /// Failures in a row that open it, 1..=1,000.
    pub failures: u32,
    /// How long it stays open, in milliseconds.
    pub open_ms: u64,
}

/// The answer of a denied request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// HTTP status, 400..=599.
    pub status: u16,
    /// The body.
    pub body: String,
    /// The body's content type.
    pub content_type: String,
    /// Whether `RateLimit-*` headers are written.
    pub ratelimit_headers: bool,
}

impl Default for Response {
    fn default() -> Response {
        Response {
            status: 429,
            body: r#"{"message":"Too many requests"}"#.to_owned(),
            content_type: "application/json".to_owned(),
            ratelimit_headers: true,
        }
    }
}

/// A checked rule.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleConfig {
    /// `[a-z0-9_-]{1,64}`, unique.
    pub name: String,
    /// Which requests.
    pub matches: Match,
    /// Counted by what; 1..=8 parts.
    pub key: Vec<KeyPart>,
    /// Against which limits, 1..=8, no two of the same algorithm and window.
    pub limits: Vec<Limit>,
    /// What a request takes; 0 reads without charging.
    pub cost: u64,
    /// What becomes of a request without the key.
    pub on_missing: OnMissing,
    /// What becomes of a request when Redis can't say.
    pub on_error: OnError,
    /// The part of the limit that one Envoy grants while Redis is away, above 0, at most 1.
    pub share: f64,
    /// Whether the rule is in force.
    pub mode: Mode,
}

/// What becomes of a request that lacks a part of a rule's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnMissing {
    /// The rule doesn't apply to it.
    Skip,
    /// It is denied.
    Deny,
}

/// What becomes of a request when the store fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnError {
    /// A token bucket in Envoy's shared data decides.
    Local,
    /// It is let in.
    Allow,
    /// It is answered 503.
    Deny,
}

/// Whether a rule is in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It is.
    Enforce,
    /// It isn't there.
    Off,
}

impl Config {
    /// Reads a configuration from the bytes that the host hands over: JSON text, or a `google.protobuf.Struct`'s bytes.
    ///
    /// # Errors
    /// Every fault that is in it, in the order of the configuration.
    pub fn parse(bytes: &[u8]) -> Result<Config, Vec<Fault>> {
        let (value, origin) = input::read(bytes).map_err(|fault| vec![fault])?;
        let mut reader = Reader::new(origin);
        let config = config(&mut reader, &Item { path: String::new(), value: &value });
        match (config, reader.into_faults()) {
            (Some(config), faults) if faults.is_empty() => Ok(config),
            (_, faults) => Err(faults),
        }
    }
}

fn config(r: &mut Reader, item: &Item<'_>) -> Option<Config> {
    let object = r.object(item, &["store", "response", "rules"])?;
    let store = object.get("store").map(|item| store(r, &item));
    let response = object.get("response").map_or_else(|| Some(Response::default()), |item| response(r, &item));
    let rules = match object.get("rules") {
        Some(item) => rules(r, &item),
        None => r.missing(&object, "rules", "a list of 1 to 1000 rules is wanted"),
    };
    Some(Config { store: store.map_or(Some(None), |s| s.map(Some))?, response: response?, rules: rules? })
}

fn store(r: &mut Reader, item: &Item<'_>) -> Option<Store> {
    let o = r.object(item, &["transport", "cluster", "timeout", "key_prefix", "scope", "breaker"])?;
    let transport = o.get("transport").map_or(Some(()), |item| r.choice(&item, &[("redis", ())]));
    let cluster = match o.get("cluster") {
        Some(item) => name_text(r, &item, "the name of the Envoy cluster that leads to Redis"),
        None => r.missing(&o, "cluster", "the name of the Envoy cluster that leads to Redis is wanted"),
    };
    let timeout_ms = o.get("timeout").map_or(Some(50), |item| duration(r, &item, 1, 10_000));
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
    let open_ms = o.get("open").map_or(Some(usual.open_ms), |item| duration(r, &item, 10, 3_600_000));
    Some(Breaker { failures: u32::try_from(failures?).ok()?, open_ms: open_ms? })
}

fn response(r: &mut Reader, item: &Item<'_>) -> Option<Response> {
    let usual = Response::default();
    let o = r.object(item, &["status", "body", "content_type", "headers"])?;
    let status = o.get("status").map_or(Some(usual.status.into()), |item| r.integer(&item, 400..=599));
    let body = o.get("body").map_or(Some(usual.body), |item| body(r, &item));
    let content_type = o.get("content_type").map_or(Some(usual.content_type), |item| content_type(r, &item));
    let ratelimit_headers = o.get("headers").map_or(Some(true), |item| header_families(r, &item));
    Some(Response {
        status: u16::try_from(status?).ok()?,
        body: body?,
        content_type: content_type?,
        ratelimit_headers: ratelimit_headers?,
    })
}

fn body(r: &mut Reader, item: &Item<'_>) -> Option<String> {
    let text = r.text(item, "the body of a denied request's answer")?;
    if text.len() > MAX_BODY {
        return r.fault(item, format!("{} bytes long; allowed: {MAX_BODY}", text.len()));
    }
    Some(text.to_owned())
}

fn content_type(r: &mut Reader, item: &Item<'_>) -> Option<String> {
    let text = r.text(item, "a media type such as application/json")?;
    // It becomes a header's value as it is.
    if text.is_empty() || !text.bytes().all(|b| matches!(b, b' '..=b'~')) {
        return r.fault(item, "a media type of visible ASCII is wanted, such as application/json");
    }
    Some(text.to_owned())
}

fn header_families(r: &mut Reader, item: &Item<'_>) -> Option<bool> {
    if item.value.as_array().is_some_and(Vec::is_empty) {
        return Some(false);
    }
    let families = r.list(item, 1, "ratelimit, or [] for none")?;
    families.iter().try_fold(false, |_, family| r.choice(family, &[("ratelimit", true)]))
}

fn rules(r: &mut Reader, item: &Item<'_>) -> Option<Vec<RuleConfig>> {
    let items = r.list(item, MAX_RULES, "rules, such as [{\"name\":\"all\",\"key\":[\"ip\"],\"limits\":[\"10/s\"]}]")?;
    let mut names: Vec<&str> = Vec::new();
    let mut rules = Vec::new();
    for item in &items {
        let rule = rule(r, item);
        if let Some(name) = item.value.get("name").and_then(serde_json::Value::as_str) {
            if names.contains(&name) {
                let message = format!("an earlier rule is named \"{name}\" too; names are unique");
                r.fault::<()>(item_field(item, "name").as_ref().unwrap_or(item), message);
            }
            names.push(name);
        }
        rules.push(rule);
    }
    rules.into_iter().collect()
}

fn item_field<'v>(item: &Item<'v>, field: &str) -> Option<Item<'v>> {
    item.value.get(field).map(|value| Item { path: format!("{}.{field}", item.path), value })
}

fn rule(r: &mut Reader, item: &Item<'_>) -> Option<RuleConfig> {
    let o =
        r.object(item, &["name", "match", "key", "limits", "algorithm", "cost", "on_missing", "on_error", "local", "mode"])?;
    let name = match o.get("name") {
        Some(item) => rule_name(r, &item),
        None => r.missing(&o, "name", "1 to 64 of a-z, 0-9, _ and - are wanted"),
    };
    let matches = o.get("match").map_or_else(|| Some(Match::default()), |item| matches(r, &item));
    let key = match o.get("key") {
        Some(item) => key(r, &item),
        None => r.missing(&o, "key", "a list of 1 to 8 key parts is wanted, such as [\"ip\"]"),
    };
    let algorithm = o.get("algorithm").map_or(Some(Algorithm::TokenBucket), |item| algorithm(r, &item));
    let limits = limits(r, &o, algorithm.unwrap_or(Algorithm::TokenBucket));
    let cost = o.get("cost").map_or(Some(1), |item| r.integer(&item, 0..=MAX_COST));
    let choices = [("skip", OnMissing::Skip), ("deny", OnMissing::Deny)];
    let on_missing = o.get("on_missing").map_or(Some(OnMissing::Skip), |item| r.choice(&item, &choices));
    let choices = [("local", OnError::Local), ("allow", OnError::Allow), ("deny", OnError::Deny)];
    let on_error = o.get("on_error").map_or(Some(OnError::Local), |item| r.choice(&item, &choices));
    let share = o.get("local").map_or(Some(1.0), |item| local_share(r, &item));
    let choices = [("enforce", Mode::Enforce), ("off", Mode::Off)];
    let mode = o.get("mode").map_or(Some(Mode::Enforce), |item| r.choice(&item, &choices));
    algorithm?;
    Some(RuleConfig {
        name: name?,
        matches: matches?,
        key: key?,
        limits: limits?,
        cost: cost?,
        on_missing: on_missing?,
        on_error: on_error?,
        share: share?,
        mode: mode?,
    })
}

fn rule_name(r: &mut Reader, item: &Item<'_>) -> Option<String> {
    let wanted = "1 to 64 of a-z, 0-9, _ and - are wanted";
    let text = r.text(item, wanted)?;
    let allowed = |b: u8| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-');
    if !(1..=64).contains(&text.len()) || !text.bytes().all(allowed) {
        return r.fault(item, wanted);
    }
    Some(text.to_owned())
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

fn duration(r: &mut Reader, item: &Item<'_>, least_ms: u64, most_ms: u64) -> Option<u64> {
    let wanted = format!("a duration from {} to {} is wanted, such as 50ms or 1s", spelled(least_ms), spelled(most_ms));
    let given = item.value.as_str().and_then(text::duration_ms);
    match given.filter(|ms| (least_ms..=most_ms).contains(ms)) {
        Some(ms) => Some(ms),
        None => r.fault(item, wanted),
    }
}

fn spelled(ms: u64) -> String {
    match ms {
        _ if ms.is_multiple_of(3_600_000) => format!("{}h", ms / 3_600_000),
        _ if ms.is_multiple_of(1000) => format!("{}s", ms / 1000),
        _ => format!("{ms}ms"),
    }
}

fn local_share(r: &mut Reader, item: &Item<'_>) -> Option<f64> {
    let o = r.object(item, &["share"])?;
    o.get("share").map_or(Some(1.0), |item| r.share(&item))
}

fn algorithm(r: &mut Reader, item: &Item<'_>) -> Option<Algorithm> {
    let name = r.text(item, "the name of an algorithm")?;
    text::algorithm(name).map_or_else(|message| r.fault(item, message), Some)
}

fn limits(r: &mut Reader, rule: &Object<'_>, default: Algorithm) -> Option<Vec<Limit>> {
    let Some(item) = rule.get("limits") else {
        return r.missing(rule, "limits", "a list of 1 to 8 limits is wanted, such as [\"10/s\"]");
    };
    let items = r.list(&item, MAX_LIMITS, "limits, such as [\"10/s\"]")?;
    let mut limits: Vec<Option<Limit>> = Vec::new();
    for item in &items {
        let limit = limit(r, item, default);
        // The two would share a key in Redis.
        let twin = limit.filter(|limit| limits.iter().flatten().any(|earlier| earlier.same_key(limit)));
        if let Some(twin) = twin {
            let algorithm = twin.algorithm().name();
            r.fault::<()>(item, format!("an earlier limit is a {algorithm} of the same window; keep the stricter one"));
        }
        limits.push(limit);
    }
    limits.into_iter().collect()
}

fn limit(r: &mut Reader, item: &Item<'_>, default: Algorithm) -> Option<Limit> {
    if let Some(text) = item.value.as_str() {
        return text::limit(text, default).map_or_else(|message| r.fault(item, message), Some);
    }
    if !item.value.is_object() {
        return r.fault(item, "a limit is wanted: text such as \"10/s\", or an object with count and window");
    }
    let o = r.object(item, &["count", "window", "burst", "algorithm", "max_delay"])?;
    let count = match o.get("count") {
        Some(item) if item.value.as_u64() == Some(0) => r.fault(&item, text::zero_count()),
        Some(item) => r.integer(&item, 1..=crate::limit::MAX_COUNT),
        None => r.missing(&o, "count", "an integer of at least 1 is wanted"),
    };
    let window = match o.get("window") {
        Some(item) => window(r, &item),
        None => r.missing(&o, "window", "a window such as \"min\" or \"10s\" is wanted"),
    };
    let burst = o.get("burst").map(|item| r.integer(&item, 1..=crate::limit::MAX_COUNT));
    let algorithm = o.get("algorithm").map_or(Some(default), |item| algorithm(r, &item));
    let burst = burst.map_or(Some(None), |burst| burst.map(Some));
    let max_delay = o.get("max_delay").map(|item| duration(r, &item, 1, MAX_DELAY_MS));
    let max_delay = max_delay.map_or(Some(None), |delay| delay.map(Some));
    text::build(algorithm?, count?, window?, burst?, max_delay?).map_or_else(|message| r.fault(item, message), Some)
}

fn window(r: &mut Reader, item: &Item<'_>) -> Option<u64> {
    let text = r.text(item, "a window such as \"min\" or \"10s\"")?;
    text::window_ms(text).map_or_else(|message| r.fault(item, message), Some)
}

fn matches(r: &mut Reader, item: &Item<'_>) -> Option<Match> {
    let o = r.object(item, &["path", "methods", "hosts"])?;
    let path = o.get("path").map(|item| path_match(r, &item));
    let methods = o.get("methods").map_or(Some(Vec::new()), |item| {
        let items = r.list(&item, MAX_MATCHES, "methods, such as [\"GET\"]")?;
        let methods: Vec<_> = items.iter().map(|item| method(r, item)).collect();
        methods.into_iter().collect()
    });
    let hosts = o.get("hosts").map_or(Some(Vec::new()), |item| {
        let items = r.list(&item, MAX_MATCHES, "hosts, such as [\"api.example.com\"]")?;
        let hosts: Vec<_> = items.iter().map(|item| host(r, item)).collect();
        hosts.into_iter().collect()
    });
    Some(Match { path: path.map_or(Some(None), |p| p.map(Some))?, methods: methods?, hosts: hosts? })
}

fn path_match(r: &mut Reader, item: &Item<'_>) -> Option<PathMatch> {
    let o = r.object(item, &["exact", "prefix"])?;
    match (o.get("exact"), o.get("prefix")) {
        (Some(item), None) => path(r, &item).map(PathMatch::exact),
        (None, Some(item)) => path(r, &item).map(PathMatch::prefix),
        _ => r.fault(item, "one of exact and prefix is wanted"),
    }
}

fn path<'v>(r: &mut Reader, item: &Item<'v>) -> Option<&'v str> {
    let wanted = "a path that begins with / is wanted, without query or fragment";
    let text = r.text(item, wanted)?;
    if !text.starts_with('/') || text.contains(['?', '#']) {
        return r.fault(item, wanted);
    }
    Some(text)
}

fn method(r: &mut Reader, item: &Item<'_>) -> Option<String> {
    let wanted = "a method such as GET is wanted";
    let text = r.text(item, wanted)?;
    if text.is_empty() || !text.bytes().all(is_token) {
        return r.fault(item, wanted);
    }
    if text.bytes().any(|b| b.is_ascii_lowercase()) {
        let upper = text.to_ascii_uppercase();
        return r.fault(item, format!("methods are told apart by case (did you mean \"{upper}\"?)"));
    }
    Some(text.to_owned())
}

fn host(r: &mut Reader, item: &Item<'_>) -> Option<String> {
    let wanted = "a host name or address without a port is wanted; wildcards aren't known here";
    let text = r.text(item, wanted)?;
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b':' | b'[' | b']');
    let normal = crate::request::host(text.as_bytes());
    if text.is_empty() || !text.bytes().all(allowed) || normal.len() != text.len() {
        return r.fault(item, wanted);
    }
    Some(text.to_ascii_lowercase())
}

fn key(r: &mut Reader, item: &Item<'_>) -> Option<Vec<KeyPart>> {
    let items = r.list(item, MAX_KEY_PARTS, "key parts, such as [\"header:x-api-key | ip\"]")?;
    let parts: Vec<_> = items.iter().map(|item| key_part(r, item)).collect();
    parts.into_iter().collect()
}

fn key_part(r: &mut Reader, item: &Item<'_>) -> Option<KeyPart> {
    let text = r.text(item, "a source such as header:x-api-key, or alternatives with |")?;
    let sources: Vec<_> = text.split('|').map(|text| source(r, item, text.trim())).collect();
    if sources.len() > MAX_KEY_PARTS {
        return r.fault(item, format!("{} alternatives; allowed: {MAX_KEY_PARTS}", sources.len()));
    }
    Some(KeyPart::new(sources.into_iter().collect::<Option<Vec<_>>>()?))
}

fn source(r: &mut Reader, item: &Item<'_>, text: &str) -> Option<Source> {
    const ALLOWED: &str = "header:NAME, ip, path, method, host, route, const:TEXT";
    match text.split_once(':').map_or((text, None), |(kind, rest)| (kind, Some(rest))) {
        ("header", Some(name)) if !name.is_empty() && name.bytes().all(is_token) => {
            Some(Source::Header(name.to_ascii_lowercase()))
        }
        ("header", _) => r.fault(item, "header: wants a header's name, such as header:x-api-key"),
        ("const", Some(text)) if !text.is_empty() && text.len() <= 256 => Some(Source::Const(text.to_owned())),
        ("const", _) => r.fault(item, "const: wants a text of 1 to 256 bytes, such as const:all"),
        ("ip", None) => Some(Source::Ip),
        ("path", None) => Some(Source::Path),
        ("method", None) => Some(Source::Method),
        ("host", None) => Some(Source::Host),
        ("route", None) => Some(Source::Route),
        (kind, _) => {
            let kinds = ["header", "ip", "path", "method", "host", "route", "const"];
            let hint = fault::did_you_mean(kind, &kinds);
            r.fault(item, format!("the source \"{text}\" isn't known{hint}; allowed: {ALLOWED}"))
        }
    }
}

/// A character of an RFC 9110 token, of which header names and methods are made.
fn is_token(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b)
}
