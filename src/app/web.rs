//! What is served over HTTP.

use std::future::Future;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::{log_end, pages};
use crate::admin::{self, Decide, Facts};
use crate::limiter::InForce;
use crate::telemetry::metrics::Metrics;

/// What is told over HTTP.
pub(super) struct Web {
    pub(super) facts: Arc<Facts>,
    pub(super) policies: Arc<InForce>,
    pub(super) metrics: Arc<Metrics>,
}

impl Web {
    /// Probes, metrics and decisions, until `end`.
    pub(super) fn serve_public(
        &self,
        listener: TcpListener,
        decide: Decide,
        end: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        let (facts, metrics) = (Arc::clone(&self.facts), Arc::clone(&self.metrics));
        tokio::spawn(log_end("http", admin::serve_public(listener, facts, metrics, decide, end)))
    }

    /// Administration, until `end`.
    pub(super) fn serve_admin(
        &self,
        listener: TcpListener,
        end: impl Future<Output = ()> + Send + 'static,
    ) -> JoinHandle<()> {
        let pages = pages::all(&self.policies, &self.metrics);
        tokio::spawn(log_end("admin", admin::serve_admin(listener, Arc::clone(&self.facts), pages, end)))
    }
}
