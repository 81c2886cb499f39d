//! Which requests something is for: the fields `match`, `exempt` and `block`, and `client_ip`, which they depend on.

use super::reader::{Item, Object, Reader};
use super::sources::{header_name, is_token};
use crate::request::Network;
use crate::rules::{ClientIp, ForwardedBy, HeaderMatch, HeaderTest, HostMatch, Match, PathMatch, Pattern, Template};

/// The most items of a list of conditions.
const MAX_ITEMS: usize = 1000;
/// The most conditions on headers of one match.
const MAX_HEADERS: usize = 16;
/// The greatest number of trusted hops.
const MAX_HOPS: u64 = 100;

/// The fields of a match that is inside of another.
const FIELDS: [&str; 5] = ["hosts", "path", "methods", "headers", "ip"];

pub(super) fn client_ip(r: &mut Reader, item: &Item<'_>) -> Option<ClientIp> {
    let usual = ClientIp::default();
    let o = r.object(item, &["from", "header", "trusted_hops", "ipv6_prefix", "ipv4_prefix"])?;
    let by_header = o.get("from").map_or(Some(false), |item| r.choice(&item, &[("envoy", false), ("header", true)]));
    let name = o.get("header").map_or_else(|| Some("x-forwarded-for".to_owned()), |item| header_name(r, &item));
    let trusted_hops = o.get("trusted_hops").map_or(Some(1), |item| r.integer(&item, 1..=MAX_HOPS));
    let ipv6_prefix = o.get("ipv6_prefix").map_or(Some(usual.ipv6_prefix.into()), |item| r.integer(&item, 1..=128));
    let ipv4_prefix = o.get("ipv4_prefix").map_or(Some(usual.ipv4_prefix.into()), |item| r.integer(&item, 1..=32));
    if by_header == Some(false) {
        for item in ["header", "trusted_hops"].into_iter().filter_map(|field| o.get(field)) {
            r.fault::<()>(&item, "it goes with from: header");
        }
    }
    let by = ForwardedBy { name: name?, trusted_hops: usize::try_from(trusted_hops?).ok()? };
    Some(ClientIp {
        header: by_header?.then_some(by),
        ipv4_prefix: u8::try_from(ipv4_prefix?).ok()?,
        ipv6_prefix: u8::try_from(ipv6_prefix?).ok()?,
    })
}

pub(super) fn exempt(r: &mut Reader, item: &Item<'_>) -> Option<Vec<Match>> {
    let items = r.list(item, MAX_ITEMS, "conditions, such as [{\"path\":{\"prefix\":\"/healthz\"}}]")?;
    items.iter().map(|item| some_match(r, item, &[])).collect::<Vec<_>>().into_iter().collect()
}

pub(super) fn block(r: &mut Reader, item: &Item<'_>) -> Option<Vec<(Match, u16)>> {
    let items = r.list(item, MAX_ITEMS, "conditions, such as [{\"ip\":[\"203.0.113.0/24\"]}]")?;
    let blocked = |item: &Item<'_>| {
        let matches = some_match(r, item, &["status"]);
        let status = item.field("status").map_or(Some(403), |item| r.integer(&item, 400..=599));
        Some((matches?, u16::try_from(status?).ok()?))
    };
    items.iter().map(blocked).collect::<Vec<_>>().into_iter().collect()
}

/// A match with at least one condition: without one, it would be for every request.
fn some_match(r: &mut Reader, item: &Item<'_>, beside: &[&str]) -> Option<Match> {
    let fields = [&FIELDS[..], &["not"], beside].concat();
    let o = r.object(item, &fields)?;
    if ![&FIELDS[..], &["not"]].concat().iter().any(|field| o.get(field).is_some()) {
        return r.fault(item, format!("at least one condition is wanted: {}, not", FIELDS.join(", ")));
    }
    conditions(r, &o)
}

pub(super) fn matches(r: &mut Reader, item: &Item<'_>) -> Option<Match> {
    let o = r.object(item, &[&FIELDS[..], &["not"]].concat())?;
    conditions(r, &o)
}

