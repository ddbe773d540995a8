//! Tracing spans: creates the tracer and the export task, if tracing is configured.

use std::sync::Arc;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::otlp;
use crate::settings::TracingSettings;
use crate::spans::Tracer;
use crate::telemetry::metrics::Metrics;

/// Starts to export spans to the configured collector, until `ended` is cancelled.
pub(super) fn begin(
    settings: Option<TracingSettings>,
    metrics: &Arc<Metrics>,
    ended: &CancellationToken,
) -> (Option<Tracer>, Option<JoinHandle<()>>) {
    let Some(TracingSettings { collector, sampler }) = settings else { return (None, None) };
    let (tracer, spans) = Tracer::new(sampler, Arc::clone(metrics));
    let sending = tokio::spawn(otlp::send(collector, spans, Arc::clone(metrics), ended.clone()));
    (Some(tracer), Some(sending))
}
