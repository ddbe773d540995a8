//! Client of any rate limit service.

use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::InvalidMessage;
use tonic::metadata::{AsciiMetadataKey, AsciiMetadataValue, MetadataMap};
use tonic::transport::{Channel, ClientTlsConfig, Endpoint, Identity};

use super::call_headers::{CALLER, SERVICE};
use super::proto::hold::hold_service_client::HoldServiceClient;
use super::proto::hold::{CancelRequest, CommitRequest, ExtendRequest, ReserveRequest};
use super::proto::rate_limit_service_client::RateLimitServiceClient;
use super::proto::{RateLimitRequest, RateLimitResponse};
use crate::http_client::port_of;
use crate::tls::{ClientTlsError, ServerVerifier, read_pem};

/// Port of addresses without one.
const DEFAULT_PORT: u16 = 8081;
/// Timeout for connecting, and for a call.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// An error of TLS or of the transport, which is only printed.
pub type AnyError = Box<dyn Error + Send + Sync>;

/// A connection to a rate limit service.
#[derive(Clone, Debug)]
pub struct RateLimitClient {
    rate_limits: RateLimitServiceClient<Channel>,
    holds: HoldServiceClient<Channel>,
}

/// A request of `HoldService`.
#[derive(Clone, Debug)]
pub enum HoldMessage {
    /// Reserves hits.
    Reserve(ReserveRequest),
    /// Gives a hold a new TTL.
    Extend(ExtendRequest),
    /// Ends a hold with its cost.
    Commit(CommitRequest),
    /// Ends a hold.
    Cancel(CancelRequest),
}

/// TLS options of a connection. Certificates rotate, so their PEM files are read for each one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientTls {
    /// Trusted certificate authorities, in addition to those of the system, which minimal images
    /// lack.
    pub ca: Option<PathBuf>,
    /// Client certificate chain and key.
    pub certificate: Option<(PathBuf, PathBuf)>,
    /// Expected name in the server's certificate; `None`: the host of the address.
    pub server_name: Option<String>,
}

impl ClientTls {
    /// Adds TLS to an endpoint.
    ///
    /// # Errors
    /// If a file or the name is invalid, or there is no trusted certificate.
    pub fn on(&self, endpoint: Endpoint) -> Result<Endpoint, AnyError> {
        let mut config = ClientTlsConfig::new();
        if let Some((chain, key)) = &self.certificate {
            config = config.identity(Identity::from_pem(read_pem(chain)?, read_pem(key)?));
        }
        if let Some(name) = &self.server_name {
            config = config.domain_name(name);
        }
        let verifier = ServerVerifier::new(self.ca.as_deref(), true)?;
        Ok(endpoint.tls_config_with_verifier(config, Arc::new(verifier))?)
    }
}

/// A header of every call.
#[derive(Clone, Debug, PartialEq)]
pub struct Header {
    name: AsciiMetadataKey,
    value: AsciiMetadataValue,
}

impl Header {
    /// Parses `name=value`.
    ///
    /// # Errors
    /// The name found and the form expected.
    pub fn parse(text: &str) -> Result<Self, InvalidHeader> {
        let (name, value) = text.split_once('=').ok_or(InvalidHeader::Form)?;
        let name = name.trim().to_lowercase();
        let Ok(key) = AsciiMetadataKey::from_bytes(name.as_bytes()) else {
            return Err(InvalidHeader::Name(name));
        };
        let Ok(mut value) = AsciiMetadataValue::try_from(value) else {
            return Err(InvalidHeader::Value { name });
        };
        value.set_sensitive(true);
        Ok(Self { name: key, value })
    }

    /// Sets the header of an HTTP request, replacing any others of its name.
    pub fn add_to_http(&self, headers: &mut http::HeaderMap) {
        let name = http::HeaderName::from_bytes(self.name.as_str().as_bytes());
        let value = http::HeaderValue::from_bytes(self.value.as_bytes());
        if let Ok(name) = name
            && let Ok(mut value) = value
        {
            value.set_sensitive(true);
            headers.insert(name, value);
        }
    }

    /// Adds the header to the metadata of a call.
    pub fn add_to(&self, headers: &mut MetadataMap) {
        headers.append(self.name.clone(), self.value.clone());
    }
}

