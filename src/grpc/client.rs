//! A client of any rate limit service: one request, one answer.

use std::time::Duration;

use tonic::metadata::{AsciiMetadataKey, AsciiMetadataValue, MetadataMap};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use super::proto::rate_limit_service_client::RateLimitServiceClient;
use super::proto::{RateLimitRequest, RateLimitResponse};

/// Time to connect, and time for one answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// A connection to a rate limit service.
#[derive(Clone, Debug)]
pub struct Client(RateLimitServiceClient<Channel>);

/// Whom to trust and what to show, as PEM.
#[derive(Clone, Debug, Default)]
pub struct ClientTls {
    /// Authorities besides those of the system.
    pub authorities: Option<Vec<u8>>,
    /// A certificate and its key.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// The name that the server's certificate has to be for; `None`: the host that is called.
    pub name: Option<String>,
}

impl ClientTls {
    /// The same endpoint, encrypted.
    ///
    /// # Errors
    /// What is wrong with the certificates, or that there is none to trust.
    pub fn on(&self, endpoint: Endpoint) -> Result<Endpoint, tonic::transport::Error> {
        let config = ClientTlsConfig::new();
        let config =
            self.authorities.iter().fold(config, |config, pem| config.ca_certificate(Certificate::from_pem(pem)));
        let config =
            self.identity.iter().fold(config, |config, (chain, key)| config.identity(Identity::from_pem(chain, key)));
        let config = self.name.iter().fold(config, |config, name| config.domain_name(name));
        match endpoint.clone().tls_config(config.clone().with_native_roots()) {
            // A small image has no authorities of the system: an own one is enough.
            Err(_) if self.authorities.is_some() => endpoint.tls_config(config),
            with_system => with_system,
        }
    }
}

/// A header that calls bear.
#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    name: AsciiMetadataKey,
    value: AsciiMetadataValue,
}

impl Header {
    /// Reads `name=value`.
    ///
    /// # Errors
    /// What was found of the name, and what is expected; the value may be a secret, and is not told.
    pub fn parse(text: &str) -> Result<Self, String> {
        let (name, value) = text.split_once('=').ok_or("expected name=value, found no `=`")?;
        let name = name.trim().to_lowercase();
        let key = AsciiMetadataKey::from_bytes(name.as_bytes());
        let key = key.map_err(|_| format!("expected the name of a header, found `{name}`"))?;
        let mut value = AsciiMetadataValue::try_from(value)
            .map_err(|_| format!("the value of `{name}` has characters that no header may have"))?;
        value.set_sensitive(true);
        Ok(Self { name: key, value })
    }

    /// Adds it to those of a call.
    pub fn add_to(&self, headers: &mut MetadataMap) {
        headers.append(self.name.clone(), self.value.clone());
    }
}

/// No answer came.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The address is none, or nobody listens there.
    #[error("cannot connect to {address}: {reason}")]
    Connect {
        /// What was called.
        address: String,
        /// Why not, down to the cause.
        reason: String,
    },
    /// The service answered with an error.
    #[error("{:?}: {}", .0.code(), .0.message())]
    Answer(#[from] Box<tonic::Status>),
}

impl Client {
    /// Connects to `host:port`, or a whole `http://` address; with `tls` encrypted.
    ///
    /// # Errors
    /// Where nobody answers there.
    pub async fn connect(address: &str, tls: Option<&ClientTls>) -> Result<Self, ClientError> {
        let scheme = if tls.is_some() { "https" } else { "http" };
        let uri = if address.contains("://") { address.to_owned() } else { format!("{scheme}://{address}") };
        let failed = |error: tonic::transport::Error| ClientError::Connect {
            address: address.to_owned(),
            reason: cause(&error),
        };
        let endpoint = Endpoint::from_shared(uri).map_err(failed)?.connect_timeout(PATIENCE).timeout(PATIENCE);
        let endpoint = match tls {
            Some(tls) => tls.on(endpoint).map_err(failed)?,
            None => endpoint,
        };
        Ok(Self(RateLimitServiceClient::new(endpoint.connect().await.map_err(failed)?)))
    }

    /// Asks once.
    ///
    /// # Errors
    /// The service's own, by its code.
    pub async fn should_rate_limit(&mut self, request: RateLimitRequest) -> Result<RateLimitResponse, ClientError> {
        let answer = self.0.should_rate_limit(request).await.map_err(Box::new)?;
        Ok(answer.into_inner())
    }
}

/// An error down to its cause, where tonic tells the least by itself.
pub fn cause(error: &tonic::transport::Error) -> String {
    let first: &dyn std::error::Error = error;
    std::iter::successors(Some(first), |error| error.source()).last().unwrap_or(first).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_a_name_and_a_value_which_is_not_shown() {
        let header = Header::parse("Authorization=Bearer a=b").unwrap();
        assert_eq!(header.name.as_str(), "authorization");
        assert_eq!(header.value.to_str().unwrap(), "Bearer a=b");
        assert!(!format!("{header:?}").contains("Bearer"));
        for text in ["name", "=value", "two words=value", "name=\n", "raw-bin=value"] {
            assert!(!Header::parse(text).unwrap_err().contains("value="), "{text}");
        }
    }
}
