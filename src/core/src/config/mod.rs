//! The plugin's configuration: bytes → JSON value → checked [`Config`]. [`crate::rules::Rules`] compiles it.
//!
//! Every fault is found in one pass and told with its path, the value and what is allowed. A field that isn't known is
//! refused: taken silently, a slip of the pen would be a limit that isn't there.

mod auth;
mod conditions;
mod fault;
mod input;
mod limits;
mod reader;
mod response;
mod route;
mod rule;
mod sources;
mod store;
mod text;

#[cfg(test)]
mod tests;

pub use auth::{Auth, Secret};
pub use fault::Fault;
pub(crate) use input::json;
pub use input::read;
pub use limits::{MAX_LIMITS, limits_text};
pub use reader::Origin;
pub use rule::{MAX_COST, MAX_RULES};
pub use sources::MAX_KEY_PARTS;

use crate::leases::Terms;
use crate::limit::{Algorithm, Limit};
use crate::rules::{ClientIp, KeyPart, Match};
use reader::{Item, Reader};
use std::collections::BTreeMap;
use std::rc::Rc;

/// A checked configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Redis; `None`: every rule is decided locally.
    pub store: Option<Store>,
    /// Where clients' addresses come from.
    pub client_ip: ClientIp,
    /// Requests that no rule sees.
    pub exempt: Vec<Match>,
    /// Requests that are refused, and the status of the answer, 400..=599.
    pub block: Vec<(Match, u16)>,
    /// At least one.
    pub rules: Vec<RuleConfig>,
    /// All CEL expressions in it, which only the host can check, by their paths.
    pub expressions: Vec<(String, String)>,
}

/// Where decisions are made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    /// How it is asked.
    pub transport: Transport,
    /// The Envoy cluster that leads to Redis.
    pub cluster: String,
    /// For one decision, in milliseconds, 1..=10,000.
    pub timeout_ms: u64,
    /// First part of every Redis key.
    pub key_prefix: String,
    /// What one script call covers.
    pub scope: Scope,
    /// What a call's path begins with, with a slash at its end; of an HTTP transport.
    pub path: String,
    /// What a call's `Host` header says; of an HTTP transport.
    pub authority: String,
    /// What opens it.
    pub auth: Option<Auth>,
    /// When to stop asking.
    pub breaker: Breaker,
}

/// How Redis is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// RESP over one stream of each worker.
    Redis,
    /// RESP in an HTTP callout, whose body the cluster passes on as raw TCP.
    RedisCall,
    /// The REST protocol of Upstash in an HTTP callout.
    Upstash,
    /// An HTTP callout to Webdis.
    Webdis,
}

impl Transport {
    /// Whether it speaks HTTP to a server, and not RESP.
    pub fn is_http(self) -> bool {
        matches!(self, Transport::Upstash | Transport::Webdis)
    }
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

/// The answer of a denied request, and the headers that tell a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// HTTP status, 400..=599.
    pub status: u16,
    /// The body.
    pub body: Body,
    /// The body's content type.
    pub content_type: String,
    /// What tells a client its limit, on allowed responses too; no two the same.
    pub headers: Vec<HeaderFamily>,
    /// The status of a gRPC request's answer.
    pub grpc_status: GrpcStatus,
    /// Up to how many milliseconds are added to `Retry-After` at random.
    pub jitter_ms: u64,
}

/// The body of a denied request's answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// This text, with `{rule}`, `{limit}` and `{retry_after}` filled in.
    Text(String),
    /// A problem document (RFC 9457).
    Problem,
}

/// Headers that tell a client its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderFamily {
    /// `RateLimit-Limit`, `-Remaining` and `-Reset`.
    RateLimit,
    /// The same with `X-`.
    XRateLimit,
    /// `RateLimit-Policy` and `RateLimit`, structured fields (draft-ietf-httpapi-ratelimit-headers-10).
    Structured,
}

/// The gRPC status of a denied request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum GrpcStatus {
    /// Clients don't try again by themselves.
    ResourceExhausted = 8,
    /// Some clients do.
    Unavailable = 14,
}

