//! A gateway that calls the service: requests over HTTP, which it admits or denies.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request, StatusCode, Uri, header};
use http_body_util::Full;

use crate::http_client::{HttpClientError, HttpConnection, HttpOrigin, NoHttpOrigin};
use crate::verify::service::{DescriptorDecision, ServiceDecision, VerifiedService, VerifyRequest};

/// Maximum size of a response, in bytes.
const MAX_RESPONSE: usize = 1 << 20;

/// A header that carries the value of a key: `KEY=HEADER`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeyHeader {
    pub(super) key: String,
    header: HeaderName,
}

/// The reason why a mapping of a key cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("expected KEY=HEADER, such as user=x-user")]
pub(super) struct InvalidKeyHeader;

/// A gateway as a target.
#[derive(Clone, Debug)]
pub(super) struct GatewayTarget {
    origin: HttpOrigin,
    /// Path and query of the requests.
    path: String,
    host: HeaderValue,
    headers: Arc<[KeyHeader]>,
}

/// A client of a gateway, with a connection of its own.
pub(super) struct GatewayClient {
    target: GatewayTarget,
    /// The connection, while no request is under way.
    connection: Option<HttpConnection>,
}

/// The reason why a URL is no target.
#[derive(Debug, thiserror::Error)]
pub(super) enum InvalidTarget {
    #[error("--target {url}: {error}")]
    Url { url: String, error: http::uri::InvalidUri },
    #[error("--target {url}: {error}")]
    Origin { url: String, error: NoHttpOrigin },
    #[error("--target {url}: a gateway with TLS is not supported; use its port for http://")]
    Tls { url: String },
}

/// The reason why a gateway made no decision.
#[derive(Debug, thiserror::Error)]
pub(super) enum GatewayError {
    #[error(transparent)]
    Http(#[from] HttpClientError),
    #[error("{0}")]
    Request(#[from] http::Error),
    #[error("HTTP {0}; use a path with a code below 400")]
    Status(StatusCode),
}

impl std::str::FromStr for KeyHeader {
    type Err = InvalidKeyHeader;

    fn from_str(text: &str) -> Result<Self, InvalidKeyHeader> {
        let (key, name) = text.rsplit_once('=').ok_or(InvalidKeyHeader)?;
        let header = name.parse().map_err(|_| InvalidKeyHeader)?;
        if key.is_empty() {
            return Err(InvalidKeyHeader);
        }
        Ok(Self { key: key.to_owned(), header })
    }
}

impl GatewayTarget {
    /// Returns the target of a URL.
    ///
    /// # Errors
    /// The URL is not of plain HTTP.
    pub(super) fn of(text: &str, headers: &Arc<[KeyHeader]>) -> Result<Self, InvalidTarget> {
        let url = || text.to_owned();
        let parsed: Uri = text.parse().map_err(|error| InvalidTarget::Url { url: url(), error })?;
        let origin =
            HttpOrigin::of(&parsed).map_err(|error| InvalidTarget::Origin { url: url(), error })?;
        if origin.is_tls {
            return Err(InvalidTarget::Tls { url: url() });
        }
        let authority = parsed.authority().map_or("", |authority| authority.as_str());
        let host = HeaderValue::from_str(authority).ok();
        let host = host.ok_or(InvalidTarget::Origin { url: url(), error: NoHttpOrigin::Host })?;
        let path = parsed.path_and_query().map_or("/", |path| path.as_str()).to_owned();
        Ok(Self { origin, path, host, headers: Arc::clone(headers) })
    }

    /// Returns a client, which connects with its first request.
    pub(super) fn client(&self) -> GatewayClient {
        GatewayClient { target: self.clone(), connection: None }
    }

    /// Returns a request with the values of a descriptor.
    fn request(&self, entries: &[(String, String)]) -> Result<Request<Full<Bytes>>, http::Error> {
        let mut request = Request::get(&self.path).header(header::HOST, &self.host);
        for (key, value) in entries {
            if let Some(mapped) = self.headers.iter().find(|mapped| mapped.key == *key) {
                request = request.header(&mapped.header, value);
            }
        }
        request.body(Full::default())
    }
}

impl VerifiedService for GatewayClient {
    type Error = GatewayError;

    /// Sends a request for the first descriptor, which has a hit.
    async fn decide(
        &mut self,
        request: VerifyRequest,
        _: Duration,
    ) -> Result<ServiceDecision, GatewayError> {
        let entries = request.descriptors.first().map(Vec::as_slice).unwrap_or_default();
        let request = self.target.request(entries)?;
        // If the caller gives up, or the request fails, the connection is closed.
        let mut connection = match self.connection.take().filter(|open| !open.is_closed()) {
            Some(open) => open,
            None => self.target.origin.connect(None).await?,
        };
        let (head, body) = connection.exchange(request, MAX_RESPONSE).await?;
        // The status is the decision, whatever follows it.
        self.connection = body.is_ok().then_some(connection);
        let status = head.status;
        let is_denied = status == StatusCode::TOO_MANY_REQUESTS;
        if !is_denied && (status.is_client_error() || status.is_server_error()) {
            return Err(GatewayError::Status(status));
        }
        let descriptors = vec![DescriptorDecision { is_denied, status: None }];
        Ok(ServiceDecision { is_denied, descriptors })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_sent_in_the_headers_of_their_keys() {
        let headers = ["user=x-user", "a=b=x-a"].map(|text| text.parse().unwrap());
        let target = GatewayTarget::of("http://[::1]:8080/a?b", &Arc::from(headers)).unwrap();
        let entries = [("user", "ann"), ("a=b", "1"), ("other", "2")]
            .map(|(key, value)| (key.to_owned(), value.to_owned()));
        let request = target.request(&entries).unwrap();
        assert_eq!(request.uri(), "/a?b");
        let names: Vec<_> = request.headers().iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["host", "x-user", "x-a"]);
        assert_eq!(request.headers()["host"], "[::1]:8080");
    }

    #[test]
    fn other_urls_and_mappings_are_refused() {
        let headers = Arc::default();
        for url in ["https://a", "unix:/a", "http://", "a:8081"] {
            assert!(GatewayTarget::of(url, &headers).is_err(), "{url}");
        }
        for mapping in ["user", "=x-user", "user=", "user=x user"] {
            assert!(mapping.parse::<KeyHeader>().is_err(), "{mapping}");
        }
    }
}
