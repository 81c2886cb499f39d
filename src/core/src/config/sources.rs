//! Sources of values: the field `key`, and those of costs and tiers.

use super::fault::did_you_mean;
use super::reader::{Item, Reader};
use crate::rules::{KeyPart, Source};

/// The most key parts of a rule, and the most alternatives of a part.
pub const MAX_KEY_PARTS: usize = 8;

/// The longest name or text in a source, and the longest expression.
const MAX_TEXT: usize = 256;
const MAX_EXPRESSION: usize = 4096;

/// The kinds of sources, and how they are written.
const KINDS: [(&str, &str); 16] = [
    ("header", "header:NAME"),
    ("cookie", "cookie:NAME"),
    ("query", "query:NAME"),
    ("ip", "ip"),
    ("path", "path"),
    ("path", "path:N"),
    ("method", "method"),
    ("host", "host"),
    ("route", "route"),
    ("virtual_host", "virtual_host"),
    ("cluster", "cluster"),
    ("jwt", "jwt:CLAIM"),
    ("metadata", "metadata:FILTER/KEY"),
    ("filter_state", "filter_state:KEY"),
    ("property", "property:PATH/OF/IT"),
    ("cel", "cel:EXPRESSION"),
];

pub(super) fn key(r: &mut Reader, item: &Item<'_>) -> Option<Vec<KeyPart>> {
    let items = r.list(item, MAX_KEY_PARTS, "key parts, such as [\"header:x-api-key | ip\"]")?;
    let parts: Vec<_> = items.iter().map(|item| key_part(r, item)).collect();
    parts.into_iter().collect()
}

/// A source, or alternatives with `|`.
pub(super) fn key_part(r: &mut Reader, item: &Item<'_>) -> Option<KeyPart> {
    let text = r.text(item, "a source such as header:x-api-key, or alternatives with |")?;
    let sources: Vec<_> = alternatives(text).into_iter().map(|text| source(r, item, text.trim())).collect();
    if sources.len() > MAX_KEY_PARTS {
        return r.fault(item, format!("{} alternatives; allowed: {MAX_KEY_PARTS}", sources.len()));
    }
    Some(KeyPart::new(sources.into_iter().collect::<Option<Vec<_>>>()?))
}

/// A text's pieces between single `|`s. In a `cel:` piece `||` is an operator, and what stands in quotes is text.
fn alternatives(text: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = text;
    loop {
        let end = end_of_alternative(rest);
        pieces.push(rest.get(..end).unwrap_or_default());
        match rest.get(end.saturating_add(1)..) {
            Some(more) if end < rest.len() => rest = more,
            _ => return pieces,
        }
    }
}

fn end_of_alternative(text: &str) -> usize {
    if !text.trim_start().starts_with("cel:") {
        return text.find('|').unwrap_or(text.len());
    }
    let (mut quote, mut bytes) = (None, text.bytes().enumerate().peekable());
    while let Some((at, byte)) = bytes.next() {
        match (quote, byte) {
            (Some(_), b'\\') => drop(bytes.next()),
            (Some(open), _) if open == byte => quote = None,
            (None, b'"' | b'\'') => quote = Some(byte),
            (None, b'|') if bytes.next_if(|(_, next)| *next == b'|').is_none() => return at,
            _ => {}
        }
    }
    text.len()
}

