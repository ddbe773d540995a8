//! Errors of the API: their statuses, texts and bodies.

use axum::Json;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::operations::OperationError;

/// An error response of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    /// Status of the response.
    pub status: StatusCode,
    /// The error message.
    pub text: String,
}

/// An error response.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// Error message.
    pub error: String,
}

impl ApiError {
    /// Creates an error response.
    pub fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self { status, text: text.into() }
    }

    /// Creates the error response to an invalid request.
    pub fn invalid(text: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, text)
    }
}

impl From<OperationError> for ApiError {
    fn from(error: OperationError) -> Self {
        let status = match error {
            OperationError::Descriptor { .. } | OperationError::Request(_) => {
                StatusCode::BAD_REQUEST
            }
            OperationError::NoCounter(_)
            | OperationError::NotRecorded { .. }
            | OperationError::HashedValues { .. } => StatusCode::NOT_FOUND,
            OperationError::Ban { .. }
            | OperationError::Callers(_)
            | OperationError::Counters(_)
            | OperationError::Position(_)
            | OperationError::ControlPlane => StatusCode::CONFLICT,
            OperationError::Rejected(_) | OperationError::Interrupted(_) => {
                StatusCode::UNPROCESSABLE_ENTITY
            }
            OperationError::NoPolicy
            | OperationError::Undecided(_)
            | OperationError::Store(_)
            | OperationError::MaybeApplied(_)
            | OperationError::Scan(_) => StatusCode::SERVICE_UNAVAILABLE,
        };
        Self::new(status, error.to_string())
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let Self { status, text } = self;
        let problem = Json(ErrorBody { error: text });
        if status == StatusCode::UNAUTHORIZED {
            return (status, [(header::WWW_AUTHENTICATE, "Bearer")], problem).into_response();
        }
        (status, problem).into_response()
    }
}
