//! From a decision to what the client and the access log see.

use crate::config::Response;
use crate::flow::{Decision, Kind, Source};
use crate::rules::Rules;

/// The body of an answer when the store failed and the rule says `deny`.
const UNAVAILABLE: &str = r#"{"message":"Service unavailable"}"#;

/// The body of an answer to a blocked request.
const BLOCKED: &str = r#"{"message":"Request blocked"}"#;

/// gRPC status codes, for clients that speak it.
const PERMISSION_DENIED: i32 = 7;
const RESOURCE_EXHAUSTED: i32 = 8;
const GRPC_UNAVAILABLE: i32 = 14;

/// A response that the proxy writes itself. No value holds a line break or a NUL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Its headers.
    pub headers: Vec<(&'static str, String)>,
    /// Its body; of a gRPC request, the message.
    pub body: String,
    /// Envoy's response code details: `weir_denied:RULE`, `weir_failed:RULE` or `weir_blocked`.
    pub details: String,
    /// The gRPC status for a gRPC request.
    pub grpc_status: i32,
}

/// The answer that a decision gives; `None` where the request goes on.
pub fn answer(decision: &Decision, rules: &Rules, response: &Response) -> Option<Answer> {
    let rule = rule_name(decision, rules);
    match decision.kind {
        Kind::Allowed | Kind::Exempt => None,
        Kind::Blocked { status } => Some(Answer {
            status,
            headers: vec![("content-type", "application/json".to_owned())],
            body: BLOCKED.to_owned(),
            details: "weir_blocked".to_owned(),
            grpc_status: PERMISSION_DENIED,
        }),
        Kind::Denied { retry_ms } => {
            let mut headers = vec![("content-type", response.content_type.clone())];
            headers.extend(retry_ms.map(|ms| ("retry-after", seconds(ms).max(1).to_string())));
            headers.extend(limit_headers(decision, response));
            Some(Answer {
                status: response.status,
                headers,
                body: response.body.clone(),
                details: format!("weir_denied:{rule}"),
                grpc_status: RESOURCE_EXHAUSTED,
            })
        }
        Kind::Failed => Some(Answer {
            status: 503,
            headers: vec![("content-type", "application/json".to_owned())],
            body: UNAVAILABLE.to_owned(),
            details: format!("weir_failed:{rule}"),
            grpc_status: GRPC_UNAVAILABLE,
        }),
    }
}

/// The headers that tell a client what is left, on allowed and denied responses.
pub fn limit_headers(decision: &Decision, response: &Response) -> Vec<(&'static str, String)> {
    match decision.quota.filter(|_| response.ratelimit_headers) {
        Some(quota) => vec![
            ("ratelimit-limit", quota.limit.to_string()),
            ("ratelimit-remaining", quota.remaining.to_string()),
            ("ratelimit-reset", seconds(quota.reset_ms).to_string()),
        ],
        None => Vec::new(),
    }
}

/// The filter state that access logs show: names and values.
pub fn filter_state<'a>(decision: &'a Decision, rules: &'a Rules) -> impl Iterator<Item = (&'static str, &'a str)> {
    let verdict = match decision.kind {
        Kind::Allowed if decision.shadow_denied => "shadow_denied",
        Kind::Allowed => "allowed",
        Kind::Exempt => "exempt",
        Kind::Blocked { .. } => "blocked",
        Kind::Denied { .. } => "denied",
        Kind::Failed => "error",
    };
    let source = decision.source.map(|source| match source {
        Source::Redis => "redis",
        Source::Local => "local",
    });
    let rule = decision.rule.and_then(|rule| rules.get(rule)).map(|rule| rule.name.as_str());
    let values = [
        ("weir_verdict", Some(verdict)),
        ("weir_rule", rule),
        ("weir_subject", decision.subject.as_deref()),
        ("weir_source", source),
    ];
    values.into_iter().filter_map(|(name, value)| Some((name, value?)))
}

fn rule_name<'a>(decision: &Decision, rules: &'a Rules) -> &'a str {
    decision.rule.and_then(|rule| rules.get(rule)).map_or("", |rule| rule.name.as_str())
}

/// Waits round up.
fn seconds(ms: u64) -> u64 {
    ms.div_ceil(1000)
}

#[cfg(test)]
mod tests;
