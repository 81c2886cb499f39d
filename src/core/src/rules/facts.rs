//! What rules ask of a request, each thing at most once.

use crate::request::{self, Headers, Request};
use std::borrow::Cow;
use std::cell::OnceCell;
use std::net::IpAddr;

/// Where a client's address comes from, and how much of it counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientIp {
    /// The header that names it, where it isn't Envoy who says.
    pub header: Option<ForwardedBy>,
    /// How many bits of an IPv4 address make a client, 0..=32.
    pub ipv4_prefix: u8,
    /// How many bits of an IPv6 address make a client, 0..=128.
    pub ipv6_prefix: u8,
}

/// A header in which each proxy notes whom it got the request from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardedBy {
    /// In lower case.
    pub name: String,
    /// The client is the entry at this place from the right, from 1.
    pub trusted_hops: usize,
}

impl Default for ClientIp {
    fn default() -> ClientIp {
        // One customer has at least a /64 in IPv6, with 2^64 addresses.
        ClientIp { header: None, ipv4_prefix: 32, ipv6_prefix: 64 }
    }
}

impl ClientIp {
    /// How many bits of this address make a client.
    pub(super) fn prefix(&self, address: IpAddr) -> u8 {
        if address.is_ipv4() { self.ipv4_prefix } else { self.ipv6_prefix }
    }
}

/// A request's values.
pub(super) struct Facts<'r, R> {
    pub(super) request: &'r R,
    pub(super) client_ip: &'r ClientIp,
    headers: OnceCell<Headers>,
    /// Headers that were asked for by their names.
    named: [OnceCell<Named>; BY_NAME],
    path: OnceCell<Vec<u8>>,
    host: OnceCell<Vec<u8>>,
    address: OnceCell<Option<IpAddr>>,
}

/// How many headers are asked for by name. For more, all of them at once cost a host less.
const BY_NAME: usize = 3;

/// A header's name and its value.
type Named = (String, Option<Vec<u8>>);

impl<'r, R: Request> Facts<'r, R> {
    pub(super) fn new(request: &'r R, client_ip: &'r ClientIp) -> Facts<'r, R> {
        Facts {
            request,
            client_ip,
            headers: OnceCell::new(),
            named: Default::default(),
            path: OnceCell::new(),
            host: OnceCell::new(),
            address: OnceCell::new(),
        }
    }

    pub(super) fn headers(&self) -> &Headers {
        self.headers.get_or_init(|| self.request.headers())
    }

    /// The value of the header of that lower-case name, several lines joined with `,`.
    pub(super) fn header(&self, name: &str) -> Option<Cow<'_, [u8]>> {
        if self.headers.get().is_none() {
            for place in &self.named {
                let (named, value) = place.get_or_init(|| (name.to_owned(), self.request.header(name)));
                if named == name {
                    return value.as_deref().map(Cow::Borrowed);
                }
            }
        }
        self.headers().get(name)
    }

    /// The request target, with its query; empty where the request has none.
    pub(super) fn target(&self) -> Cow<'_, [u8]> {
        self.header(":path").unwrap_or_default()
    }

    /// The normalised path; empty where the request has none.
    pub(super) fn path(&self) -> &[u8] {
        self.path.get_or_init(|| request::path(&self.target()))
    }

    pub(super) fn method(&self) -> Cow<'_, [u8]> {
        self.header(":method").unwrap_or_default()
    }

    /// The host in lower case without its port.
    pub(super) fn host(&self) -> &[u8] {
        self.host.get_or_init(|| request::host(&self.header(":authority").unwrap_or_default()).into_owned())
    }

    /// The client's whole address.
    pub(super) fn address(&self) -> Option<IpAddr> {
        *self.address.get_or_init(|| {
            let named = self.client_ip.header.as_ref();
            let forwarded = named.and_then(|by| request::forwarded(&self.header(&by.name)?, by.trusted_hops));
            forwarded.or_else(|| request::address(&self.property("source\0address")?))
        })
    }

    /// An attribute of Envoy's, its path joined with NUL; `None` also for what can't be given as bytes.
    pub(super) fn property(&self, path: &str) -> Option<Vec<u8>> {
        self.request.property(path).ok().flatten()
    }
}
