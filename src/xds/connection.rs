//! Connections to a control plane.

use std::fmt;
use std::time::Duration;

use tonic::transport::{Channel, Endpoint, Uri};

use super::{ControlPlane, StreamFailure};
use crate::grpc::client::AnyError;
use crate::grpc::proto::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;

/// Timeout to resolve, connect and complete the TLS handshake.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout for the response to a keepalive ping.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);
/// Idle time before the kernel sends TCP keepalive probes. They detect hosts that are gone, and no
/// server counts them.
const TCP_KEEPALIVE: Duration = Duration::from_secs(30);

/// A host and a port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct XdsTarget(String);

impl XdsTarget {
    /// Parses `host:port`, or a gRPC target with the scheme `dns` or `passthrough`:
    /// `dns:///host:port`, `dns:host:port`, `passthrough:///host:port`. As in gRPC, the port of
    /// `dns` defaults to 443. The system selects the DNS server, so a target that names one is an
    /// error.
    ///
    /// # Errors
    /// The text is neither of these.
    pub fn parse(text: &str) -> Result<Self, XdsTargetError> {
        Self::read(text).ok_or_else(|| XdsTargetError { found: text.to_owned() })
    }

    fn read(text: &str) -> Option<Self> {
        let (scheme, authority) = match text.trim().split_once(':') {
            Some((scheme @ ("dns" | "passthrough"), rest)) if rest.parse::<u16>().is_err() => {
                (scheme, rest.strip_prefix("///").unwrap_or(rest))
            }
            _ => ("", text.trim()),
        };
        let with_port = format!("{authority}:443");
        let has_port = authority.rsplit_once(':').is_some_and(|(_, port)| !port.ends_with(']'));
        let authority = if scheme == "dns" && !has_port { &with_port } else { authority };
        let uri: Uri = format!("http://{authority}/").parse().ok()?;
        let is_whole = uri.port_u16().is_some_and(|port| port > 0)
            && uri.host().is_some_and(|host| !host.is_empty());
        let is_plain = uri.authority().is_some_and(|found| found.as_str() == authority)
            && !authority.contains('@');
        (is_whole && is_plain).then(|| Self(authority.to_owned()))
    }
}

/// The error of a text that is no address of a control plane.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected host:port, dns:///host:port or passthrough:///host:port, found `{found}`")]
pub struct XdsTargetError {
    found: String,
}

impl fmt::Display for XdsTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl ControlPlane {
    /// Connects, without a retry.
    pub(super) async fn connect(
        &self,
    ) -> Result<AggregatedDiscoveryServiceClient<Channel>, StreamFailure> {
        let endpoint = self.endpoint().map_err(StreamFailure::Connect)?;
        let connected = tokio::time::timeout(CONNECT_TIMEOUT, endpoint.connect()).await;
        let channel = connected
            .map_err(|_| StreamFailure::Late(CONNECT_TIMEOUT))?
            .map_err(|error| StreamFailure::Connect(error.into()))?;
        Ok(AggregatedDiscoveryServiceClient::new(channel)
            .max_decoding_message_size(self.max_message_bytes))
    }

    fn endpoint(&self) -> Result<Endpoint, AnyError> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let endpoint = Endpoint::from_shared(format!("{scheme}://{}", self.target))?
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_keepalive(Some(TCP_KEEPALIVE))
            .http2_keep_alive_interval(self.keepalive)
            .keep_alive_timeout(KEEPALIVE_TIMEOUT)
            .keep_alive_while_idle(true);
        match &self.tls {
            Some(tls) => tls.on(endpoint),
            None => Ok(endpoint),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_host_and_a_port() {
        for (text, target) in [
            ("envoy-gateway:18001", "envoy-gateway:18001"),
            ("dns:///xds.local:1", "xds.local:1"),
            ("[::1]:18000", "[::1]:18000"),
            ("dns:xds.local:1", "xds.local:1"),
            ("dns:///xds.local", "xds.local:443"),
            ("dns:[::1]", "[::1]:443"),
            ("passthrough:///xds.local:1", "xds.local:1"),
            ("passthrough:10.0.0.1:1", "10.0.0.1:1"),
            // Hosts with these names.
            ("dns:18000", "dns:18000"),
            ("passthrough:1", "passthrough:1"),
        ] {
            assert_eq!(XdsTarget::parse(text).unwrap().to_string(), target);
        }
        for text in [
            "",
            "host",
            "host:",
            ":1",
            "host:0",
            "http://host:1",
            "dns://8.8.8.8/host:1",
            "a@host:1",
            "h:1/x",
            "dns:",
            "dns:///",
            "passthrough:///host",
            "passthrough://a/host:1",
            "unix:///socket",
        ] {
            assert!(
                XdsTarget::parse(text)
                    .unwrap_err()
                    .to_string()
                    .contains(&format!("found `{text}`")),
                "{text}"
            );
        }
    }
}
