//! `/json`: decisions over HTTP, for those who have no gRPC. What a request says is read elsewhere.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use tokio::sync::Semaphore;

use super::guard::same_site;

/// Time for a request's body to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes of a body: a request of 16 descriptors of 4 KB each.
const MAX_BODY: usize = 64 * 1024;
/// Bodies that are read at once: 4 MiB of them.
const MAX_READ: usize = 64;
/// Requests that are decided at once; what JSON becomes takes some 60 times its bytes.
const MAX_DECIDED: usize = 8;

/// Decides a request that is the body, and how long a body may be.
#[derive(Clone)]
pub struct Decide {
    decide: Arc<dyn Fn(Bytes) -> Deciding + Send + Sync>,
    max_bytes: usize,
    reading: Arc<Semaphore>,
    deciding: Arc<Semaphore>,
}

type Deciding = Pin<Box<dyn Future<Output = Decided> + Send>>;

/// What came of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decided {
    /// Admitted; the answer, as JSON.
    Ok(String),
    /// Denied; the answer, as JSON.
    OverLimit(String),
    /// It is no request: why.
    Invalid(String),
    /// Nobody may ask here: why.
    Forbidden(String),
    /// Nobody decided: why.
    Undecided(String),
}

impl Decide {
    /// `decide` receives bodies of at most `max_bytes`, and never more than 64 KiB.
    pub fn new<F>(max_bytes: usize, decide: impl Fn(Bytes) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Decided> + Send + 'static,
    {
        Self {
            decide: Arc::new(move |body| Box::pin(decide(body))),
            max_bytes: max_bytes.min(MAX_BODY),
            reading: Arc::new(Semaphore::new(MAX_READ)),
            deciding: Arc::new(Semaphore::new(MAX_DECIDED)),
        }
    }
}

pub(super) async fn answer(State(decide): State<Decide>, headers: HeaderMap, body: Body) -> Response {
    let Decide { decide, max_bytes, reading, deciding } = decide;
    if let Err(why) = same_site(&headers) {
        return (StatusCode::FORBIDDEN, why + "\n").into_response();
    }
    let Ok(_reading) = reading.try_acquire() else {
        let text = format!("more than {MAX_READ} requests at once\n");
        return (StatusCode::SERVICE_UNAVAILABLE, text).into_response();
    };
    let body = match tokio::time::timeout(BODY_TIMEOUT, to_bytes(body, max_bytes)).await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => {
            let text = format!("a request has at most {max_bytes} bytes\n");
            return (StatusCode::PAYLOAD_TOO_LARGE, text).into_response();
        }
        Err(_) => return (StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time\n").into_response(),
    };
    let json = |status, text| (status, [(header::CONTENT_TYPE, "application/json")], text).into_response();
    // The semaphore is never closed. What waits is among the few whose bodies are read.
    let _deciding = deciding.acquire().await;
    match decide(body).await {
        Decided::Ok(answer) => json(StatusCode::OK, answer),
        Decided::OverLimit(answer) => json(StatusCode::TOO_MANY_REQUESTS, answer),
        Decided::Invalid(why) => (StatusCode::BAD_REQUEST, why + "\n").into_response(),
        Decided::Forbidden(why) => (StatusCode::FORBIDDEN, why + "\n").into_response(),
        Decided::Undecided(why) => (StatusCode::SERVICE_UNAVAILABLE, why + "\n").into_response(),
    }
}
