//! Errors of the API: their statuses, texts and bodies.

use axum::Json;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::operations::{OperationError, OperationErrorKind};

/// An error response of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApiError {
    /// The request is not valid.
    Invalid(String),
    /// The request has no credentials.
    Unknown,
    /// The token is not known.
    UnknownToken,
    /// The client lacks the right.
    Forbidden(String),
    /// The resource does not exist.
    NotFound(String),
    /// The operation conflicts with the configuration or the resource.
    Conflict(String),
    /// The `Host` of the request is not one of this server.
    Misdirected(String),
    /// The content type of the request is not supported.
    Unsupported(String),
    /// The content was understood but is not valid. Holds a report.
    Unprocessable(String),
    /// The request cannot be answered now.
    Unavailable(String),
}

/// An error response.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ErrorBody {
    /// Error message.
    pub error: String,
}

impl ApiError {
    pub(in crate::admin) fn status(&self) -> StatusCode {
        match self {
            Self::Invalid(_) => StatusCode::BAD_REQUEST,
            Self::Unknown | Self::UnknownToken => StatusCode::UNAUTHORIZED,
            Self::Forbidden(_) => StatusCode::FORBIDDEN,
            Self::NotFound(_) => StatusCode::NOT_FOUND,
            Self::Conflict(_) => StatusCode::CONFLICT,
            Self::Misdirected(_) => StatusCode::MISDIRECTED_REQUEST,
            Self::Unsupported(_) => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Unprocessable(_) => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    pub(in crate::admin) fn text(&self) -> &str {
        match self {
            Self::Unknown => {
                "token required: send `Authorization: Bearer …`; see --admin-token-file"
            }
            Self::UnknownToken => "unknown token; use one from --admin-token-file",
            Self::Invalid(text)
            | Self::Forbidden(text)
            | Self::NotFound(text)
            | Self::Conflict(text)
            | Self::Misdirected(text)
            | Self::Unsupported(text)
            | Self::Unprocessable(text)
            | Self::Unavailable(text) => text,
        }
    }
}

impl From<OperationError> for ApiError {
    fn from(error: OperationError) -> Self {
        let text = error.to_string();
        match error.kind() {
            OperationErrorKind::Invalid => Self::Invalid(text),
            OperationErrorKind::NotFound => Self::NotFound(text),
            OperationErrorKind::Conflict => Self::Conflict(text),
            OperationErrorKind::Rejected => Self::Unprocessable(text),
            OperationErrorKind::Unavailable => Self::Unavailable(text),
        }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let problem = Json(ErrorBody { error: self.text().to_owned() });
        if matches!(self, Self::Unknown | Self::UnknownToken) {
            return (self.status(), [(header::WWW_AUTHENTICATE, "Bearer")], problem)
                .into_response();
        }
        (self.status(), problem).into_response()
    }
}
