//! The target of a client: a name or an address, and a port.

use std::net::IpAddr;

use http::Uri;

/// A target that is not valid.
#[derive(Clone, Debug, thiserror::Error)]
#[error("target {found:?}: expected HOST:PORT or dns:///HOST:PORT")]
pub struct TargetError {
    found: String,
}

impl TargetError {
    pub(super) fn of(text: &str) -> Self {
        Self { found: text.to_owned() }
    }
}

/// A host and its port.
#[derive(Debug)]
pub(super) struct Target {
    /// A name or an IP address, without brackets.
    pub(super) host: String,
    pub(super) port: u16,
    /// Scheme and authority of requests.
    pub(super) origin: Uri,
}

impl Target {
    pub(super) fn parse(text: &str, scheme: &str) -> Result<Self, TargetError> {
        let invalid = || TargetError::of(text);
        let place = text.strip_prefix("dns:///").unwrap_or(text);
        let (host, port) = place.rsplit_once(':').ok_or_else(invalid)?;
        let port = port.parse().map_err(|_| invalid())?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        let is_name = !host.is_empty() && !host.contains([':', '/', '@', '[']);
        let is_address = bare.is_some_and(|bare| bare.parse::<IpAddr>().is_ok());
        if !is_name && !is_address {
            return Err(invalid());
        }
        let origin = Uri::builder().scheme(scheme).authority(place).path_and_query("/").build();
        Ok(Self {
            host: bare.unwrap_or(host).to_owned(),
            port,
            origin: origin.map_err(|_| invalid())?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_name_or_an_address_with_a_port() {
        for (text, host, origin) in [
            ("tollgate.example:8081", "tollgate.example", "http://tollgate.example:8081/"),
            ("dns:///tollgate.example:80", "tollgate.example", "http://tollgate.example:80/"),
            ("127.0.0.1:8081", "127.0.0.1", "http://127.0.0.1:8081/"),
            ("dns:///[::1]:8081", "::1", "http://[::1]:8081/"),
        ] {
            let target = Target::parse(text, "http").unwrap();
            assert_eq!((target.host.as_str(), target.origin.to_string().as_str()), (host, origin));
        }
    }

    #[test]
    fn a_target_without_a_host_or_a_port_is_refused() {
        let texts =
            ["", "tollgate", ":80", "a:b", "a:65536", "http://a:80", "::1:80", "[a]:80", "u@a:1"];
        for text in texts {
            assert!(Target::parse(text, "http").is_err(), "{text}");
        }
    }
}
