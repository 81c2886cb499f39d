//! The field `response`, of the whole and of a rule.

use super::reader::{Item, Reader};
use super::{Body, GrpcStatus, HeaderFamily, Response};

/// The most bytes of a body.
const MAX_BODY: usize = 64 * 1024;
/// The most that is added to `Retry-After`, in milliseconds.
const MAX_JITTER_MS: u64 = 3_600_000;

/// The media type of problem documents.
const PROBLEM_JSON: &str = "application/problem+json";

/// Reads an answer; what it doesn't say is as in `usual`.
pub(super) fn response(r: &mut Reader, item: &Item<'_>, usual: &Response) -> Option<Response> {
    let o = r.object(item, &["status", "body", "content_type", "headers", "grpc_status", "retry_after_jitter"])?;
    let status = o.get("status").map_or(Some(usual.status.into()), |item| r.integer(&item, 400..=599));
    let body = o.get("body").map_or_else(|| Some(usual.body.clone()), |item| body(r, &item));
    let usual_type = match (&body, o.get("body")) {
        (Some(Body::Problem), Some(_)) => PROBLEM_JSON,
        (Some(Body::Text(_)), Some(_)) if usual.content_type == PROBLEM_JSON => "application/json",
        _ => usual.content_type.as_str(),
    };
    let content_type = o.get("content_type").map_or_else(|| Some(usual_type.to_owned()), |item| content_type(r, &item));
    let headers = o.get("headers").map_or_else(|| Some(usual.headers.clone()), |item| header_families(r, &item));
    let statuses = [("RESOURCE_EXHAUSTED", GrpcStatus::ResourceExhausted), ("UNAVAILABLE", GrpcStatus::Unavailable)];
    let grpc_status = o.get("grpc_status").map_or(Some(usual.grpc_status), |item| r.choice(&item, &statuses));
    let jitter_ms = o.get("retry_after_jitter").map_or(Some(usual.jitter_ms), |item| r.duration(&item, 0, MAX_JITTER_MS));
    Some(Response {
        status: u16::try_from(status?).ok()?,
        body: body?,
        content_type: content_type?,
        headers: headers?,
        grpc_status: grpc_status?,
        jitter_ms: jitter_ms?,
    })
}

fn body(r: &mut Reader, item: &Item<'_>) -> Option<Body> {
    let text = r.text(item, "the body of a denied request's answer, or problem")?;
    if text.len() > MAX_BODY {
        return r.fault(item, format!("{} bytes long; allowed: {MAX_BODY}", text.len()));
    }
    Some(if text == "problem" { Body::Problem } else { Body::Text(text.to_owned()) })
}

fn content_type(r: &mut Reader, item: &Item<'_>) -> Option<String> {
    let text = r.text(item, "a media type such as application/json")?;
    // It becomes a header's value as it is.
    if text.is_empty() || !text.bytes().all(|b| matches!(b, b' '..=b'~')) {
        return r.fault(item, "a media type of visible ASCII is wanted, such as application/json");
    }
    Some(text.to_owned())
}

fn header_families(r: &mut Reader, item: &Item<'_>) -> Option<Vec<HeaderFamily>> {
    const FAMILIES: [(&str, HeaderFamily); 3] = [
        ("ratelimit", HeaderFamily::RateLimit),
        ("x-ratelimit", HeaderFamily::XRateLimit),
        ("structured", HeaderFamily::Structured),
    ];
    if item.value.as_array().is_some_and(Vec::is_empty) {
        return Some(Vec::new());
    }
    let items = r.list(item, FAMILIES.len(), "ratelimit, x-ratelimit, structured, or [] for none")?;
    let mut families = Vec::new();
    for item in &items {
        let family = r.choice(item, &FAMILIES);
        if family.is_some_and(|family| families.contains(&Some(family))) {
            r.fault::<()>(item, "it is there already");
        }
        families.push(family);
    }
    families.into_iter().collect()
}
