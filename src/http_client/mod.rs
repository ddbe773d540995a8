//! Client of HTTP/1.1: a connection to one server, with TLS for `https`, and one request after the
//! other on it, with a bound on each response.
//!
//! Deadlines, retries and what an error means are up to the callers.

use std::error::Error;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use http::response::Parts;
use http::uri::Authority;
use http::{Request, Response, Uri};
use http_body_util::{BodyExt as _, Collected, Full, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The server of a URL, with its protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpOrigin {
    /// The name or address of the server, without the brackets of IPv6.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Set for `https`.
    pub is_tls: bool,
}

/// The reason why a URL names no server of HTTP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoHttpOrigin {
    /// Another scheme, or none.
    #[error("expected http://HOST:PORT or https://HOST:PORT")]
    Scheme,
    /// No host.
    #[error("the URL has no host")]
    Host,
    /// The host is followed by text that is no port.
    #[error("the port must be a number from 1 to 65535")]
    Port,
}

/// The reason why there is no response.
#[derive(Debug, thiserror::Error)]
pub enum HttpClientError {
    /// No connection.
    #[error("{0}")]
    Connect(io::Error),
    /// The handshake of TLS failed, or the host cannot be the name in a certificate.
    #[error("{0}")]
    Handshake(io::Error),
    /// The request was not sent, or no response came. The connection may have been closed before.
    #[error("{0}")]
    Http(#[from] hyper::Error),
    /// The body of the response was cut off, or is too long.
    #[error("{0}")]
    Body(Box<dyn Error + Send + Sync>),
}

/// A connection to a server; closed when dropped.
pub struct HttpConnection {
    requests: SendRequest<Full<Bytes>>,
}

/// Returns the port of an authority; `None` if it has a host alone.
///
/// # Errors
/// The host is followed by text that is no port. `http` reads `:99999` as none, and so as the port
/// of the scheme.
pub fn port_of(authority: &Authority) -> Result<Option<u16>, NoHttpOrigin> {
    let is_host = authority.as_str().rsplit('@').next() == Some(authority.host());
    match authority.port_u16() {
        None if !is_host => Err(NoHttpOrigin::Port),
        port => Ok(port),
    }
}

impl HttpOrigin {
    /// Returns the server of a URL.
    ///
    /// # Errors
    /// The URL has another scheme, no host, or a port that is none.
    pub fn of(url: &Uri) -> Result<Self, NoHttpOrigin> {
        let (is_tls, port) = match url.scheme_str() {
            Some("http") => (false, 80),
            Some("https") => (true, 443),
            _ => return Err(NoHttpOrigin::Scheme),
        };
        let authority = url.authority().ok_or(NoHttpOrigin::Host)?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        Ok(Self { host, port: port_of(authority)?.unwrap_or(port), is_tls })
    }

    /// Opens a connection, with TLS if `tls` is set.
    ///
    /// # Errors
    /// The server cannot be reached, or there is no agreement on TLS.
    pub async fn connect(
        &self,
        tls: Option<ClientConfig>,
    ) -> Result<HttpConnection, HttpClientError> {
        let stream = TcpStream::connect((self.host.as_str(), self.port));
        let stream = stream.await.map_err(HttpClientError::Connect)?;
        stream.set_nodelay(true).map_err(HttpClientError::Connect)?;
        let Some(mut config) = tls else { return HttpConnection::on(stream).await };
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        let name = ServerName::try_from(self.host.clone())
            .map_err(|error| HttpClientError::Handshake(io::Error::other(error)))?;
        let handshake = TlsConnector::from(Arc::new(config)).connect(name, stream);
        HttpConnection::on(handshake.await.map_err(HttpClientError::Handshake)?).await
    }
}

impl HttpConnection {
    async fn on<S>(stream: S) -> Result<Self, HttpClientError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (requests, connection) = handshake(TokioIo::new(stream)).await?;
        // Ends with the sender, which reports errors.
        tokio::spawn(connection);
        Ok(Self { requests })
    }

    /// Returns `true` if the server has closed the connection.
    pub fn is_closed(&self) -> bool {
        self.requests.is_closed()
    }

    /// Sends a request, and returns the response with a body of at most `max_body` bytes.
    ///
    /// # Errors
    /// There is no response, or a longer one. The connection must not be used again.
    pub async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
        max_body: usize,
    ) -> Result<Response<Bytes>, HttpClientError> {
        let (head, body) = self.exchange(request, max_body).await?;
        Ok(Response::from_parts(head, body?))
    }

    /// Sends a request, and returns the head of the response, and its body as [`send`](Self::send)
    /// does. The connection must not be used again after an error of the body.
    ///
    /// # Errors
    /// There is no response.
    pub async fn exchange(
        &mut self,
        request: Request<Full<Bytes>>,
        max_body: usize,
    ) -> Result<(Parts, Result<Bytes, HttpClientError>), HttpClientError> {
        self.requests.ready().await?;
        let (head, body) = self.requests.send_request(request).await?.into_parts();
        let body = Limited::new(body, max_body).collect().await.map_err(HttpClientError::Body);
        Ok((head, body.map(Collected::to_bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_has_the_port_of_its_scheme_or_its_own() {
        let port = |url: &'static str| HttpOrigin::of(&Uri::from_static(url)).map(|one| one.port);
        for (url, expected) in [
            ("http://a/", Ok(80)),
            ("https://user@[::1]", Ok(443)),
            ("http://0:8080", Ok(8080)),
            ("http://127.0.0.1:99999", Err(NoHttpOrigin::Port)),
            ("http://9:99999", Err(NoHttpOrigin::Port)),
            ("http://a:", Err(NoHttpOrigin::Port)),
        ] {
            assert_eq!(port(url), expected, "{url}");
        }
    }
}
