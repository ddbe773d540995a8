//! The third phase: opens the ports of operators, then those of callers.

use std::io;
use std::sync::Arc;

use futures_util::future::{FutureExt, join_all};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::certificates::Certificates;
use super::connection_limits::ConnectionLimits;
use super::http::{self, Web};
use super::parts::ProcessParts;
use super::ports::BoundListeners;
use super::rights::Admission;
use super::running::Running;
use super::statistics::StatisticsServices;
use super::tasks::Tasks;
use crate::admin::PublicDecisions;
use crate::http2::registry::Registry;
use crate::operations::Backend;

/// The ports of operators: administration, and the statistics that Prometheus scrapes.
pub(super) struct Operators<B> {
    pub(super) web: Web<B>,
    pub(super) listener: TcpListener,
    pub(super) admission: Admission,
    pub(super) certificates: [Option<Certificates>; 2],
    pub(super) statistics: StatisticsServices,
    pub(super) stats_listener: Option<TcpListener>,
}

impl<B: Backend> Operators<B> {
    /// Serves in the background until the end of `tasks`, and follows the files of certificates,
    /// tokens and keys.
    ///
    /// # Errors
    /// A thread cannot be started.
    pub(super) fn serve(self, tasks: &mut Tasks) -> io::Result<()> {
        let Self { web, listener, admission, certificates, statistics, stats_listener } = self;
        let connections = web.connections;
        connections.announce();
        admission.announce();
        let shared = web.shared.clone();
        tasks.add_finishing("admin", web.serve_admin(listener, tasks.end()));
        let stats =
            statistics.serve(stats_listener, connections.stats, &shared.metrics, tasks.end())?;
        if let Some(stats) = stats {
            tasks.add_finishing("stats", stats);
        }
        tasks.add("files", follow_files(certificates, admission, &shared));
        Ok(())
    }
}

/// The ports of callers: gRPC, and decisions and health over HTTP.
pub(super) struct Callers<B> {
    pub(super) shared: ProcessParts<B>,
    pub(super) public: BoundListeners,
    pub(super) is_serving: watch::Receiver<bool>,
    /// Set if the example policies are served.
    pub(super) are_examples: bool,
    pub(super) registry: Arc<Registry>,
    pub(super) connections: ConnectionLimits,
    pub(super) decisions: PublicDecisions,
}

impl<B: Backend> Callers<B> {
    /// Serves forever, once the process is ready or the wait for it times out.
    ///
    /// # Errors
    /// A listener fails to listen, or a thread cannot be created.
    pub(super) async fn serve(self, running: &mut Running<B>) -> io::Result<()> {
        let (grpc, http) = self.public.open(self.is_serving, self.are_examples).await?;
        let end = running.tasks.end();
        let connections = self.connections.http;
        let http = http::serve_public(&self.shared, http, connections, self.decisions, end)?;
        running.tasks.add_finishing("http", http);
        tokio::join!(running.workers.accept(&grpc, &self.registry), self.registry.relieve());
        Ok(())
    }
}

/// Reloads certificates, tokens and keys when their files change, forever.
fn follow_files<B: Backend>(
    certificates: [Option<Certificates>; 2],
    admission: Admission,
    shared: &ProcessParts<B>,
) -> JoinHandle<()> {
    let certificates = certificates
        .map(|certificates| certificates.map(|them| them.follow(Arc::clone(&shared.metrics.tls))));
    let all = certificates
        .into_iter()
        .flatten()
        .map(FutureExt::boxed)
        .chain([admission.follow().boxed(), shared.loan_keys.clone().follow().boxed()]);
    tokio::spawn(join_all(all.collect::<Vec<_>>()).map(drop))
}
