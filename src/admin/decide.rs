//! The `/json` endpoints: decisions and operations on holds over HTTP, for clients without gRPC.
//! Bodies are parsed elsewhere.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use tokio::sync::Semaphore;

use super::guard::check_same_origin;
use super::problem_response::problem;
use crate::telemetry::http::{HttpMetrics, HttpPort, HttpRefusal};

/// Timeout for receiving the body of a request.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum size of a body in bytes: a request of 16 descriptors of 4 KB each.
const MAX_BODY: usize = 64 * 1024;
/// Maximum number of bodies that are read concurrently: 4 MiB in total.
const MAX_READ: usize = 64;
/// Maximum number of requests that are decided concurrently. Parsed JSON takes about 60 times its
/// size in bytes.
const MAX_DECIDED: usize = 8;

/// Header of a response in JSON.
const JSON: [(HeaderName, &str); 1] = [(header::CONTENT_TYPE, "application/json")];

/// A handler that decides the request in a body, with its limits on body size, memory and
/// concurrency.
#[derive(Clone)]
pub struct Decide {
    decide: Arc<dyn Fn(DecidePath, Bytes) -> Deciding + Send + Sync>,
    max_bytes: usize,
    /// Reserves memory for a body until the returned value is dropped. Returns `None` if clients
    /// already hold as much memory as they may.
    hold: Arc<dyn Fn(usize) -> Option<Box<dyn Send>> + Send + Sync>,
    reading: Arc<Semaphore>,
    deciding: Arc<Semaphore>,
    metrics: Option<Arc<HttpMetrics>>,
}

type Deciding = Pin<Box<dyn Future<Output = DecideAnswer> + Send>>;

/// The kind of a request, by its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecidePath {
    /// `/json`: a decision on a request.
    RateLimit,
    /// `/json/reserve`: a charge that is remembered by an ID.
    Reserve,
    /// `/json/extend`: a new TTL of the holds of an ID.
    Extend,
    /// `/json/commit`: the end of a hold, with its cost.
    Commit,
    /// `/json/cancel`: the end of a hold, whose hits are given back.
    Cancel,
    /// `/json/exchange`: hits that are lent, and returned.
    Exchange,
}

impl DecidePath {
    /// All paths.
    pub const ALL: [Self; 6] =
        [Self::RateLimit, Self::Reserve, Self::Extend, Self::Commit, Self::Cancel, Self::Exchange];

    /// Returns the path.
    pub const fn path(self) -> &'static str {
        match self {
            Self::RateLimit => "/json",
            Self::Reserve => "/json/reserve",
            Self::Extend => "/json/extend",
            Self::Commit => "/json/commit",
            Self::Cancel => "/json/cancel",
            Self::Exchange => "/json/exchange",
        }
    }
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecideAnswer {
    /// Admitted, with the response as JSON.
    Ok(String),
    /// Denied.
    OverLimit {
        /// The response as JSON.
        answer: String,
        /// Seconds after which a retry is worth it.
        retry_after: u64,
    },
    /// Not a valid request, with the reason.
    Invalid(String),
    /// Not permitted over HTTP, with the reason.
    Forbidden(String),
    /// Nothing to extend, with the reason.
    NotFound(String),
    /// In conflict with other holds, with the reason.
    Conflict(String),
    /// Not decided, with the reason.
    Undecided(String),
}

impl Decide {
    /// Creates a handler. `decide` receives bodies of at most `max_bytes`, and never more than 64
    /// KiB.
    pub fn new<F>(
        max_bytes: usize,
        decide: impl Fn(DecidePath, Bytes) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = DecideAnswer> + Send + 'static,
    {
        Self {
            decide: Arc::new(move |path, body| Box::pin(decide(path, body))),
            max_bytes: max_bytes.min(MAX_BODY),
            hold: Arc::new(|_| Some(Box::new(()))),
            reading: Arc::new(Semaphore::new(MAX_READ)),
            deciding: Arc::new(Semaphore::new(MAX_DECIDED)),
            metrics: None,
        }
    }

    /// Reserves memory for each body with `hold` until the request is answered. If `hold` returns
    /// `None`, there is no memory for another body.
    pub fn charged_by<H: Send + 'static>(
        self,
        hold: impl Fn(usize) -> Option<H> + Send + Sync + 'static,
    ) -> Self {
        Self {
            hold: Arc::new(move |bytes| hold(bytes).map(|held| Box::new(held) as Box<dyn Send>)),
            ..self
        }
    }

    /// Counts refusals in `metrics`.
    pub(super) fn counted_by(self, metrics: &Arc<HttpMetrics>) -> Self {
        Self { metrics: Some(Arc::clone(metrics)), ..self }
    }

    fn refuse(&self, refusal: HttpRefusal, status: StatusCode, why: String) -> Response {
        if let Some(metrics) = &self.metrics {
            metrics.refused(HttpPort::Public, refusal);
        }
        problem(status, why)
    }
}

pub(super) async fn answer(
    State((path, decide)): State<(DecidePath, Decide)>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    if let Err(why) = check_same_origin(&headers) {
        return decide.refuse(HttpRefusal::Origin, StatusCode::FORBIDDEN, why.to_string());
    }
    let Ok(_reading) = decide.reading.try_acquire() else {
        let why = format!("more than {MAX_READ} concurrent requests");
        return decide.refuse(HttpRefusal::Busy, StatusCode::SERVICE_UNAVAILABLE, why);
    };
    let max_bytes = decide.max_bytes;
    let Some(_held) = (decide.hold)(max_bytes) else {
        let why = "memory for clients exhausted (--client-memory-max)".to_owned();
        return decide.refuse(HttpRefusal::Busy, StatusCode::SERVICE_UNAVAILABLE, why);
    };
    let body = match tokio::time::timeout(BODY_TIMEOUT, to_bytes(body, max_bytes)).await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => {
            let why = format!("the request exceeds {max_bytes} bytes");
            return decide.refuse(HttpRefusal::TooLarge, StatusCode::PAYLOAD_TOO_LARGE, why);
        }
        Err(_) => {
            let why = "timed out waiting for the body".to_owned();
            return decide.refuse(HttpRefusal::TooSlow, StatusCode::REQUEST_TIMEOUT, why);
        }
    };
    // The semaphore is never closed. Waiters are bounded by the number of bodies that may be read.
    let _deciding = decide.deciding.acquire().await;
    match (decide.decide)(path, body).await {
        DecideAnswer::Ok(answer) => (StatusCode::OK, JSON, answer).into_response(),
        DecideAnswer::OverLimit { answer, retry_after } => {
            let retry_after = [(header::RETRY_AFTER, retry_after)];
            (StatusCode::TOO_MANY_REQUESTS, JSON, retry_after, answer).into_response()
        }
        DecideAnswer::Invalid(why) => problem(StatusCode::BAD_REQUEST, why),
        DecideAnswer::Forbidden(why) => problem(StatusCode::FORBIDDEN, why),
        DecideAnswer::NotFound(why) => problem(StatusCode::NOT_FOUND, why),
        DecideAnswer::Conflict(why) => problem(StatusCode::CONFLICT, why),
        DecideAnswer::Undecided(why) => problem(StatusCode::SERVICE_UNAVAILABLE, why),
    }
}
