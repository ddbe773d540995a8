//! Parsing of a line of a trace or an access log to a request and its time.

use serde_json::Value;

use crate::algorithm::time::Timestamp;
use crate::descriptor::Request;
use crate::grpc::json::{self, JsonError};
use crate::grpc::request::{self, RequestBounds, RequestError};
use crate::limiter::Undecided;
use crate::policy::PolicySet;
use crate::scenario::access_log::{AccessLogMap, LineContents, LineRequest, LogLineError, instant};

/// The format of lines.
pub(super) enum Format {
    /// A trace: `at` and `request`.
    Trace,
    /// An access log, with the mapping of its fields to a request.
    AccessLog(Box<AccessLogMap>),
}

/// A request and its time.
pub(super) struct Line {
    /// Time of the request, as written.
    pub(super) at: Value,
    pub(super) instant: Timestamp,
    content: LineContent,
}

/// The request of a line.
enum LineContent {
    /// A message of the protocol.
    Message(Vec<u8>),
    Logged(LineContents),
}

/// The request of a line, mapped by policies if it is an HTTP request.
pub(super) enum LineOf<'l> {
    Message(&'l [u8]),
    Logged(&'l LineRequest),
    Mapped(LineRequest),
}

/// The reason why a line cannot be replayed.
#[derive(Debug, thiserror::Error)]
pub(super) enum LineError {
    /// The line is no JSON.
    #[error("not valid JSON: {0}")]
    NoJson(#[from] serde_json::Error),
    #[error("{0}")]
    Log(#[from] LogLineError),
    #[error(
        "`at` is missing: expected a line {{\"at\": TIME, \"request\": RateLimitRequest}}; \
         an access log is read with --access-log and --map"
    )]
    NoTime,
    #[error("`request` is missing")]
    NoRequestField,
    #[error("request: {0}")]
    RequestField(JsonError),
    #[error("the line contains no request")]
    NoRequest,
    #[error("{0}")]
    Request(#[from] RequestError),
    #[error("no policy is loaded")]
    NoPolicy,
    #[error("{0}")]
    Undecided(#[from] Undecided),
    /// The response cannot be written as JSON.
    #[error("{0}")]
    Response(JsonError),
}

impl LineError {
    /// Formats the error after the position of its line, with the column in JSON.
    pub(super) fn at(&self, position: &str) -> String {
        let text = self.to_string();
        let Self::NoJson(error) = self else { return format!("{position}: {text}") };
        // The line is one of the file, not the first.
        let of_line = format!(" at line {} column {}", error.line(), error.column());
        format!("{position}:{}: {}", error.column(), text.replacen(&of_line, "", 1))
    }
}

impl Format {
    /// Parses a line; returns `None` if it contains no request: the field of its domain is missing,
    /// or none of its descriptors has all of its fields.
    ///
    /// # Errors
    /// The line cannot be parsed.
    pub(super) fn read(&self, line: &[u8]) -> Result<Option<Line>, LineError> {
        let mut line: Value = serde_json::from_slice(line)?;
        match self {
            Self::Trace => {
                let Some(at) = line.get("at").cloned() else {
                    return Err(LineError::NoTime);
                };
                let instant = instant("at", &at, 1)?;
                let message = line.get_mut("request").map(Value::take);
                let message = json::request(message.ok_or(LineError::NoRequestField)?)
                    .map_err(LineError::RequestField)?;
                Ok(Some(Line { at, instant, content: LineContent::Message(message) }))
            }
            Self::AccessLog(map) => {
                let at = map.time_of(&line);
                let instant = instant(&map.time, &at, map.scale)?;
                let logged = map.request_of(&line)?;
                Ok(logged.map(|logged| Line { at, instant, content: LineContent::Logged(logged) }))
            }
        }
    }
}

impl Line {
    /// Returns the content by these policies.
    ///
    /// # Errors
    /// The policies have no mapping for it, or the mapping denies the request.
    pub(super) fn by(&self, policies: &PolicySet) -> Result<LineOf<'_>, LogLineError> {
        Ok(match &self.content {
            LineContent::Message(message) => LineOf::Message(message),
            LineContent::Logged(LineContents::Line(request)) => LineOf::Logged(request),
            LineContent::Logged(LineContents::Http(http)) => LineOf::Mapped(http.mapped(policies)?),
        })
    }
}

impl LineOf<'_> {
    /// Returns the request.
    ///
    /// # Errors
    /// The request is invalid.
    pub(super) fn request(&self) -> Result<Request<'_>, RequestError> {
        match self {
            LineOf::Message(message) => {
                let bounds = RequestBounds {
                    descriptors: usize::MAX,
                    entries: usize::MAX,
                    all_entries: usize::MAX,
                };
                request::read(message, &bounds)
            }
            LineOf::Logged(request) => Ok(request.request()),
            LineOf::Mapped(request) => Ok(request.request()),
        }
    }
}