fn conditions(r: &mut Reader, o: &Object<'_>) -> Option<Match> {
    let path = o.get("path").map(|item| path_match(r, &item));
    let methods = list(r, o, "methods", MAX_ITEMS, "methods, such as [\"GET\"]", method);
    let hosts = list(r, o, "hosts", MAX_ITEMS, "hosts, such as [\"api.example.com\"]", host);
    let headers =
        list(r, o, "headers", MAX_HEADERS, "conditions, such as [{\"name\":\"x-plan\",\"exact\":\"gold\"}]", header);
    let ip = list(r, o, "ip", MAX_ITEMS, "networks, such as [\"198.51.100.0/24\"]", network);
    let not = o.get("not").map(|item| {
        let inner = r.object(&item, &FIELDS)?;
        if !FIELDS.iter().any(|field| inner.get(field).is_some()) {
            return r.fault(&item, format!("at least one condition is wanted: {}", FIELDS.join(", ")));
        }
        conditions(r, &inner)
    });
    Some(Match {
        path: path.map_or(Some(None), |path| path.map(Some))?,
        methods: methods?,
        hosts: hosts?,
        headers: headers?,
        ip: ip?,
        not: not.map_or(Some(None), |not| not.map(|not| Some(Box::new(not))))?,
    })
}

/// A field's list, empty where it isn't given.
fn list<T>(
    r: &mut Reader,
    o: &Object<'_>,
    field: &str,
    most: usize,
    wanted: &str,
    read: impl Fn(&mut Reader, &Item<'_>) -> Option<T>,
) -> Option<Vec<T>> {
    let Some(item) = o.get(field) else { return Some(Vec::new()) };
    let items = r.list(&item, most, wanted)?;
    items.iter().map(|item| read(r, item)).collect::<Vec<_>>().into_iter().collect()
}

fn path_match(r: &mut Reader, item: &Item<'_>) -> Option<PathMatch> {
    let o = r.object(item, &["exact", "prefix", "regex", "template"])?;
    match (o.get("exact"), o.get("prefix"), o.get("regex"), o.get("template")) {
        (Some(item), None, None, None) => path(r, &item).map(PathMatch::exact),
        (None, Some(item), None, None) => path(r, &item).map(PathMatch::prefix),
        (None, None, Some(item), None) => pattern(r, &item).map(PathMatch::Regex),
        (None, None, None, Some(item)) => {
            let text = path(r, &item)?;
            Template::parse(text)
                .map_or_else(|message| r.fault(&item, message), |template| Some(PathMatch::Template(template)))
        }
        _ => r.fault(item, "one of exact, prefix, regex and template is wanted"),
    }
}

fn pattern(r: &mut Reader, item: &Item<'_>) -> Option<Pattern> {
    let text = r.text(item, "a regular expression")?;
    Pattern::new(text).map_or_else(|message| r.fault(item, message), Some)
}

fn network(r: &mut Reader, item: &Item<'_>) -> Option<Network> {
    let text = r.text(item, "a network such as 198.51.100.0/24")?;
    Network::parse(text).map_or_else(|message| r.fault(item, message), Some)
}

fn header(r: &mut Reader, item: &Item<'_>) -> Option<HeaderMatch> {
    const TESTS: [&str; 5] = ["exact", "prefix", "suffix", "regex", "present"];
    let o = r.object(item, &[&["name"], &TESTS[..], &["invert"]].concat())?;
    let name = match o.get("name") {
        Some(item) => header_name(r, &item),
        None => r.missing(&o, "name", "a header's name is wanted, such as x-plan"),
    };
    let invert = o.get("invert").map_or(Some(false), |item| r.flag(&item));
    let given: Vec<_> = TESTS.into_iter().filter_map(|test| Some((test, o.get(test)?))).collect();
    let test = match given.as_slice() {
        [] => Some(HeaderTest::Present(true)),
        [("present", item)] => r.flag(item).map(HeaderTest::Present),
        [("regex", item)] => pattern(r, item).map(HeaderTest::Regex),
        [(test, item)] => {
            let text = r.text(item, "a header's value")?.to_owned();
            Some(match *test {
                "exact" => HeaderTest::Exact(text),
                "prefix" => HeaderTest::Prefix(text),
                _ => HeaderTest::Suffix(text),
            })
        }
        _ => r.fault(item, "at most one of exact, prefix, suffix, regex and present is wanted"),
    };
    Some(HeaderMatch { name: name?, test: test?, invert: invert? })
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

fn host(r: &mut Reader, item: &Item<'_>) -> Option<HostMatch> {
    let wanted = "a host name or address without a port is wanted, or *. and a domain";
    let text = r.text(item, wanted)?;
    let (name, below) = text.strip_prefix("*.").map_or((text, false), |domain| (domain, true));
    let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b':' | b'[' | b']');
    let normal = crate::request::host(name.as_bytes());
    let long = name.is_empty() || name.len() > 253 || name.starts_with('.');
    if long || !name.bytes().all(allowed) || normal.len() != name.len() {
        return r.fault(item, wanted);
    }
    let name = name.to_ascii_lowercase();
    Some(if below { HostMatch::Below(name) } else { HostMatch::Exact(name) })
}