fn source(r: &mut Reader, item: &Item<'_>, text: &str) -> Option<Source> {
    let (kind, rest) = text.split_once(':').map_or((text, None), |(kind, rest)| (kind, Some(rest)));
    let named = |what: &str| rest.filter(|rest| (1..=MAX_TEXT).contains(&rest.len())).ok_or_else(|| what.to_owned());
    // An attribute's path is joined with NUL for the host, so none may be in it.
    let parts = |what: &str, least: usize| {
        let parts: Vec<String> = named(what)?.split('/').map(str::to_owned).collect();
        let good = parts.len() >= least && parts.iter().all(|part| !part.is_empty() && !part.contains('\0'));
        if good { Ok(parts) } else { Err(what.to_owned()) }
    };
    let read = match (kind, rest) {
        ("header", _) => match named("header: wants a header's name, such as header:x-api-key") {
            Ok(name) if name.bytes().all(is_token) => Ok(Source::Header(name.to_ascii_lowercase())),
            _ => Err("header: wants a header's name, such as header:x-api-key".to_owned()),
        },
        ("cookie", _) => match named("") {
            Ok(name) if name.bytes().all(is_token) => Ok(Source::Cookie(name.to_owned())),
            _ => Err("cookie: wants a cookie's name, such as cookie:sid".to_owned()),
        },
        ("query", _) => {
            named("query: wants a parameter's name, such as query:api_key").map(|name| Source::Query(name.to_owned()))
        }
        ("jwt", _) => named("jwt: wants a claim's name, such as jwt:sub").map(|name| Source::Jwt(name.to_owned())),
        ("const", _) => {
            named("const: wants a text of 1 to 256 bytes, such as const:all").map(|text| Source::Const(text.to_owned()))
        }
        ("metadata", _) => {
            parts("metadata: wants a filter's name and a key, such as metadata:envoy.filters.http.jwt_authn/payload/sub", 2)
                .map(Source::Metadata)
        }
        ("filter_state", _) => match named("") {
            Ok(key) if !key.contains('\0') => Ok(Source::Property(format!("filter_state\0{key}"))),
            _ => Err("filter_state: wants a key, such as filter_state:user.id".to_owned()),
        },
        ("property", _) => {
            parts("property: wants an attribute's path, such as property:connection/requested_server_name", 1)
                .map(|parts| Source::Property(parts.join("\0")))
        }
        ("cel", Some(text)) if (1..=MAX_EXPRESSION).contains(&text.trim().len()) => {
            r.expression(item, text.trim());
            Ok(Source::Cel(text.trim().to_owned()))
        }
        ("cel", _) => {
            Err(format!("cel: wants an expression of 1 to {MAX_EXPRESSION} bytes, such as cel:request.headers['x-a']"))
        }
        ("path", Some(place)) => match place.parse::<usize>() {
            Ok(place @ 1..=100) => Ok(Source::PathSegment(place)),
            _ => Err("path: wants a segment's place from 1 to 100, such as path:1".to_owned()),
        },
        ("ip", None) => Ok(Source::Ip),
        ("path", None) => Ok(Source::Path),
        ("method", None) => Ok(Source::Method),
        ("host", None) => Ok(Source::Host),
        ("route", None) => Ok(Source::Property("xds\0route_name".to_owned())),
        ("virtual_host", None) => Ok(Source::Property("xds\0virtual_host_name".to_owned())),
        ("cluster", None) => Ok(Source::Property("xds\0cluster_name".to_owned())),
        (kind, _) => {
            let names: Vec<&str> = KINDS.iter().map(|(name, _)| *name).chain(["const"]).collect();
            let written: Vec<&str> = KINDS.iter().map(|(_, written)| *written).chain(["const:TEXT"]).collect();
            let hint = did_you_mean(kind, &names);
            Err(format!("the source \"{text}\" isn't known{hint}; allowed: {}", written.join(", ")))
        }
    };
    read.map_or_else(|message| r.fault(item, message), Some)
}

/// The predicate of a rule.
pub(super) fn predicate(r: &mut Reader, item: &Item<'_>) -> Option<String> {
    let wanted = format!("a CEL expression of 1 to {MAX_EXPRESSION} bytes is wanted, such as request.size < 1000");
    let text = r.text(item, &wanted)?.trim();
    if !(1..=MAX_EXPRESSION).contains(&text.len()) {
        return r.fault(item, wanted);
    }
    r.expression(item, text);
    Some(text.to_owned())
}

/// A header's name in lower case.
pub(super) fn header_name(r: &mut Reader, item: &Item<'_>) -> Option<String> {
    let wanted = "a header's name is wanted, such as x-plan";
    let name = r.text(item, wanted)?;
    // Envoy keeps `host` as `:authority`; conditions on the pseudo-headers have fields of their own.
    if !(1..=MAX_TEXT).contains(&name.len()) || !name.bytes().all(is_token) {
        return r.fault(item, wanted);
    }
    Some(name.to_ascii_lowercase())
}

/// A character of an RFC 9110 token, of which header names and methods are made.
pub(super) fn is_token(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b)
}
