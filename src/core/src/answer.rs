//! From a decision to what the client and the access log see.

use crate::config::{Body, HeaderFamily, Response};
use crate::flow::{Decision, Kind, Quota, Source};
use crate::rules::Rules;

/// The body of an answer when the store failed and the rule says `deny`.
const UNAVAILABLE: &str = r#"{"message":"Service unavailable"}"#;

/// The body of an answer to a blocked request.
const BLOCKED: &str = r#"{"message":"Request blocked"}"#;

/// gRPC status codes, for clients that speak it.
const PERMISSION_DENIED: i32 = 7;
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

/// The answer that a decision gives; `None` where the request goes on. `random` is drawn for it, and settles the jitter.
pub fn answer(decision: &Decision, rules: &Rules, random: u64) -> Option<Answer> {
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
            let response = response(decision, rules)?;
            let jitter_ms = response.jitter_ms.checked_add(1).and_then(|most| random.checked_rem(most)).unwrap_or(0);
            let retry_s = retry_ms.map(|ms| seconds(ms.saturating_add(jitter_ms)).max(1));
            let mut headers = vec![("content-type", response.content_type.clone())];
            headers.extend(retry_s.map(|seconds| ("retry-after", seconds.to_string())));
            headers.extend(limit_headers(decision, rules));
            Some(Answer {
                status: response.status,
                headers,
                body: body(response, rule, decision.quota.map(|quota| quota.limit.burst()), retry_s),
                details: format!("weir_denied:{rule}"),
                grpc_status: response.grpc_status as i32,
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

fn response<'a>(decision: &Decision, rules: &'a Rules) -> Option<&'a Response> {
    decision.rule.and_then(|rule| rules.get(rule)).map(|rule| &*rule.response)
}

/// The body of a denied request's answer. What there is no number for is `null`, which JSON bodies can hold.
fn body(response: &Response, rule: &str, limit: Option<u64>, retry_s: Option<u64>) -> String {
    let number = |number: Option<u64>| number.map_or("null".to_owned(), |number| number.to_string());
    match &response.body {
        // The type, its title and its member are those that the IETF's draft registers.
        Body::Problem => format!(
            "{{\"type\":\"https://iana.org/assignments/http-problem-types#quota-exceeded\",\
             \"title\":\"Request cannot be satisfied as assigned quota has been exceeded\",\
             \"status\":{},\"violated-policies\":[\"{rule}\"]}}",
            response.status
        ),
        Body::Text(text) if text.contains('{') => {
            text.replace("{rule}", rule).replace("{limit}", &number(limit)).replace("{retry_after}", &number(retry_s))
        }
        Body::Text(text) => text.clone(),
    }
}

/// The headers that tell a client what is left, on allowed and denied responses, as the binding rule has them.
pub fn limit_headers(decision: &Decision, rules: &Rules) -> Vec<(&'static str, String)> {
    let (Some(quota), Some(response)) = (decision.quota, response(decision, rules)) else { return Vec::new() };
    let mut headers = Vec::new();
    let most = quota.limit.burst();
    let numbers = || [most, quota.remaining, seconds(quota.reset_ms)].map(|number| number.to_string());
    for family in &response.headers {
        match family {
            HeaderFamily::RateLimit => {
                headers.extend(["ratelimit-limit", "ratelimit-remaining", "ratelimit-reset"].into_iter().zip(numbers()));
            }
            HeaderFamily::XRateLimit => {
                let names = ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset"];
                headers.extend(names.into_iter().zip(numbers()));
            }
            HeaderFamily::Structured => headers.extend(structured(rule_name(decision, rules), quota)),
        }
    }
    headers
}

/// Structured fields (RFC 9651) of draft-ietf-httpapi-ratelimit-headers-10. A rule's name needs no escapes. The quota is what
/// comes back in a window, so what is left of a greater burst is told as that much: whoever plans by it stays within the limit.
fn structured(rule: &str, quota: Quota) -> [(&'static str, String); 2] {
    let Quota { limit, remaining, reset_ms } = quota;
    // Windows are told in whole seconds: of shorter ones, what those grant that fit into one.
    let windows = 1000_u64.checked_div(limit.window_ms()).unwrap_or(0).max(1);
    // The greatest integer that a structured field holds.
    let count = limit.count().saturating_mul(windows).min(999_999_999_999_999);
    let (window, reset) = (seconds(limit.window_ms()), seconds(reset_ms).min(999_999_999_999_999));
    let left = remaining.min(count);
    [
        ("ratelimit-policy", format!("\"{rule}\";q={count};w={window}")),
        ("ratelimit", format!("\"{rule}\";r={left};t={reset}")),
    ]
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
        Source::DenialCache => "denial_cache",
        Source::Lease => "lease",
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
