//! Spans, where they are wanted: what records them, and the task that sends them.

use std::sync::Arc;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::otlp;
use crate::settings::TracingSettings;
use crate::spans::Tracer;
use crate::telemetry::metrics::Metrics;

/// Begins to send spans to where the settings say, until `ended`.
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
