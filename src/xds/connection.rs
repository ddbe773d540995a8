//! A connection to a control plane: where to, as whom, by which certificates. Files are read again for each, since they rotate.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tonic::transport::{Channel, Endpoint, Uri};

use super::{ControlPlane, Failure};
use crate::grpc::client::{ClientTls, cause};
use crate::grpc::proto::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;

/// Time to resolve, connect and agree on encryption.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time for a sign of life, when asked for one.
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);
/// Silence after which the system asks the other for a sign of life: that sees hosts which are gone, and no server counts it.
const TCP_KEEPALIVE: Duration = Duration::from_secs(30);

/// A host and a port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target(String);

impl Target {
    /// Reads `host:port` or `dns:///host:port`.
    ///
    /// # Errors
    /// What was found, and what is expected.
    pub fn parse(text: &str) -> Result<Self, String> {
        let error = || format!("expected host:port or dns:///host:port, found `{text}`");
        let authority = text.trim();
        let authority = authority.strip_prefix("dns:///").unwrap_or(authority);
        let uri: Uri = format!("http://{authority}/").parse().map_err(|_| error())?;
        let is_whole = uri.port_u16().is_some_and(|port| port > 0) && uri.host().is_some_and(|host| !host.is_empty());
        let is_plain = uri.authority().is_some_and(|found| found.as_str() == authority) && !authority.contains('@');
        (is_whole && is_plain).then(|| Self(authority.to_owned())).ok_or_else(error)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How connections are encrypted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// PEM file of authorities that are trusted beside those of the system.
    pub ca: Option<PathBuf>,
    /// PEM files of the certificate to show, and of its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// The name that the server's certificate has to be for; `None`: the host of the target.
    pub server_name: Option<String>,
}

impl ControlPlane {
    /// Connects once.
    pub(super) async fn connect(&self) -> Result<AggregatedDiscoveryServiceClient<Channel>, Failure> {
        let connected = tokio::time::timeout(PATIENCE, self.endpoint()?.connect()).await;
        let channel = connected.map_err(|_| Failure::Late(PATIENCE))?.map_err(|error| failed(&error))?;
        Ok(AggregatedDiscoveryServiceClient::new(channel).max_decoding_message_size(self.max_message_bytes))
    }

    fn endpoint(&self) -> Result<Endpoint, Failure> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let endpoint = Endpoint::from_shared(format!("{scheme}://{}", self.target)).map_err(|error| failed(&error))?;
        let endpoint = endpoint
            .connect_timeout(PATIENCE)
            .tcp_keepalive(Some(TCP_KEEPALIVE))
            .http2_keep_alive_interval(self.keepalive)
            .keep_alive_timeout(KEEPALIVE_TIMEOUT)
            .keep_alive_while_idle(true);
        let Some(tls) = &self.tls else { return Ok(endpoint) };
        tls.read()?.on(endpoint).map_err(|error| failed(&error))
    }
}

impl Tls {
    /// What is in the files now.
    fn read(&self) -> Result<ClientTls, Failure> {
        let identity = self.certificate.as_ref();
        Ok(ClientTls {
            authorities: self.ca.as_deref().map(read).transpose()?,
            identity: identity.map(|(chain, key)| Ok::<_, Failure>((read(chain)?, read(key)?))).transpose()?,
            name: self.server_name.clone(),
        })
    }
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|error| Failure::File { path: path.display().to_string(), error })
}

fn failed(error: &tonic::transport::Error) -> Failure {
    Failure::Connect(cause(error))
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
        ] {
            assert_eq!(Target::parse(text).unwrap().to_string(), target);
        }
        for text in ["", "host", "host:", ":1", "host:0", "http://host:1", "dns://8.8.8.8/host:1", "a@host:1", "h:1/x"]
        {
            assert!(Target::parse(text).unwrap_err().contains(&format!("found `{text}`")), "{text}");
        }
    }
}
