//! Errors of exports.

use std::time::Duration;

use http::StatusCode;

use crate::grpc::client::{AnyError, cause};
use crate::http_client::HttpClientError;
use crate::tls::ClientTlsError;

/// The reason why the collector did not accept a batch.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExportError {
    #[error("{0}")]
    Tls(#[from] ClientTlsError),
    #[error("{0}")]
    Request(#[from] http::Error),
    #[error("{}{error}", if matches!(error, HttpClientError::Body(_)) { UNREAD } else { "" })]
    Exchange {
        #[from]
        error: HttpClientError,
    },
    #[error("{UNREAD}{0}")]
    Response(#[from] prost::DecodeError),
    #[error("the collector returned {status}: {text}")]
    Status { status: StatusCode, text: String },
    /// The endpoint is invalid.
    #[error("{}", cause(&**.0))]
    Endpoint(#[from] AnyError),
    /// The collector refused a call of gRPC.
    #[error("{message}")]
    Call { message: String },
    #[error("no response within {0:?}")]
    Late(Duration),
}

const UNREAD: &str = "failed to read the response: ";
