//! Operations of people on the process: try a request, inspect and change counters, reload
//! policies, list servers and the denials of other replicas.
//!
//! Returns values, which its callers render; knows no HTTP, no JSON and no command line.
//!
//! | file | contents |
//! |---|---|
//! | [`counters`] | one counter: state, callers; reset, refund, grant |
//! | [`ahead`] | resets of all counters ahead of the store's clock |
//! | [`attempt`] | the decision that a request would get |
//! | [`servers`], [`workers`] | the servers of the store; the services of all workers |
//! | [`denial_sync`], [`replicas`] | the other replicas on the store: denials; release, policies |
//! | [`policies`], `compiler`, [`loads`] | loading policies, and its recent outcomes |
//! | `error` | the reasons why an operation failed |
//! | [`process_state`] | readiness, and a summary of the policies in force |
//! | [`audit`] | details of a write for the audit log |

pub mod ahead;
pub mod attempt;
pub mod audit;
mod compiler;
pub mod counters;
pub mod denial_sync;
mod error;
pub mod loads;
pub mod policies;
pub mod process_state;
pub mod replicas;
pub mod servers;
pub mod workers;

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::ahead::ResetAhead;
use self::attempt::AttemptedRequest;
use self::audit::AuditEntry;
use self::counters::{AmendedCounter, CounterState, CounterTallies};
use self::denial_sync::{DenialSync, PeerReport};
pub use self::error::OperationError;
use self::policies::{Installer, PolicyReloader, ReloadedPolicies};
use self::replicas::{OtherRates, ReplicaDirectory, ReplicaReport};
use self::servers::{ServerReports, ServerState};
use self::workers::{WorkerService, WorkerServices};
use crate::algorithm::amend::Amendment;
use crate::algorithm::time::Micros;
use crate::descriptor::Request;
use crate::grpc::request::RequestBounds;
pub use crate::store::backend::{Backend, BackendError};
use crate::store::scan::ScanPosition;

/// Timeout for a call to the store. Longer than on the hot path, since a person waits and not a
/// proxy.
const STORE_TIMEOUT: Duration = Duration::from_secs(1);

/// The operations on the stores and the policies of this process.
pub struct Operations<B> {
    /// The HTTP service, on whose runtime the operations run.
    pub service: Arc<WorkerService<B>>,
    /// The services of all workers.
    pub services: WorkerServices<B>,
    /// The last reports of the servers.
    pub reports: ServerReports,
    /// Maximum time for which a replica caches a denial, if counters are shared.
    pub cached_for: Micros,
    /// Bounds that apply to every request.
    pub bounds: RequestBounds,
    /// `None` if policies come from a control plane.
    pub reloads: Option<PolicyReloader>,
    /// Puts policies in force.
    pub installer: Installer,
    /// Denials of other replicas.
    pub denial_sync: DenialSync<B>,
    /// The replicas on the same store.
    pub replicas: ReplicaDirectory<B>,
}

impl<B: Backend> Operations<B> {
    /// Returns the decision that a request would get now, without writing or counting anything.
    ///
    /// # Errors
    /// The request exceeds a bound, or there is no decision.
    pub async fn attempt(&self, request: &Request<'_>) -> Result<AttemptedRequest, OperationError> {
        attempt::attempt(&self.service, request, self.bounds).await
    }

    /// Returns the callers that used up the counter of a descriptor (`key=value,…`) in a domain.
    ///
    /// # Errors
    /// There is no such counter, its rule does not record callers, or the store failed.
    pub async fn who(
        &self,
        domain: &str,
        descriptor: &str,
    ) -> Result<CounterTallies, OperationError> {
        counters::who(&self.service, domain, descriptor).await
    }

    /// Returns the state of the counter of a descriptor, and the callers that used it up.
    ///
    /// # Errors
    /// There is no such counter, or the store failed.
    pub async fn inspect(
        &self,
        domain: &str,
        descriptor: &str,
    ) -> Result<CounterState, OperationError> {
        counters::inspect(&self.service, domain, descriptor).await
    }

    /// Resets, refunds or grants hits to the counter of a descriptor.
    ///
    /// # Errors
    /// There is no such counter, or the store failed; the error contains whether the change may
    /// have been applied.
    pub async fn amend(
        &self,
        domain: &str,
        descriptor: &str,
        amendment: Amendment,
        audit: &AuditEntry,
    ) -> Result<AmendedCounter, OperationError> {
        let amended = counters::change(&self.service, domain, descriptor, amendment, audit).await?;
        Ok(AmendedCounter { cached_for: self.is_shared().then_some(self.cached_for), ..amended })
    }

    /// Returns `true` if other processes may use the same counters.
    pub fn is_shared(&self) -> bool {
        self.service.limiter().store().backend().is_shared()
    }

    /// Resets counters that are ahead of the store's clock, from a position on, for a limited time.
    ///
    /// # Errors
    /// No policy is loaded, the store failed, or the position is that of no master. Counters that
    /// were reset before remain so.
    pub async fn reset_ahead(
        &self,
        from: Option<ScanPosition>,
        audit: &AuditEntry,
    ) -> Result<ResetAhead, OperationError> {
        ahead::reset_ahead(&self.service, from, audit).await
    }

    /// Reloads the policies.
    ///
    /// # Errors
    /// Policies come from a control plane, or are not valid.
    pub async fn reload(&self) -> Result<ReloadedPolicies, OperationError> {
        let reloads = self.reloads.clone().ok_or(OperationError::ControlPlane)?;
        reloads.now(self.installer.clone()).await
    }

    /// Returns the denials that other replicas on the same store published for `minutes`, which are
    /// numbered since the epoch.
    pub async fn peer_denials(&self, minutes: RangeInclusive<u64>) -> PeerReport {
        self.denial_sync.peers(minutes).await
    }

    /// Returns the processes that share the store; only this one if counters live in it.
    pub async fn replicas(&self) -> ReplicaReport {
        self.replicas.list().await
    }

    /// Returns the rates of other processes on the store; `None` if no processes share it.
    pub async fn rates_of_others(&self) -> Option<Arc<OtherRates>> {
        self.replicas.rates_of_others().await
    }

    /// Returns the servers of the store; empty if counters live in this process.
    ///
    /// # Errors
    /// The store does not support it.
    pub fn servers(&self) -> Result<Vec<ServerState>, BackendError> {
        servers::servers(&self.services, &self.reports)
    }
}

/// Returns the deadline of a call that starts now on behalf of an operator.
fn deadline() -> Instant {
    let now = Instant::now();
    now.checked_add(STORE_TIMEOUT).unwrap_or(now)
}
