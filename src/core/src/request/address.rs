//! Client addresses.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The addresses that begin with the same bits: a whole address where the prefix is as long as that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    /// The first of them.
    first: IpAddr,
    prefix: u8,
}

impl Network {
    /// The network of an address; `prefix` is at most 32 or 128, what is beyond counts as that.
    pub fn of(address: IpAddr, prefix: u8) -> Network {
        let kept = |bits: u32| bits.saturating_sub(u32::from(prefix));
        match address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(kept(32)).unwrap_or(0);
                Network { first: Ipv4Addr::from_bits(address.to_bits() & mask).into(), prefix: prefix.min(32) }
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(kept(128)).unwrap_or(0);
                Network { first: Ipv6Addr::from_bits(address.to_bits() & mask).into(), prefix: prefix.min(128) }
            }
        }
    }

    /// Reads `198.51.100.0/24`, `2001:db8::/32`, or an address alone. An IPv4 network in IPv6 clothes is the IPv4 network.
    ///
    /// # Errors
    /// Says what is wrong: no address, a prefix out of range, or bits behind the prefix.
    pub fn parse(text: &str) -> Result<Network, String> {
        let (address, prefix) = text.split_once('/').map_or((text, None), |(address, prefix)| (address, Some(prefix)));
        let Ok(given) = address.parse::<IpAddr>() else {
            return Err("an address or a network such as 198.51.100.0/24 or 2001:db8::/32 is wanted".to_owned());
        };
        let bits = if given.is_ipv4() { 32 } else { 128 };
        let digits = |text: &&str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let prefix = match prefix {
            None => bits,
            Some(text) => match Some(text).filter(digits).and_then(|text| text.parse::<u8>().ok()) {
                Some(prefix) if prefix <= bits => prefix,
                _ => return Err(format!("the prefix \"{text}\" isn't an integer from 0 to {bits}")),
            },
        };
        let network = Network::of(given, prefix);
        if network.first != given {
            return Err(format!("it has bits behind its prefix (did you mean \"{network}\"?)"));
        }
        Ok(match (given.to_canonical(), prefix.checked_sub(96)) {
            (IpAddr::V4(address), Some(prefix)) if bits == 128 => Network::of(address.into(), prefix),
            _ => network,
        })
    }

    /// Whether an address is one of them.
    pub fn contains(&self, address: IpAddr) -> bool {
        address.is_ipv4() == self.first.is_ipv4() && Network::of(address, self.prefix).first == self.first
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.first, self.prefix) {
            (IpAddr::V4(address), 32) => write!(f, "{address}"),
            (IpAddr::V6(address), 128) => write!(f, "{address}"),
            (address, prefix) => write!(f, "{address}/{prefix}"),
        }
    }
}

/// The address as hosts and proxies write it: with or without a port, brackets or a zone. An IPv4 address in IPv6 clothes
/// (`::ffff:192.0.2.1`, in any spelling) is the IPv4 address. `None` where it isn't an address.
pub fn address(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?.trim();
    Some(parse(text)?.to_canonical())
}

/// The `hops`-th entry from the right of a header such as `x-forwarded-for`, counted from 1.
pub fn forwarded(header: &[u8], hops: usize) -> Option<IpAddr> {
    address(header.rsplit(|b| *b == b',').nth(hops.checked_sub(1)?)?)
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
    use proptest::prelude::*;

    fn text(text: &str) -> String {
        let prefix = |address: &IpAddr| if address.is_ipv4() { 32 } else { 64 };
        address(text.as_bytes()).map_or("none".to_owned(), |address| Network::of(address, prefix(&address)).to_string())
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
        assert_eq!(address(b"\xff\xfe"), None);
    }

    #[test]
    fn entries_are_counted_from_the_right() {
        let table = [
            ("203.0.113.128, 203.0.113.10", 1, Some("203.0.113.10")),
            ("203.0.113.128, 203.0.113.10", 2, Some("203.0.113.128")),
            ("203.0.113.128, 203.0.113.10", 3, None),
            ("203.0.113.128:80,[2001:db8::1]:443", 1, Some("2001:db8::1")),
            ("203.0.113.128,", 1, None),
            ("203.0.113.128, unknown", 1, None),
            ("", 1, None),
            ("203.0.113.128", 0, None),
        ];
        for (header, hops, wanted) in table {
            let wanted = wanted.map(|text| text.parse::<IpAddr>().unwrap());
            assert_eq!(forwarded(header.as_bytes(), hops), wanted, "{header} {hops}");
        }
    }

    #[test]
    fn networks_are_read_and_hold_their_addresses() {
        let table = [
            ("198.51.100.0/24", "198.51.100.0/24", "198.51.100.255", "198.51.101.0"),
            ("198.51.100.7", "198.51.100.7", "198.51.100.7", "198.51.100.8"),
            ("0.0.0.0/0", "0.0.0.0/0", "203.0.113.7", "2001:db8::1"),
            ("2001:DB8::/32", "2001:db8::/32", "2001:db8:ffff::1", "2001:db9::1"),
            ("::/0", "::/0", "2001:db8::1", "203.0.113.7"),
            ("::ffff:198.51.100.0/120", "198.51.100.0/24", "198.51.100.9", "::1"),
        ];
        for (given, shown, inside, outside) in table {
            let network = Network::parse(given).unwrap();
            assert_eq!(network.to_string(), shown);
            assert!(network.contains(inside.parse().unwrap()), "{given} {inside}");
            assert!(!network.contains(outside.parse().unwrap()), "{given} {outside}");
        }
        let bad = [
            ("localhost", "an address or a network such as 198.51.100.0/24 or 2001:db8::/32 is wanted"),
            ("198.51.100.0/33", "the prefix \"33\" isn't an integer from 0 to 32"),
            ("198.51.100.0/+8", "the prefix \"+8\" isn't an integer from 0 to 32"),
            ("2001:db8::/", "the prefix \"\" isn't an integer from 0 to 128"),
            ("198.51.100.7/24", "it has bits behind its prefix (did you mean \"198.51.100.0/24\"?)"),
        ];
        for (given, wanted) in bad {
            assert_eq!(Network::parse(given).unwrap_err(), wanted, "{given}");
        }
    }

    proptest! {
        #[test]
        fn every_spelling_of_an_address_is_that_address(bits in any::<u128>(), v4 in any::<u32>()) {
            let v6 = Ipv6Addr::from_bits(bits);
            let long = v6.segments().map(|segment| format!("{segment:04X}")).join(":");
            let mut all = vec![v6.to_string(), long.clone(), format!("[{v6}]:1"), format!("[{long}]"), format!("{v6}%e0")];
            all.retain(|_| v6.to_canonical().is_ipv6());
            for spelling in all {
                prop_assert_eq!(address(spelling.as_bytes()), Some(IpAddr::V6(v6)), "{}", spelling);
            }
            let v4 = Ipv4Addr::from_bits(v4);
            for spelling in [v4.to_string(), format!("{v4}:65535"), format!("::ffff:{v4}"), format!("[{}]:8", v4.to_ipv6_mapped())] {
                prop_assert_eq!(address(spelling.as_bytes()), Some(IpAddr::V4(v4)), "{}", spelling);
            }
        }
    }
}
