//! The endpoints `/auth/NAME`: decisions on requests that a gateway describes by headers, as
//! Traefik's ForwardAuth, Caddy's `forward_auth` and nginx's `auth_request` send them.
//!
//! `X-Forwarded-Method`, `-Host` and `-Uri` describe the request, each once: a gateway that does
//! not set one of them would pass on what its client sent. Nothing is read of a body.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use tokio::sync::Semaphore;

use super::server::AdminPeer;
use crate::problem::{GatewayAnswer, HttpProblem, PROBLEM_JSON};

/// Maximum number of requests that are decided concurrently. Others wait, and are bounded by the
/// connections.
const MAX_DECIDED: usize = 64;

/// A request that a gateway describes.
#[derive(Clone, Debug)]
pub struct ForwardedRequest {
    /// Name of the mapping.
    pub mapping: String,
    /// Address of the gateway.
    pub peer: SocketAddr,
    /// Method.
    pub method: HeaderValue,
    /// Host.
    pub host: HeaderValue,
    /// Request target.
    pub target: HeaderValue,
    /// All headers, as received from the gateway.
    pub headers: HeaderMap,
}

impl ForwardedRequest {
    /// Reads the headers that describe a request.
    ///
    /// # Errors
    /// One of them is missing, or there more than once.
    fn read(mapping: String, peer: SocketAddr, headers: HeaderMap) -> Result<Self, HttpProblem> {
        Ok(Self {
            mapping,
            peer,
            method: only(&headers, "x-forwarded-method")?,
            host: only(&headers, "x-forwarded-host")?,
            target: only(&headers, "x-forwarded-uri")?,
            headers,
        })
    }
}

impl IntoResponse for HttpProblem {
    fn into_response(self) -> Response {
        (self.status, [(header::CONTENT_TYPE, PROBLEM_JSON)], self.body()).into_response()
    }
}

impl IntoResponse for GatewayAnswer {
    fn into_response(self) -> Response {
        let mut response = match self.denial {
            None => StatusCode::OK.into_response(),
            Some(denial) => denial.into_response(),
        };
        for (name, value) in self.headers {
            let Ok(name) = HeaderName::try_from(name) else { continue };
            if let Ok(value) = HeaderValue::try_from(value) {
                response.headers_mut().insert(name, value);
            }
        }
        response
    }
}

type AuthAnswer = Pin<Box<dyn Future<Output = GatewayAnswer> + Send>>;

/// A handler of these endpoints, with its limit on concurrency.
#[derive(Clone)]
pub struct ForwardAuth {
    decide: Arc<dyn Fn(ForwardedRequest) -> AuthAnswer + Send + Sync>,
    deciding: Arc<Semaphore>,
}

impl ForwardAuth {
    /// Creates a handler.
    pub fn new<F>(decide: impl Fn(ForwardedRequest) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = GatewayAnswer> + Send + 'static,
    {
        Self {
            decide: Arc::new(move |request| Box::pin(decide(request))),
            deciding: Arc::new(Semaphore::new(MAX_DECIDED)),
        }
    }
}

/// Answers a request of a gateway.
pub(super) async fn answer(
    State(auth): State<ForwardAuth>,
    Path(mapping): Path<String>,
    Extension(peer): Extension<AdminPeer>,
    headers: HeaderMap,
) -> GatewayAnswer {
    let request = match ForwardedRequest::read(mapping, peer.address, headers) {
        Ok(request) => request,
        Err(denial) => return GatewayAnswer::denied(denial),
    };
    // The semaphore is never closed.
    let _deciding = auth.deciding.acquire().await;
    (auth.decide)(request).await
}

/// Returns the value of a header that a request must have once.
fn only(headers: &HeaderMap, name: &'static str) -> Result<HeaderValue, HttpProblem> {
    let mut lines = headers.get_all(name).iter();
    match (lines.next(), lines.next()) {
        (Some(value), None) => Ok(value.clone()),
        (None, _) | (Some(_), Some(_)) => {
            let found = headers.get_all(name).iter().count();
            let detail = format!("the gateway must set {name} once, found {found}");
            Err(HttpProblem::new(StatusCode::BAD_REQUEST, detail))
        }
    }
}
