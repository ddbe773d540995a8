//! `/json`: decisions over HTTP, for those who have no gRPC. What a request says is read elsewhere.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

/// Time for a request's body to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Decides a request that is the body, and how long a body may be.
#[derive(Clone)]
pub struct Decide {
    decide: Arc<dyn Fn(Bytes) -> Deciding + Send + Sync>,
    max_bytes: usize,
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
    /// `decide` is given bodies of at most `max_bytes`.
    pub fn new<F>(max_bytes: usize, decide: impl Fn(Bytes) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Decided> + Send + 'static,
    {
        Self { decide: Arc::new(move |body| Box::pin(decide(body))), max_bytes }
    }
}

pub(super) async fn answer(State(decide): State<Decide>, body: Body) -> Response {
    let Decide { decide, max_bytes } = decide;
    let body = match tokio::time::timeout(BODY_TIMEOUT, to_bytes(body, max_bytes)).await {
        Ok(Ok(body)) => body,
        Ok(Err(_)) => {
            let text = format!("a request has at most {max_bytes} bytes\n");
            return (StatusCode::PAYLOAD_TOO_LARGE, text).into_response();
        }
        Err(_) => return (StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time\n").into_response(),
    };
    let json = |status, text| (status, [(header::CONTENT_TYPE, "application/json")], text).into_response();
    match decide(body).await {
        Decided::Ok(answer) => json(StatusCode::OK, answer),
        Decided::OverLimit(answer) => json(StatusCode::TOO_MANY_REQUESTS, answer),
        Decided::Invalid(why) => (StatusCode::BAD_REQUEST, why + "\n").into_response(),
        Decided::Forbidden(why) => (StatusCode::FORBIDDEN, why + "\n").into_response(),
        Decided::Undecided(why) => (StatusCode::SERVICE_UNAVAILABLE, why + "\n").into_response(),
    }
}
