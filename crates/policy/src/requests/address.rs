//! The address of the client of a gateway, behind proxies that are trusted.
//!
//! `X-Forwarded-For` has an address per hop, each written by the proxy that received the request
//! from it. The last is the one that the gateway saw itself; a client can write only those to the
//! left of what trusted proxies wrote.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Returns the address that the proxy saw that is `trusted_hops` before the gateway; the last one
/// if there are fewer. `peer` is the address that the gateway saw itself, appended unless the last
/// hop stands for it. `None` if there is no address at that position.
pub(super) fn client_address(
    forwarded: &[u8],
    peer: Option<IpAddr>,
    trusted_hops: usize,
) -> Option<IpAddr> {
    let hops = forwarded.rsplit(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    let mut hops = hops.filter(|hop| !hop.is_empty()).map(address).peekable();
    // A trusted proxy on the same machine: the gateway has written its own address in its place.
    let is_written = |peer: &IpAddr, last: Option<&Option<IpAddr>>| {
        last == Some(&Some(*peer)) || trusted_hops > 0 && peer.is_loopback() && last.is_some()
    };
    let own = peer.filter(|peer| !is_written(peer, hops.peek()));
    let mut hops = own.map(Some).into_iter().chain(hops);
    let last = hops.next()?;
    match trusted_hops.checked_sub(1) {
        None => last,
        Some(others) => hops.nth(others).unwrap_or(last),
    }
}

/// Parses an address, with or without a port; a zone (`%eth0`) is left out. An IPv4 address mapped
/// to IPv6 is the former.
pub(super) fn address(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?;
    let in_brackets = text.strip_prefix('[').and_then(|text| text.split_once(']'));
    let without_port = match in_brackets {
        Some((address, _)) => address,
        None => text.rsplit_once(':').map_or(text, |(address, _)| address),
    };
    let without_zone = text.split_once('%').map_or(text, |(address, _)| address);
    [text, without_port, without_zone]
        .into_iter()
        .find_map(|text| text.parse::<IpAddr>().ok())
        .map(|address| address.to_canonical())
}

/// Returns an address as text; with a prefix shorter than it, the network.
pub(super) fn text_of(address: IpAddr, ipv4_prefix: u32, ipv6_prefix: u32) -> String {
    match address {
        IpAddr::V4(address) if ipv4_prefix < Ipv4Addr::BITS => {
            let mask = u32::MAX.checked_shl(Ipv4Addr::BITS.saturating_sub(ipv4_prefix));
            let network = Ipv4Addr::from_bits(address.to_bits() & mask.unwrap_or_default());
            format!("{network}/{ipv4_prefix}")
        }
        IpAddr::V6(address) if ipv6_prefix < Ipv6Addr::BITS => {
            let mask = u128::MAX.checked_shl(Ipv6Addr::BITS.saturating_sub(ipv6_prefix));
            let network = Ipv6Addr::from_bits(address.to_bits() & mask.unwrap_or_default());
            format!("{network}/{ipv6_prefix}")
        }
        IpAddr::V4(_) | IpAddr::V6(_) => address.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn client(forwarded: &str, peer: &str, hops: usize) -> Option<String> {
        let peer = address(peer.as_bytes());
        client_address(forwarded.as_bytes(), peer, hops).map(|address| address.to_string())
    }

    #[test]
    fn an_address_is_trusted_only_as_far_as_the_hops() {
        for (forwarded, peer, hops, found) in [
            ("198.51.100.1, 203.0.113.7", "", 0, Some("203.0.113.7")),
            ("198.51.100.1, 203.0.113.7", "", 1, Some("198.51.100.1")),
            ("198.51.100.1, 203.0.113.7", "", 2, Some("203.0.113.7")),
            ("198.51.100.1", "203.0.113.7", 0, Some("203.0.113.7")),
            ("198.51.100.1, 203.0.113.7", "203.0.113.7", 0, Some("203.0.113.7")),
            ("198.51.100.1, 203.0.113.7", "203.0.113.7", 1, Some("198.51.100.1")),
            ("", "203.0.113.7", 3, Some("203.0.113.7")),
            ("198.51.100.1,192.0.2.2", "127.0.0.1", 1, Some("198.51.100.1")),
            ("198.51.100.1,192.0.2.2", "127.0.0.1", 0, Some("127.0.0.1")),
            ("", "127.0.0.1", 1, Some("127.0.0.1")),
            ("", "", 0, None),
            (" ,, 198.51.100.1 ,", "", 0, Some("198.51.100.1")),
            ("unknown, 203.0.113.7", "", 1, None),
            ("198.51.100.1:4711", "", 0, Some("198.51.100.1")),
            ("[2001:db8::1]:4711", "", 0, Some("2001:db8::1")),
            ("[2001:db8::1]", "", 0, Some("2001:db8::1")),
            ("2001:DB8:0::1", "", 0, Some("2001:db8::1")),
            ("fe80::1%eth0", "", 0, Some("fe80::1")),
            ("unix:", "", 0, None),
            ("::ffff:198.51.100.1", "", 0, Some("198.51.100.1")),
        ] {
            assert_eq!(
                client(forwarded, peer, hops).as_deref(),
                found,
                "{forwarded} {peer} {hops}"
            );
        }
    }

    #[test]
    fn a_prefix_makes_an_address_a_network() {
        let text = |address: &str, v4, v6| text_of(address.parse().unwrap(), v4, v6);
        assert_eq!(text("203.0.113.7", 24, 128), "203.0.113.0/24");
        assert_eq!(text("203.0.113.7", 32, 64), "203.0.113.7");
        assert_eq!(text("203.0.113.7", 0, 64), "0.0.0.0/0");
        assert_eq!(text("2001:db8:1:2:3::4", 24, 64), "2001:db8:1:2::/64");
        assert_eq!(text("2001:db8::4", 24, 0), "::/0");
        assert_eq!(text("2001:db8::4", 24, 128), "2001:db8::4");
    }

    proptest! {
        /// Whatever a client writes, the hops that trusted proxies append decide.
        #[test]
        fn a_client_cannot_choose_its_address(
            written in "[0-9a-f.:, ]{0,40}",
            hops in 0usize..4,
        ) {
            let appended = ["192.0.2.9", "192.0.2.8", "192.0.2.7", "192.0.2.6"];
            let trusted = appended[..=hops].join(", ");
            let forwarded = format!("{written}, {trusted}");
            prop_assert_eq!(client(&forwarded, "", hops), Some("192.0.2.9".to_owned()));
            let peer = appended[hops];
            prop_assert_eq!(client(&forwarded, peer, hops), Some("192.0.2.9".to_owned()));
        }
    }
}