impl Default for Response {
    fn default() -> Response {
        Response {
            status: 429,
            body: Body::Text(r#"{"message":"Too many requests"}"#.to_owned()),
            content_type: "application/json".to_owned(),
            headers: vec![HeaderFamily::RateLimit],
            grpc_status: GrpcStatus::ResourceExhausted,
            jitter_ms: 0,
        }
    }
}

/// A checked rule.
#[derive(Clone, Debug, PartialEq)]
pub struct RuleConfig {
    /// `[a-z0-9_-]{1,64}`, unique.
    pub name: String,
    /// Where it applies without being named.
    pub select: Select,
    /// Which requests.
    pub matches: Match,
    /// Which of these, by a CEL expression.
    pub when: Option<String>,
    /// Counted by what; 1..=8 parts.
    pub key: Vec<KeyPart>,
    /// Against which limits.
    pub limits: Limits,
    /// How limits count that don't say.
    pub algorithm: Algorithm,
    /// What a request takes.
    pub cost: Cost,
    /// Limits by what a request says of itself.
    pub tiers: Option<Tiers>,
    /// Limits by subject.
    pub overrides: BTreeMap<String, Limits>,
    /// How often limits by subject are read from Redis, in milliseconds; `None`: never.
    pub live_every_ms: Option<u64>,
    /// What becomes of a request without the key.
    pub on_missing: OnMissing,
    /// What becomes of a request when Redis can't say.
    pub on_error: OnError,
    /// The part of the limit that one Envoy grants while Redis is away, above 0, at most 1.
    pub share: f64,
    /// Whether the rule is in force.
    pub mode: Mode,
    /// How many requests of a hundred it is enforced on.
    pub enforce_percent: u8,
    /// For how long a denial of Redis's stands for requests of the same kind, in milliseconds; 0: for none.
    pub cache_denials_ms: u64,
    /// How its subjects are leased; `None`: they aren't.
    pub lease: Option<Terms>,
    /// The answer of a request that it denies.
    pub response: Rc<Response>,
}

/// Where a rule applies without being named in a route's metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Select {
    /// On every route that doesn't name other rules.
    Always,
    /// Nowhere.
    Route,
}

/// What limits a subject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Limits {
    /// Nothing.
    Unlimited,
    /// These, 1..=8, no two of the same algorithm and window.
    These(Vec<Limit>),
}

/// What a request takes, 0..=2^31. 0 reads without charging.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cost {
    /// Always this.
    Fixed(u64),
    /// What the request says.
    From {
        /// Where.
        source: KeyPart,
        /// Where it says nothing, or what isn't an integer of at least 0.
        default: u64,
        /// Where it says more.
        max: u64,
    },
}

/// Limits by what a request says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tiers {
    /// Where it says its tier.
    pub by: KeyPart,
    /// The limits of each; a tier that isn't here has the rule's.
    pub values: BTreeMap<String, Limits>,
}

/// Settings in the metadata of a route or virtual host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouteConfig {
    /// No rule applies.
    pub disabled: bool,
    /// These apply, and no others.
    pub rules: Option<Vec<String>>,
    /// What each request takes.
    pub cost: Option<u64>,
    /// Limits in place of the rules' own, by their names.
    pub limits: Vec<(String, Limits)>,
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
    /// It is decided and told, and nothing comes of it.
    Shadow,
    /// It isn't there.
    Off,
}

impl Config {
    /// Reads a configuration from the bytes that the host hands over: JSON text, or a `google.protobuf.Struct`'s bytes.
    ///
    /// # Errors
    /// Every fault that is in it, in the order of the configuration.
    pub fn parse(bytes: &[u8]) -> Result<Config, Vec<Fault>> {
        let (value, origin) = read(bytes).map_err(|fault| vec![fault])?;
        Config::from_value(&value, origin)
    }

    /// Reads a configuration that is a JSON value already.
    ///
    /// # Errors
    /// Every fault that is in it, in the order of the configuration.
    pub fn from_value(value: &serde_json::Value, origin: Origin) -> Result<Config, Vec<Fault>> {
        let mut reader = Reader::new(origin);
        let config = config(&mut reader, &Item { path: String::new(), value });
        match (config, reader.into_faults()) {
            (Some(config), faults) if faults.is_empty() => Ok(config),
            (_, faults) => Err(faults),
        }
    }
}

fn config(r: &mut Reader, item: &Item<'_>) -> Option<Config> {
    let o = r.object(item, &["store", "client_ip", "exempt", "block", "response", "rules"])?;
    let store = o.get("store").map(|item| store::store(r, &item));
    r.has_store = store.is_some();
    let client_ip = o.get("client_ip").map_or_else(|| Some(ClientIp::default()), |item| conditions::client_ip(r, &item));
    let exempt = o.get("exempt").map_or(Some(Vec::new()), |item| conditions::exempt(r, &item));
    let block = o.get("block").map_or(Some(Vec::new()), |item| conditions::block(r, &item));
    let response = o.get("response").map_or_else(
        || Some(Rc::new(Response::default())),
        |item| response::response(r, &item, &Response::default()).map(Rc::new),
    );
    let usual = response.clone().unwrap_or_default();
    let rules = match o.get("rules") {
        Some(item) => rule::rules(r, &item, &usual),
        None => r.missing(&o, "rules", "a list of 1 to 1000 rules is wanted"),
    };
    response?;
    Some(Config {
        store: store.map_or(Some(None), |store| store.map(Some))?,
        client_ip: client_ip?,
        exempt: exempt?,
        block: block?,
        rules: rules?,
        expressions: r.take_expressions(),
    })
}
