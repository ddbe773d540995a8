//! The `/json` endpoints: decisions and operations on holds over HTTP, for clients without gRPC.
//! Bodies are parsed elsewhere.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::BytesMut;
use futures_util::StreamExt as _;
use tokio::sync::Semaphore;

use super::guard::check_same_origin;
use crate::problem::HttpProblem;
use crate::telemetry::http::{HttpMetrics, HttpPort, HttpRefusal};

/// Timeout for receiving the body of a request.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum size of a body in bytes: a request of 16 descriptors of 4 KB each.
const MAX_BODY: usize = 64 * 1024;
/// Memory that is reserved at a time for a body that arrives, in bytes.
const BLOCK: usize = 4 * 1024;
/// Maximum number of requests that are decided concurrently; others wait in their order. Parsed
/// JSON takes about 60 times its size in bytes.
const MAX_DECIDED: usize = 8;
/// Maximum time for which a request waits for others.
const MAX_WAIT: Duration = Duration::from_secs(1);

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
    hold: Arc<dyn Fn(usize) -> Option<HeldMemory> + Send + Sync>,
    deciding: Arc<Semaphore>,
    metrics: Option<Arc<HttpMetrics>>,
}

type HeldMemory = Box<dyn Send>;

type Deciding = Pin<Box<dyn Future<Output = Result<Decided, HttpProblem>> + Send>>;

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

/// A decision on a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided {
    /// The response as JSON.
    pub answer: String,
    /// `true` if the request is denied.
    pub is_over_limit: bool,
    /// Seconds after which a retry is worth it, if the request is denied and can be admitted.
    pub retry_after: Option<u64>,
}

impl Decide {
    /// Creates a handler. `decide` receives bodies of at most `max_bytes`, and never more than 64
    /// KiB.
    pub fn new<F>(
        max_bytes: usize,
        decide: impl Fn(DecidePath, Bytes) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<Decided, HttpProblem>> + Send + 'static,
    {
        Self {
            decide: Arc::new(move |path, body| Box::pin(decide(path, body))),
            max_bytes: max_bytes.min(MAX_BODY),
            hold: Arc::new(|_| Some(Box::new(()))),
            deciding: Arc::new(Semaphore::new(MAX_DECIDED)),
            metrics: None,
        }
    }

    /// Reserves memory for each body with `hold`, as it arrives, until the request is answered. If
    /// `hold` returns `None`, there is no memory for more.
    pub fn charged_by<H: Send + 'static>(
        self,
        hold: impl Fn(usize) -> Option<H> + Send + Sync + 'static,
    ) -> Self {
        Self {
            hold: Arc::new(move |bytes| hold(bytes).map(|held| Box::new(held) as HeldMemory)),
            ..self
        }
    }

    /// Counts refusals in `metrics`.
    pub(super) fn counted_by(self, metrics: &Arc<HttpMetrics>) -> Self {
        Self { metrics: Some(Arc::clone(metrics)), ..self }
    }

    /// Reads a body. Returns it with its memory, or the response to a request without one.
    async fn read(&self, body: Body) -> Result<(Bytes, Vec<HeldMemory>), Response> {
        let mut chunks = body.into_data_stream();
        let mut read = BytesMut::new();
        let mut held = Vec::new();
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.ok().filter(|chunk| read.len() + chunk.len() <= self.max_bytes);
            let Some(chunk) = chunk else {
                let why = format!("the request exceeds {} bytes", self.max_bytes);
                return Err(self.refuse(HttpRefusal::TooLarge, StatusCode::PAYLOAD_TOO_LARGE, why));
            };
            while held.len() * BLOCK < read.len() + chunk.len() {
                let Some(block) = (self.hold)(BLOCK) else {
                    let why = "memory for clients exhausted (--client-memory-max)";
                    return Err(self.busy(why));
                };
                held.push(block);
            }
            read.extend_from_slice(&chunk);
        }
        Ok((read.freeze(), held))
    }

    fn busy(&self, why: &str) -> Response {
        self.refuse(HttpRefusal::Busy, StatusCode::SERVICE_UNAVAILABLE, why)
    }

    fn refuse(&self, refusal: HttpRefusal, status: StatusCode, why: impl Into<String>) -> Response {
        if let Some(metrics) = &self.metrics {
            metrics.refused(HttpPort::Public, refusal);
        }
        HttpProblem::new(status, why).into_response()
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
    // A slot is taken once a body has arrived: one that never does keeps none from others.
    let (body, _held) = match tokio::time::timeout(BODY_TIMEOUT, decide.read(body)).await {
        Ok(Ok(read)) => read,
        Ok(Err(refused)) => return refused,
        Err(_) => {
            let why = "timed out waiting for the body";
            return decide.refuse(HttpRefusal::TooSlow, StatusCode::REQUEST_TIMEOUT, why);
        }
    };
    // The semaphore is never closed. Waiters are bounded by the number of connections.
    let Ok(_deciding) = tokio::time::timeout(MAX_WAIT, decide.deciding.acquire()).await else {
        return decide.busy("too many concurrent requests");
    };
    match (decide.decide)(path, body).await {
        Ok(Decided { answer, is_over_limit, retry_after }) => {
            let status = if is_over_limit { StatusCode::TOO_MANY_REQUESTS } else { StatusCode::OK };
            let mut response = (status, JSON, answer).into_response();
            if let Some(seconds) = retry_after {
                response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
            }
            response
        }
        Err(problem) => problem.into_response(),
    }
}
