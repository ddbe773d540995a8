//! Errors of calls to the admin port.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use hyper::http::uri::InvalidUri;
use rustls::pki_types::pem;

use crate::http_client::{HttpClientError, NoHttpOrigin, TlsConfigError};

/// The reason why a call to the admin port failed.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum AdminCallError {
    /// The system lacks the resources for a runtime.
    #[error("{0}")]
    Runtime(#[from] io::Error),
    /// The call itself failed.
    #[error("--admin {url}: {failure}")]
    Call { url: String, failure: AdminCallFailure },
    /// The body of the request is no JSON.
    #[error("{0}")]
    Body(serde_json::Error),
    #[error("--token-file {}: {error}", path.display())]
    TokenFile { path: PathBuf, error: io::Error },
    #[error("--token-file {}: the file contains no token", path.display())]
    NoToken { path: PathBuf },
    /// TLS cannot be set up as the flags require.
    #[error("{0}")]
    Tls(#[from] ClientTlsError),
}

/// The reason why a call failed.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum AdminCallFailure {
    #[error("{0}")]
    Url(#[from] InvalidUri),
    #[error("{0}")]
    Server(#[from] NoHttpOrigin),
    #[error("{0}")]
    Request(#[from] hyper::http::Error),
    #[error("{0}; set the address with --admin URL or TOLLGATE_ADMIN")]
    Connect(io::Error),
    #[error("{0}")]
    Exchange(HttpClientError),
    #[error("no response within {0:?}")]
    Late(Duration),
    #[error("{status}: {problem}{}", if *status == 401 { "; set the token with --token-file FILE" } else { "" })]
    Refused { status: u16, problem: String },
    #[error("not a response of a tollgate admin port: {0}")]
    Response(serde_json::Error),
}

/// The reason why there is no TLS connection.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum ClientTlsError {
    #[error("{}: {error}", path.display())]
    File { path: PathBuf, error: pem::Error },
    #[error("no CA certificate in {source_name}")]
    NoAuthority { source_name: String },
    #[error("{}: {error}", path.display())]
    Identity { path: PathBuf, error: rustls::Error },
    #[error("{0}")]
    Config(TlsConfigError),
    #[error("{host}: {error}")]
    Host { host: String, error: HttpClientError },
}

/// The reason why there is no connection.
#[derive(Debug)]
pub(super) enum Unconnected {
    Client(HttpClientError),
    Tls(ClientTlsError),
}

impl From<HttpClientError> for Unconnected {
    fn from(error: HttpClientError) -> Self {
        Self::Client(error)
    }
}

impl From<ClientTlsError> for Unconnected {
    fn from(error: ClientTlsError) -> Self {
        Self::Tls(error)
    }
}
