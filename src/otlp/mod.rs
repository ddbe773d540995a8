//! Export of spans to a collector by OTLP over gRPC or HTTP: in batches, in the background, dropped
//! if the collector is unavailable.

mod error;
mod http;
mod messages;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tonic::Request;
use tonic::transport::{Channel, Endpoint};
use tracing::warn;

use self::error::ExportError;
use self::http::HttpExporter;
use crate::grpc::client::{AnyError, ClientTls, Header};
use crate::grpc::proto::opentelemetry::proto::collector::trace::v1::ExportTraceServiceRequest;
use crate::grpc::proto::opentelemetry::proto::collector::trace::v1::trace_service_client::TraceServiceClient;
use crate::telemetry::log_throttle::LogThrottle;
use crate::telemetry::span_export::SpanMetrics;
use crate::telemetry::spans::CallSpan;

/// Maximum number of spans in a batch, and the time that the first one waits for more.
const BATCH: usize = 512;
const DELAY: Duration = Duration::from_secs(1);
/// Timeout for the export of a batch.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);

/// The protocol of a collector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtlpProtocol {
    /// OTLP over gRPC.
    Grpc,
    /// OTLP over HTTP: POST of protobuf messages.
    Http,
}

/// A collector of spans, and the resource to report.
#[derive(Clone, Debug, PartialEq)]
pub struct Collector {
    /// URL of the collector; its scheme selects TLS or plaintext. With the path for HTTP.
    pub endpoint: String,
    /// Protocol of the collector.
    pub protocol: OtlpProtocol,
    /// Headers of the calls.
    pub headers: Vec<Header>,
    /// Attributes of the resource, including `service.name`.
    pub resource: Vec<(String, String)>,
}

/// A client of the collector; connects on first use and reconnects as needed.
enum Exporter {
    Grpc(TraceServiceClient<Channel>),
    Http(HttpExporter),
}

/// Sends spans until `ended`, then flushes the queued ones.
pub async fn send(
    collector: Collector,
    mut spans: mpsc::Receiver<CallSpan>,
    metrics: Arc<SpanMetrics>,
    ended: CancellationToken,
) {
    let mut exporter = None;
    let failures = LogThrottle::default();
    loop {
        let batch = next_batch(&mut spans, &ended).await;
        if batch.is_empty() {
            return;
        }
        let count = u64::try_from(batch.len()).unwrap_or(u64::MAX);
        let sent = timeout(EXPORT_TIMEOUT, collector.export(&mut exporter, batch)).await;
        match sent.unwrap_or(Err(ExportError::Late(EXPORT_TIMEOUT))) {
            Ok(rejected) => {
                metrics.sent.inc_by(count.saturating_sub(rejected));
                metrics.dropped.inc_by(rejected);
            }
            Err(error) => {
                metrics.dropped.inc_by(count);
                if let Some(times) = failures.due() {
                    let error = error.to_string();
                    warn!(
                        endpoint = collector.endpoint,
                        error, times, "failed to send spans; dropped"
                    );
                }
            }
        }
    }
}

/// Waits for a span, and briefly for more. After `ended`, returns the spans left in the queue.
async fn next_batch(
    spans: &mut mpsc::Receiver<CallSpan>,
    ended: &CancellationToken,
) -> Vec<CallSpan> {
    let mut batch = Vec::new();
    let first = tokio::select! {
        first = spans.recv() => first,
        () = ended.cancelled() => {
            spans.close();
            spans.recv().await
        }
    };
    batch.extend(first);
    let until = Instant::now().checked_add(DELAY).unwrap_or_else(Instant::now);
    while !batch.is_empty() && batch.len() < BATCH {
        let next = tokio::select! {
            biased;
            next = timeout_at(until, spans.recv()) => next,
            () = ended.cancelled(), if !spans.is_closed() => {
                spans.close();
                continue;
            }
        };
        match next {
            Ok(Some(span)) => batch.push(span),
            Ok(None) | Err(_) => break,
        }
    }
    batch
}

impl Collector {
    /// Sends a batch. Returns the number of rejected spans.
    async fn export(
        &self,
        exporter: &mut Option<Exporter>,
        batch: Vec<CallSpan>,
    ) -> Result<u64, ExportError> {
        let exporter = match exporter {
            Some(exporter) => exporter,
            None => exporter.insert(self.exporter()?),
        };
        let batch = ExportTraceServiceRequest {
            resource_spans: vec![messages::resource_spans(&self.resource, batch)],
        };
        match exporter {
            Exporter::Http(exporter) => exporter.export(&batch).await,
            Exporter::Grpc(client) => {
                let mut request = Request::new(batch);
                self.headers.iter().for_each(|header| header.add_to(request.metadata_mut()));
                let answer = client
                    .export(request)
                    .await
                    .map_err(|status| ExportError::Call { message: status.message().to_owned() })?
                    .into_inner();
                Ok(answer
                    .partial_success
                    .map_or(0, |part| u64::try_from(part.rejected_spans).unwrap_or_default()))
            }
        }
    }

    fn exporter(&self) -> Result<Exporter, ExportError> {
        if self.protocol == OtlpProtocol::Http {
            return Ok(Exporter::Http(HttpExporter::new(&self.endpoint, &self.headers)?));
        }
        Ok(Exporter::Grpc(TraceServiceClient::new(self.grpc_endpoint()?.connect_lazy())))
    }

    fn grpc_endpoint(&self) -> Result<Endpoint, AnyError> {
        let endpoint =
            Endpoint::from_shared(self.endpoint.clone())?.connect_timeout(EXPORT_TIMEOUT);
        if !self.endpoint.starts_with("https://") {
            return Ok(endpoint);
        }
        ClientTls::default().on(endpoint)
    }
}
