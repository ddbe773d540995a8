//! HTTP: probes and metrics for machines, and what is in force for people. The only room that knows HTTP.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use parking_lot::Mutex;
use serde::Serialize;
use tokio::net::TcpListener;

use crate::telemetry::mapping::Exposition;
use crate::telemetry::metrics::Metrics;

/// What Prometheus asks for, and what its text is.
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The same in its older form.
const PROMETHEUS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What the process says of itself over HTTP.
#[derive(Default)]
pub struct Facts {
    has_policy: AtomicBool,
    has_store: AtomicBool,
    is_draining: AtomicBool,
    policies: Mutex<PolicyFacts>,
}

/// The policies in force, and what came of the last attempt to load others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PolicyFacts {
    /// The content's hash.
    pub version: String,
    /// When they were put in force, RFC 3339.
    pub loaded_at: String,
    /// The files they came from.
    pub files: Vec<String>,
    /// Domains, in order.
    pub domains: Vec<String>,
    /// Rules in all.
    pub rules: usize,
    /// The report on a change that was refused since.
    pub last_error: Option<String>,
}

impl Facts {
    /// A policy set was put in force.
    pub fn loaded(&self, facts: PolicyFacts) {
        *self.policies.lock() = facts;
        self.has_policy.store(true, Ordering::Release);
    }

    /// The store was reached, or need not be.
    pub fn store_is_ready(&self) {
        self.has_store.store(true, Ordering::Release);
    }

    /// A change was refused.
    pub fn refused(&self, report: String) {
        self.policies.lock().last_error = Some(report);
    }

    /// The process is about to end.
    pub fn drain(&self) {
        self.is_draining.store(true, Ordering::Release);
    }

    /// Why the process should not be asked, if it should not.
    fn unready(&self) -> Option<&'static str> {
        if self.is_draining.load(Ordering::Acquire) {
            Some("draining\n")
        } else if !self.has_policy.load(Ordering::Acquire) {
            Some("no policy is loaded yet\n")
        } else if !self.has_store.load(Ordering::Acquire) {
            Some("the store has not been reached yet\n")
        } else {
            None
        }
    }
}

/// Serves probes and metrics until `shutdown`.
///
/// # Errors
/// Where the listener fails.
pub async fn serve_public(
    listener: TcpListener,
    facts: Arc<Facts>,
    metrics: Arc<Metrics>,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let router = Router::new()
        .route("/livez", get(|| async { "ok\n" }))
        .route("/readyz", get(ready).with_state(facts))
        .route("/metrics", get(render).with_state(metrics))
        .fallback(|| async { (StatusCode::NOT_FOUND, "not here; there are /livez, /readyz and /metrics\n") });
    axum::serve(listener, router).with_graceful_shutdown(shutdown).await
}

/// Serves the statistics of envoyproxy/ratelimit at `path` until `shutdown`.
///
/// # Errors
/// Where the listener fails.
pub async fn serve_stats(
    listener: TcpListener,
    path: String,
    exposition: Arc<Exposition>,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let text = |State(exposition): State<Arc<Exposition>>| async move {
        ([(header::CONTENT_TYPE, PROMETHEUS_TEXT)], exposition.render())
    };
    let router = Router::new().route(&path, get(text).with_state(exposition));
    axum::serve(listener, router).with_graceful_shutdown(shutdown).await
}

/// Serves administration until `shutdown`.
///
/// # Errors
/// Where the listener fails.
pub async fn serve_admin(
    listener: TcpListener,
    facts: Arc<Facts>,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let router = Router::new()
        .route("/policies", get(policies).with_state(facts))
        .fallback(|| async { (StatusCode::NOT_FOUND, "not here; there is /policies\n") });
    axum::serve(listener, router).with_graceful_shutdown(shutdown).await
}

async fn ready(State(facts): State<Arc<Facts>>) -> Response {
    match facts.unready() {
        None => "ok\n".into_response(),
        Some(reason) => (StatusCode::SERVICE_UNAVAILABLE, reason).into_response(),
    }
}

async fn render(State(metrics): State<Arc<Metrics>>) -> Response {
    match metrics.render() {
        Ok(text) => ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn policies(State(facts): State<Arc<Facts>>) -> Json<PolicyFacts> {
    Json(facts.policies.lock().clone())
}
