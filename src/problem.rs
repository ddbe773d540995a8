//! HttpProblem details for HTTP (RFC 9457): errors and denials as `application/problem+json`.

pub use http::StatusCode;
use serde_json::json;

/// Content type of a problem.
pub const PROBLEM_JSON: &str = "application/problem+json";

/// A problem: its HTTP status and its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpProblem {
    /// HTTP status.
    pub status: u16,
    /// The same as words.
    pub title: &'static str,
    /// The reason in this case.
    pub detail: String,
}

impl HttpProblem {
    /// Creates a problem. The title is the standard phrase of the status.
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        let title = status.canonical_reason().unwrap_or_default();
        Self { status: status.as_u16(), title, detail: detail.into() }
    }

    /// Returns the body.
    pub fn body(&self) -> String {
        let Self { status, title, detail } = self;
        json!({ "type": "about:blank", "title": title, "status": status, "detail": detail })
            .to_string()
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
