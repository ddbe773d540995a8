//! Error responses of the public port.

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::problem::{HttpProblem, PROBLEM_JSON};

/// Returns an error response.
pub(super) fn problem(status: StatusCode, why: impl Into<String>) -> Response {
    let body = HttpProblem::new(status, why).body();
    (status, [(header::CONTENT_TYPE, PROBLEM_JSON)], body).into_response()
}