/// Reason why a header is invalid. The value may be a secret, and is never included.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidHeader {
    /// Not a name with a value.
    #[error("expected name=value, found no `=`")]
    Form,
    /// The name is none of a header.
    #[error("invalid header name `{0}`")]
    Name(String),
    /// The value has a character that headers cannot have.
    #[error("invalid character in the value of header `{name}`")]
    Value {
        /// Name of the header.
        name: String,
    },
}

/// An error of the client.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The address is invalid, or the connection cannot be established.
    #[error("cannot connect to {address}: {}", cause(&**source))]
    Connect {
        /// Address of the service.
        address: String,
        /// The error of TLS or of the connection.
        source: AnyError,
    },
    /// The service returned an error.
    #[error("{:?}: {}", .0.code(), .0.message())]
    Answer(Box<tonic::Status>),
    /// The connection broke, is none of gRPC, or no answer came in time.
    #[error("no response: {0}")]
    NoAnswer(String),
}

impl ClientError {
    /// Returns the text of the error, and the next step on a line of its own if the service did not
    /// answer.
    pub fn with_advice(self) -> String {
        format!("{self}{}", self.advice())
    }

    fn advice(&self) -> &'static str {
        match self {
            Self::Connect { source, .. } if source.is::<ClientTlsError>() => "",
            Self::Connect { source, .. } if is_plaintext(root(&**source)) => {
                "\nThe port does not use TLS: leave out --tls, or use the port that does."
            }
            Self::Connect { .. } => {
                "\nIs the service running there? Its gRPC port is needed, not the HTTP port."
            }
            Self::NoAnswer(_) => {
                "\nIs it the gRPC port (8081 by default)? If it uses TLS, --tls is needed."
            }
            Self::Answer(_) => "",
        }
    }
}

impl From<tonic::Status> for ClientError {
    fn from(status: tonic::Status) -> Self {
        // A status that the service sent has no source; one made of an error of the transport does.
        match status.source() {
            Some(error) => Self::NoAnswer(cause(error)),
            None => Self::Answer(Box::new(status)),
        }
    }
}

impl RateLimitClient {
    /// Connects to `host:port` or to a full `http://` address, with TLS if `tls` is set. The port
    /// of a host alone is 8081.
    ///
    /// # Errors
    /// If the connection fails.
    pub async fn connect(address: &str, tls: Option<&ClientTls>) -> Result<Self, ClientError> {
        let address = with_port(address);
        match channel(&address, tls).await {
            Ok(channel) => Ok(Self {
                rate_limits: RateLimitServiceClient::new(channel.clone()),
                holds: HoldServiceClient::new(channel),
            }),
            Err(source) => Err(ClientError::Connect { address, source }),
        }
    }

    /// Sends one request.
    ///
    /// # Errors
    /// [`ClientError::Answer`] with the status of the service, or [`ClientError::NoAnswer`].
    pub async fn should_rate_limit(
        &mut self,
        request: RateLimitRequest,
    ) -> Result<RateLimitResponse, ClientError> {
        Ok(self.rate_limits.should_rate_limit(request).await?.into_inner())
    }

    /// Sends one request as a caller that reads the answer itself, as no proxy does.
    ///
    /// # Errors
    /// As [`Self::should_rate_limit`].
    pub async fn ask(
        &mut self,
        request: RateLimitRequest,
    ) -> Result<RateLimitResponse, ClientError> {
        let mut request = tonic::Request::new(request);
        request.metadata_mut().insert(CALLER, AsciiMetadataValue::from_static(SERVICE));
        Ok(self.rate_limits.should_rate_limit(request).await?.into_inner())
    }

    /// Sends one request with a deadline, which the service is informed of, as by Envoy.
    ///
    /// # Errors
    /// As [`Self::should_rate_limit`].
    pub async fn should_rate_limit_within(
        &mut self,
        request: RateLimitRequest,
        deadline: Duration,
    ) -> Result<RateLimitResponse, ClientError> {
        Ok(self.rate_limits.should_rate_limit(within(request, deadline)).await?.into_inner())
    }

