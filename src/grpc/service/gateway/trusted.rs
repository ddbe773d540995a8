//! The peers whose attributes of HTTP requests are trusted: gateways, by their addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

/// Networks of gateways.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TrustedGateways(Arc<[AddressRange]>);

/// An address with the number of its bits that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AddressRange {
    address: IpAddr,
    prefix: u32,
}

/// An item that is no network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected ADDRESS or ADDRESS/BITS, found `{0}`")]
pub struct InvalidGateway(String);

impl TrustedGateways {
    /// Parses addresses and networks, separated by commas. An empty list trusts no peer with an
    /// address.
    ///
    /// # Errors
    /// The first item that is no network.
    pub fn parse(text: &str) -> Result<Self, InvalidGateway> {
        let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
        let ranges = items
            .map(|item| AddressRange::parse(item).ok_or_else(|| InvalidGateway(item.to_owned())));
        ranges.collect::<Result<_, _>>().map(Self)
    }

    /// Returns `true` if a peer is trusted. One without an address is: access to a Unix socket is
    /// a matter of its permissions.
    pub fn include(&self, peer: Option<SocketAddr>) -> bool {
        peer.is_none_or(|peer| {
            let address = peer.ip().to_canonical();
            self.0.iter().any(|range| range.contains(address))
        })
    }
}

impl AddressRange {
    /// Returns `None` for a text that is no network.
    fn parse(item: &str) -> Option<Self> {
        let (address, prefix) = match item.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (item, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let most = if address.is_ipv4() { Ipv4Addr::BITS } else { Ipv6Addr::BITS };
        let prefix = prefix.map_or(Ok(most), str::parse).ok().filter(|prefix| *prefix <= most)?;
        // Peers are compared as IPv4 if they are, and so is a network of such addresses.
        let own = address.to_canonical();
        let mapped = if own == address { 0 } else { Ipv6Addr::BITS - Ipv4Addr::BITS };
        Some(Self { address: own, prefix: prefix.checked_sub(mapped)? })
    }

    fn contains(self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(address)) => {
                let differing = own.to_bits() ^ address.to_bits();
                let ignored = Ipv4Addr::BITS - self.prefix;
                differing.checked_shr(ignored).unwrap_or_default() == 0
            }
            (IpAddr::V6(own), IpAddr::V6(address)) => {
                let differing = own.to_bits() ^ address.to_bits();
                let ignored = Ipv6Addr::BITS - self.prefix;
                differing.checked_shr(ignored).unwrap_or_default() == 0
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_trusted_within_a_network() {
        let trusted = TrustedGateways::parse("127.0.0.0/8, ::1,10.1.2.3,2001:db8::/32").unwrap();
        for (peer, is_trusted) in [
            ("127.9.9.9:1", true),
            ("[::1]:1", true),
            ("[::ffff:127.0.0.1]:1", true),
            ("10.1.2.3:1", true),
            ("10.1.2.4:1", false),
            ("[2001:db8:1::5]:1", true),
            ("[2001:db9::5]:1", false),
            ("[::2]:1", false),
        ] {
            assert_eq!(trusted.include(Some(peer.parse().unwrap())), is_trusted, "{peer}");
        }
        assert!(trusted.include(None), "a Unix socket");
        let mapped = TrustedGateways::parse("::ffff:10.0.0.0/120,::ffff:10.9.9.9").unwrap();
        for (peer, is_trusted) in [
            ("10.0.0.255:1", true),
            ("[::ffff:10.0.0.7]:1", true),
            ("10.9.9.9:1", true),
            ("10.0.1.0:1", false),
        ] {
            assert_eq!(mapped.include(Some(peer.parse().unwrap())), is_trusted, "{peer}");
        }
        let all = TrustedGateways::parse("0.0.0.0/0").unwrap();
        assert!(all.include(Some("203.0.113.7:1".parse().unwrap())));
        let none = TrustedGateways::parse("").unwrap();
        assert!(!none.include(Some("127.0.0.1:1".parse().unwrap())));
    }

    #[test]
    fn what_is_no_network_is_reported() {
        for text in [
            "localhost",
            "10.0.0.0/33",
            "::/129",
            "10.0.0.0/",
            "1.2.3.4/-1",
            "a, b",
            "::ffff:10.0.0.0/95",
        ] {
            assert!(TrustedGateways::parse(text).is_err(), "{text}");
        }
    }
}
