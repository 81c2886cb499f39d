//! The field `response`.

use super::Response;
use super::reader::{Item, Reader};

/// The most bytes of a body.
const MAX_BODY: usize = 64 * 1024;

pub(super) fn response(r: &mut Reader, item: &Item<'_>) -> Option<Response> {
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