    /// Sends one request of `HoldService` with a deadline.
    ///
    /// # Errors
    /// As [`Self::should_rate_limit`].
    pub async fn hold_within(
        &mut self,
        request: HoldMessage,
        deadline: Duration,
    ) -> Result<RateLimitResponse, ClientError> {
        let response = match request {
            HoldMessage::Reserve(request) => self.holds.reserve(within(request, deadline)).await,
            HoldMessage::Extend(request) => self.holds.extend(within(request, deadline)).await,
            HoldMessage::Commit(request) => self.holds.commit(within(request, deadline)).await,
            HoldMessage::Cancel(request) => self.holds.cancel(within(request, deadline)).await,
        };
        Ok(response?.into_inner())
    }
}

/// Returns a request with a deadline.
fn within<T>(request: T, deadline: Duration) -> tonic::Request<T> {
    let mut request = tonic::Request::new(request);
    request.set_timeout(deadline);
    request
}

async fn channel(address: &str, tls: Option<&ClientTls>) -> Result<Channel, AnyError> {
    let uri = match tls {
        _ if address.contains("://") => address.to_owned(),
        Some(_) => format!("https://{address}"),
        None => format!("http://{address}"),
    };
    let endpoint = Endpoint::from_shared(uri)?;
    endpoint.uri().authority().map(port_of).transpose()?;
    let endpoint = endpoint.connect_timeout(CALL_TIMEOUT).timeout(CALL_TIMEOUT);
    let endpoint = match tls {
        Some(tls) => tls.on(endpoint)?,
        None => endpoint,
    };
    Ok(endpoint.connect().await?)
}

/// Adds the default port to a host without one.
fn with_port(address: &str) -> String {
    let authority = address.parse::<http::uri::Authority>();
    match authority {
        Ok(authority) if port_of(&authority) == Ok(None) => {
            format!("{address}:{DEFAULT_PORT}")
        }
        Ok(_) | Err(_) => address.to_owned(),
    }
}

/// Returns the root cause of an error, since tonic's own message has no detail.
pub fn cause(error: &(dyn Error + 'static)) -> String {
    root(error).to_string()
}

/// Returns the last error of a chain of sources.
fn root<'a>(first: &'a (dyn Error + 'static)) -> &'a (dyn Error + 'static) {
    std::iter::successors(Some(first), |&error| error.source()).last().unwrap_or(first)
}

/// Returns `true` if the root cause is that a server did not answer by TLS.
fn is_plaintext(root: &(dyn Error + 'static)) -> bool {
    let inner = root.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    let error = inner.and_then(|error| error.downcast_ref::<rustls::Error>());
    error == Some(&rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_alone_has_the_default_port() {
        for (address, wanted) in [
            ("localhost", "localhost:8081"),
            ("[::1]", "[::1]:8081"),
            ("10.0.0.1:80", "10.0.0.1:80"),
            ("0:8080", "0:8080"),
            ("user@a", "user@a:8081"),
            (":8081", ":8081"),
            ("http://a", "http://a"),
        ] {
            assert_eq!(with_port(address), wanted);
        }
    }

    #[tokio::test]
    async fn a_port_that_is_none_is_refused() {
        for address in ["localhost:99999", "9:99999", "[::1]:", "http://localhost:99999"] {
            let error = RateLimitClient::connect(address, None).await.map(drop).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("cannot connect to {address}: the port must be a number from 1 to 65535")
            );
        }
    }

    #[test]
    fn errors_of_the_connection_have_a_next_step() {
        let no_answer = ClientError::NoAnswer("stream closed because of a broken pipe".to_owned());
        assert!(no_answer.advice().contains("Is it the gRPC port"));
        let connect = |source: io::Error| ClientError::Connect {
            address: "a:1".to_owned(),
            source: source.into(),
        };
        let plaintext = rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType);
        let tls = connect(io::Error::new(io::ErrorKind::InvalidData, plaintext));
        assert!(tls.advice().contains("leave out --tls"));
        let refused = connect(io::ErrorKind::ConnectionRefused.into());
        assert!(refused.advice().contains("Is the service running there?"));
    }

    #[test]
    fn a_header_is_a_name_and_a_value_which_is_not_shown() {
        let header = Header::parse("Authorization=Bearer a=b").unwrap();
        assert_eq!(header.name.as_str(), "authorization");
        assert_eq!(header.value.to_str().unwrap(), "Bearer a=b");
        assert!(!format!("{header:?}").contains("Bearer"));
        for text in ["name", "=value", "two words=value", "name=\n", "raw-bin=value"] {
            assert!(!Header::parse(text).unwrap_err().to_string().contains("value="), "{text}");
        }
    }
}
