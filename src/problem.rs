//! Answers on HTTP requests of gateways, and problem details (RFC 9457): errors and denials as
//! `application/problem+json`.

pub use http::StatusCode;
use serde_json::json;

/// Content type of a problem.
pub const PROBLEM_JSON: &str = "application/problem+json";

/// A problem: its HTTP status and its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpProblem {
    /// HTTP status.
    pub status: StatusCode,
    /// The reason in this case.
    pub detail: String,
}

impl HttpProblem {
    /// Creates a problem.
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { status, detail: detail.into() }
    }

    /// Returns the body. Its title is the standard phrase of the status.
    pub fn body(&self) -> String {
        let title = self.status.canonical_reason().unwrap_or_default();
        let status = self.status.as_u16();
        json!({ "type": "about:blank", "title": title, "status": status, "detail": self.detail })
            .to_string()
    }
}

/// The answer to a gateway about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayAnswer {
    /// Headers for the client of the gateway.
    pub headers: Vec<(String, String)>,
    /// The reason of a denial, with its HTTP status; `None` if the request is admitted.
    pub denial: Option<HttpProblem>,
}

impl GatewayAnswer {
    /// Returns the answer that admits.
    pub fn admitted() -> Self {
        Self { headers: Vec::new(), denial: None }
    }

    /// Returns the answer that denies.
    pub fn denied(denial: HttpProblem) -> Self {
        let headers = vec![("content-type".to_owned(), PROBLEM_JSON.to_owned())];
        Self { headers, denial: Some(denial) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_has_the_members_of_the_standard() {
        let body = HttpProblem::new(StatusCode::TOO_MANY_REQUESTS, "over limit").body();
        assert_eq!(
            body,
            r#"{"type":"about:blank","title":"Too Many Requests","status":429,"detail":"over limit"}"#
        );
    }
}
