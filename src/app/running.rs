//! The last phases: a service that runs, drains and stops.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tracing::info;

use super::serving;
use super::statistics::StatisticsServices;
use super::tasks::Tasks;
use super::workers::Workers;
use crate::grpc::health::Health;
use crate::operations::Backend;
use crate::operations::denial_sync::DenialSync;
use crate::operations::process_state::ProcessState;
use crate::operations::workers::WorkerService;
use crate::telemetry::statistics::statsd::StatsdExporter;

/// Timeout for publishing the last denials to other replicas.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(1);

/// The parts that report the state of the process to probes.
pub(super) struct Probed {
    pub(super) process: Arc<ProcessState>,
    pub(super) health: Health,
    /// The task that mirrors the former in the latter.
    pub(super) mirroring: JoinHandle<()>,
}

impl Probed {
    /// Reports NOT_SERVING to all probes once `shutdown` completes, and gives clients the time
    /// `delay` to move to another replica.
    pub(super) async fn drain(self, shutdown: impl Future<Output = ()>, delay: Duration) {
        shutdown.await;
        info!(?delay, "draining");
        self.process.drain();
        // Set here, so that health is updated before this function continues. The task that also
        // updates it must end first.
        self.mirroring.abort();
        let _ = self.mirroring.await;
        self.health.set_serving(false).await;
        tokio::time::sleep(delay).await;
    }
}

/// The parts of a running service that end in order.
pub(super) struct Running<B> {
    pub(super) health: Health,
    pub(super) workers: Workers,
    pub(super) tasks: Tasks,
    pub(super) denial_sync: DenialSync<B>,
    pub(super) service: Arc<WorkerService<B>>,
    pub(super) sending: Option<StatsdExporter>,
}

impl<B: Backend> Running<B> {
    /// Finishes the calls under way, then publishes and sends what is left.
    pub(super) async fn stop(mut self, timeout: Duration) {
        self.health.end_watches().await;
        let all_finished = self.workers.stop(timeout).await;
        self.tasks.abort_endless();
        let _ = tokio::time::timeout(PUBLISH_TIMEOUT, self.denial_sync.publish()).await;
        self.tasks.finish().await;
        serving::settle(&self.service).await;
        StatisticsServices::end(self.sending);
        info!(all_finished, "stopped");
    }
}
