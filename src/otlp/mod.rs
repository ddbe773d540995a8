//! Spans on their way to a collector, by OTLP over gRPC: in batches, in the background, dropped where that is away.

mod messages;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use tracing::warn;

use crate::grpc::client::{ClientTls, Header};
use crate::grpc::proto::opentelemetry::proto::collector::trace::v1::ExportTraceServiceRequest;
use crate::grpc::proto::opentelemetry::proto::collector::trace::v1::trace_service_client::TraceServiceClient;
use crate::spans::Span;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::seldom::Seldom;

/// Spans that go together, and how long the first waits for others.
const BATCH: usize = 512;
const DELAY: Duration = Duration::from_secs(1);
/// Time for a collector to take a batch.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where spans go, and what they say of this process.
#[derive(Clone, Debug, PartialEq)]
pub struct Collector {
    /// A URL, of which the scheme says whether connections are encrypted.
    pub endpoint: String,
    /// Headers of the calls to it.
    pub headers: Vec<Header>,
    /// Attributes of the resource, `service.name` among them.
    pub resource: Vec<(String, String)>,
}

/// Sends spans until `ended`, and then those that wait.
pub async fn send(
    collector: Collector,
    mut spans: mpsc::Receiver<Span>,
    metrics: Arc<Metrics>,
    ended: CancellationToken,
) {
    let mut connection = None;
    let failures = Seldom::default();
    loop {
        let batch = next_batch(&mut spans, &ended).await;
        if batch.is_empty() {
            return;
        }
        let count = u64::try_from(batch.len()).unwrap_or(u64::MAX);
        let sent = timeout(PATIENCE, collector.export(&mut connection, batch)).await;
        match sent.unwrap_or_else(|_| Err(Status::deadline_exceeded("no answer in time"))) {
            Ok(rejected) => {
                metrics.guard.spans.sent.inc_by(count.saturating_sub(rejected));
                metrics.guard.spans.dropped.inc_by(rejected);
            }
            Err(status) => {
                metrics.guard.spans.dropped.inc_by(count);
                if let Some(times) = failures.times() {
                    let (endpoint, error) = (&collector.endpoint, status.message());
                    warn!(endpoint, error, times, "spans could not be sent and are dropped");
                }
            }
        }
    }
}

/// Waits for a span and a moment for others; all that are left, once it has ended.
async fn next_batch(spans: &mut mpsc::Receiver<Span>, ended: &CancellationToken) -> Vec<Span> {
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
    /// Sends a batch, and says how many of it were rejected.
    async fn export(
        &self,
        connection: &mut Option<TraceServiceClient<Channel>>,
        batch: Vec<Span>,
    ) -> Result<u64, Status> {
        let client = match connection {
            Some(client) => client,
            None => connection.insert(self.client().map_err(|error| Status::unavailable(error.to_string()))?),
        };
        let spans = vec![messages::resource_spans(&self.resource, batch)];
        let mut request = Request::new(ExportTraceServiceRequest { resource_spans: spans });
        self.headers.iter().for_each(|header| header.add_to(request.metadata_mut()));
        let answer = client.export(request).await?.into_inner();
        Ok(answer.partial_success.map_or(0, |part| u64::try_from(part.rejected_spans).unwrap_or_default()))
    }

    /// A client that connects when it is first used, and again whenever that has to be.
    fn client(&self) -> Result<TraceServiceClient<Channel>, tonic::transport::Error> {
        let endpoint = Endpoint::from_shared(self.endpoint.clone())?.connect_timeout(PATIENCE);
        let endpoint = match self.endpoint.starts_with("https://") {
            true => ClientTls::default().on(endpoint)?,
            false => endpoint,
        };
        Ok(TraceServiceClient::new(endpoint.connect_lazy()))
    }
}
