//! The actions of Envoy's `rate_limits`, as its rate limit filter performs them: each adds an entry
//! to a descriptor, adds none, or leaves the descriptor out.

use std::net::{IpAddr, SocketAddr};

use crate::descriptor::Descriptor;
use crate::host::{MetadataSource, Request};
use crate::matcher::{Ambiguous, HeaderMatcher};

/// An action.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Action {
    /// A constant entry.
    GenericKey { key: String, value: String },
    /// The first value of a header.
    RequestHeaders { header: String, key: String, skip_if_absent: bool },
    /// The address of the client.
    RemoteAddress,
    /// The cluster of the route.
    DestinationCluster,
    /// A constant entry, if headers match.
    HeaderValueMatch { key: String, value: String, expects: bool, headers: Vec<HeaderMatcher> },
    /// A text of metadata.
    Metadata {
        source: MetadataSource,
        namespace: String,
        path: String,
        key: String,
        default: String,
        skip_if_absent: bool,
    },
}

impl Action {
    /// Performs the action. Returns `false` if the request has no such descriptor.
    ///
    /// # Errors
    ///
    /// The answer depends on a setting of Envoy.
    pub(crate) fn apply(
        &self,
        request: &impl Request,
        descriptor: &mut Descriptor,
    ) -> Result<bool, Ambiguous> {
        match self {
            Self::GenericKey { key, value } => descriptor.push(key.as_bytes(), value.as_bytes()),
            Self::RequestHeaders { header, key, skip_if_absent } => {
                let Some(value) = request.header(header, 0).0 else { return Ok(*skip_if_absent) };
                descriptor.push(key.as_bytes(), value);
            }
            Self::RemoteAddress => {
                let Some(address) = request.remote_address().and_then(without_port) else {
                    return Ok(false);
                };
                descriptor.push(b"remote_address", address);
            }
            Self::DestinationCluster => {
                let Some(cluster) = request.cluster() else { return Ok(false) };
                descriptor.push(b"destination_cluster", cluster);
            }
            Self::HeaderValueMatch { key, value, expects, headers } => {
                if all_match(headers, request)? != *expects {
                    return Ok(false);
                }
                descriptor.push(key.as_bytes(), value.as_bytes());
            }
            Self::Metadata { source, namespace, path, key, default, skip_if_absent } => {
                let found = request.metadata(*source, namespace, path);
                let value = found.filter(|value| !value.is_empty()).unwrap_or(default.as_bytes());
                if value.is_empty() {
                    return Ok(*skip_if_absent);
                }
                descriptor.push(key.as_bytes(), value);
            }
        }
        Ok(true)
    }
}

/// Returns `true` if all headers match. One that does not decides, whatever the others are.
fn all_match(headers: &[HeaderMatcher], request: &impl Request) -> Result<bool, Ambiguous> {
    let mut all = Ok(true);
    for header in headers {
        match header.matches(request) {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(ambiguous) => all = Err(ambiguous),
        }
    }
    all
}

/// Returns the address of an IP socket. Versions of Envoy differ in whether its port follows.
fn without_port(address: &[u8]) -> Option<&[u8]> {
    let text = std::str::from_utf8(address).ok()?;
    if text.parse::<IpAddr>().is_ok() {
        return Some(address);
    }
    text.parse::<SocketAddr>().ok()?;
    let (host, _) = text.rsplit_once(':')?;
    Some(host.trim_start_matches('[').trim_end_matches(']').as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_those_of_ip_sockets() {
        let of = |address: &'static str| without_port(address.as_bytes());
        assert_eq!(of("192.0.2.1:80"), Some(b"192.0.2.1".as_slice()));
        assert_eq!(of("192.0.2.1"), Some(b"192.0.2.1".as_slice()));
        assert_eq!(of("2001:db8::1"), Some(b"2001:db8::1".as_slice()));
        assert_eq!(of("[2001:db8::1]:80"), Some(b"2001:db8::1".as_slice()));
        assert_eq!((of("/run/envoy.sock"), of("envoy://internal"), of("")), (None, None, None));
    }
}
