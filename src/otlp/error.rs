//! Errors of exports.

use std::time::Duration;

use http::StatusCode;
use http::uri::InvalidUri;

use crate::http_client::{HttpClientError, NoHttpOrigin, TlsConfigError};

/// The reason why the collector did not accept a batch.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExportError {
    #[error("{0}")]
    Url(#[from] InvalidUri),
    #[error("{0}")]
    Server(#[from] NoHttpOrigin),
    #[error("{0}")]
    Tls(#[from] TlsConfigError),
    #[error("{0}")]
    Request(#[from] http::Error),
    #[error("{}{error}", if error.is_of_body() { UNREAD } else { "" })]
    Exchange {
        #[from]
        error: HttpClientError,
    },
    #[error("{UNREAD}{0}")]
    Response(#[from] prost::DecodeError),
    #[error("the collector returned {status}: {text}")]
    Status { status: StatusCode, text: String },
    /// The endpoint of gRPC is invalid.
    #[error("{reason}")]
    Endpoint { reason: String },
    /// The collector refused a call of gRPC.
    #[error("{message}")]
    Call { message: String },
    #[error("no response within {0:?}")]
    Late(Duration),
}

const UNREAD: &str = "failed to read the response: ";
