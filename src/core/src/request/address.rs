//! Client addresses.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// A client counts by its /64 in IPv6, where one customer has 2^64 addresses, and by its whole address in IPv4.
const IPV6_PREFIX: u32 = 64;

/// The network that a client address counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// An IPv4 address.
    V4(Ipv4Addr),
    /// The first address of an IPv6 /64.
    V6(Ipv6Addr),
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Network::V4(address) => write!(f, "{address}"),
            Network::V6(address) => write!(f, "{address}/{IPV6_PREFIX}"),
        }
    }
}

/// The network of an address as hosts and proxies write it: with or without a port, brackets or a zone. An IPv4 address in
/// IPv6 clothes (`::ffff:192.0.2.1`, in any spelling) is the IPv4 address. `None` where it isn't an address.
pub fn network(text: &[u8]) -> Option<Network> {
    let text = std::str::from_utf8(text).ok()?.trim();
    match parse(text)?.to_canonical() {
        IpAddr::V4(address) => Some(Network::V4(address)),
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128_u32.saturating_sub(IPV6_PREFIX)).unwrap_or(0);
            Some(Network::V6(Ipv6Addr::from_bits(address.to_bits() & mask)))
        }
    }
}

fn parse(text: &str) -> Option<IpAddr> {
    if let Ok(address) = text.parse::<IpAddr>() {
        return Some(address);
    }
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Some(address.ip());
    }
    // A zone names an interface of the peer's machine; `[fe80::1%eth0]:443`.
    let bracketed = text.strip_prefix('[').and_then(|rest| rest.split_once(']')).map(|(inside, _)| inside);
    let inside = bracketed.unwrap_or(text);
    let address = inside.split_once('%').map_or(inside, |(address, _)| address);
    address.parse::<Ipv6Addr>().ok().map(IpAddr::V6)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(address: &str) -> String {
        network(address.as_bytes()).map_or("none".to_owned(), |network| network.to_string())
    }

    #[test]
    fn ports_brackets_zones_and_spellings_make_no_difference() {
        for same in ["203.0.113.7", "203.0.113.7:51234", "::ffff:203.0.113.7", "[::ffff:cb00:7107]:443", " 203.0.113.7"] {
            assert_eq!(text(same), "203.0.113.7", "{same}");
        }
        for same in
            ["2001:db8::a:b", "2001:0DB8:0:0:1::1", "[2001:db8:0:0:ffff:0:0:2]:443", "2001:db8::1%eth0", "[2001:db8::1%1]:9"]
        {
            assert_eq!(text(same), "2001:db8::/64", "{same}");
        }
        assert_eq!(text("2001:db8:0:1::1"), "2001:db8:0:1::/64");
    }

    #[test]
    fn what_is_no_address_is_none() {
        for bad in ["", "unix:/tmp/x", "203.0.113.256", "localhost", "1.2.3.4.5", "@", "[", "[]", "%"] {
            assert_eq!(text(bad), "none", "{bad}");
        }
        assert_eq!(network(b"\xff\xfe"), None);
    }
}
