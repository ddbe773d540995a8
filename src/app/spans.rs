//! Tracing spans: creates the tracer and the export task, if tracing is configured.

use std::sync::Arc;

use super::tasks::Tasks;
use crate::otlp;
use crate::settings::TracingSettings;
use crate::telemetry::span_export::SpanMetrics;
use crate::telemetry::spans::Tracer;

/// Starts to export spans to the configured collector, until the tasks end.
pub(super) fn begin(
    settings: Option<TracingSettings>,
    metrics: &Arc<SpanMetrics>,
    tasks: &mut Tasks,
) -> Option<Tracer> {
    let TracingSettings { collector, sampler } = settings?;
    let (tracer, spans) = Tracer::new(sampler, Arc::clone(metrics));
    let ended = tasks.token().clone();
    let sending = tokio::spawn(otlp::send(collector, spans, Arc::clone(metrics), ended));
    tasks.add_finishing("spans", sending);
    Some(tracer)
}
