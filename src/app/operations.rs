//! The operations of the admin API, implemented with the services of all workers, the servers of
//! the store and the policy sources.

use std::collections::BTreeMap;
use std::future::Future;
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::Arc;

use super::counters;
use super::denial_sync::DenialSync;
use super::policies::{Installer, PolicyReloader};
use super::serving::{Serving, WorkerService, WorkerServices};
use super::stores::Stores;
use crate::admin::api::ApiError;
use crate::admin::api::ask::{CounterUsers, Peeked, PeekedStatus, TryRequest, TryResult};
use crate::admin::api::counter::{Changed, CounterView};
use crate::admin::api::policies::Reloaded;
use crate::admin::api::store::ServerStatus;
use crate::admin::loads::LoadOutcome;
use crate::admin::operations::{AuditEntry, OperationFuture, Operations, PeerReport};
use crate::algorithm::amend::Amendment;
use crate::algorithm::judge::Hits;
use crate::descriptor::{Descriptor, Entry, Request};
use crate::grpc::request::RequestBounds;
use crate::limiter::{Decision, Standing, Status};
use crate::settings::Settings;

/// The implementation of [`Operations`].
pub(super) struct WorkerOperations {
    /// The HTTP service, on whose runtime the operations run.
    service: Arc<WorkerService>,
    /// The services of all workers.
    services: WorkerServices,
    stores: Stores,
    bounds: RequestBounds,
    /// `None` if policies come from a control plane.
    reloads: Option<PolicyReloader>,
    installer: Installer,
    denial_sync: DenialSync,
}

impl WorkerOperations {
    /// Creates the operations. `service` is the HTTP service; `serving` created it and also creates
    /// those of the workers.
    pub(super) fn new(
        settings: &Settings,
        service: &Arc<WorkerService>,
        serving: &Serving,
        installer: Installer,
        denial_sync: DenialSync,
    ) -> Self {
        Self {
            service: Arc::clone(service),
            services: serving.services.clone(),
            stores: serving.stores().clone(),
            bounds: settings.limits.request,
            reloads: settings.xds.is_none().then(|| PolicyReloader(settings.policy.clone())),
            installer,
            denial_sync,
        }
    }
}

impl Operations for WorkerOperations {
    fn peek(&self, question: TryRequest) -> OperationFuture<Peeked> {
        let service = Arc::clone(&self.service);
        let bounds = self.bounds;
        Box::pin(async move { peek(&service, &question, bounds).await })
    }

    fn who(&self, domain: String, descriptor: String) -> OperationFuture<CounterUsers> {
        let service = Arc::clone(&self.service);
        Box::pin(async move { counters::who(&service, &domain, &descriptor).await })
    }

    fn counter(&self, domain: String, descriptor: String) -> OperationFuture<CounterView> {
        let service = Arc::clone(&self.service);
        Box::pin(async move { counters::inspect(&service, &domain, &descriptor).await })
    }

    fn amend(
        &self,
        domain: String,
        descriptor: String,
        amendment: Amendment,
        audit: AuditEntry,
    ) -> OperationFuture<Changed> {
        let service = Arc::clone(&self.service);
        let stores = self.stores.clone();
        Box::pin(async move { counters::change(&service, &stores, &domain, &descriptor, amendment, &audit).await })
    }

    fn reload(&self) -> OperationFuture<Reloaded> {
        let reloads = self.reloads.clone();
        let installer = self.installer.clone();
        Box::pin(async move {
            let from_elsewhere = || {
                ApiError::Conflict("policies come from a control plane and cannot be reloaded on request".to_owned())
            };
            let reloads = reloads.ok_or_else(from_elsewhere)?;
            let before = installer.facts.policies().version;
            let load = reloads.now(installer.clone()).await.map_err(ApiError::Unprocessable)?;
            let changes = match load.outcome {
                LoadOutcome::Changed { changes, .. } => Some(changes),
                LoadOutcome::First | LoadOutcome::Refused(_) => None,
            };
            let policies = installer.facts.policies();
            Ok(Reloaded { is_changed: before != policies.version, changes, policies: policies.into() })
        })
    }

    fn peer_denials(&self, minutes: RangeInclusive<u64>) -> Pin<Box<dyn Future<Output = PeerReport> + Send>> {
        Box::pin(self.denial_sync.clone().peers(minutes))
    }

    fn servers(&self) -> Vec<ServerStatus> {
        let mut servers: BTreeMap<String, ServerStatus> = BTreeMap::new();
        for service in self.services.all() {
            let health = service.limiter().store().redis().map(|store| store.health()).unwrap_or_default();
            for node in health {
                let unknown = || ServerStatus {
                    workers: 0,
                    connected: 0,
                    breakers_open: 0,
                    told: None,
                    address: node.address.clone(),
                };
                let server = servers.entry(node.address.clone()).or_insert_with(unknown);
                let one_if = |is_it| usize::from(is_it);
                server.workers = server.workers.saturating_add(1);
                server.connected = server.connected.saturating_add(one_if(node.is_connected));
                server.breakers_open = server.breakers_open.saturating_add(one_if(node.is_breaker_open));
            }
        }
        let reports = self.stores.reports();
        let with_report = |server: ServerStatus| ServerStatus { told: reports.get(&server.address).cloned(), ..server };
        servers.into_values().map(with_report).collect()
    }
}

async fn peek(service: &WorkerService, question: &TryRequest, bounds: RequestBounds) -> Result<Peeked, ApiError> {
    check(question, bounds)?;
    let request =
        Request { domain: &question.domain, descriptors: question.descriptors.iter().map(descriptor).collect() };
    let limiter = service.limiter();
    let snapshot = limiter.snapshot();
    let decision = limiter.peek(&snapshot, &request, counters::deadline()).await;
    let decision = decision.map_err(|undecided| ApiError::Unavailable(undecided.to_string()))?;
    Ok(peeked(&decision))
}

fn descriptor(tried: &TryResult) -> Descriptor<'_> {
    let entries = tried.entries.iter();
    let entries = entries.map(|entry| Entry { key: entry.key.as_bytes(), value: entry.value.as_bytes() });
    Descriptor { entries: entries.collect(), hits: Hits::Peek(tried.hits), limit: None }
}

/// Checks the bounds that apply to every request.
fn check(question: &TryRequest, bounds: RequestBounds) -> Result<(), ApiError> {
    let entries = question.descriptors.iter().map(|tried| tried.entries.len());
    bounds.check(&question.domain, entries).map_err(|invalid| ApiError::Invalid(invalid.to_string()))
}

/// Converts a decision, with the status of each descriptor, to the type of the API.
fn peeked(decision: &Decision<'_>) -> Peeked {
    Peeked { would_admit: !decision.is_over_limit(), statuses: decision.statuses().iter().map(peeked_status).collect() }
}

fn peeked_status(status: &Status<'_>) -> PeekedStatus {
    let standing = match status.standing() {
        Standing::NoLimit => "no limit",
        Standing::Unlimited => "unlimited",
        Standing::Allowed => "room",
        Standing::Denied => "no room",
        Standing::ShadowDenied => "watched",
        Standing::PresumedAllowed | Standing::PresumedDenied => "unknown",
    };
    PeekedStatus {
        rule: status.rule().map(|rule| rule.path().to_owned()),
        standing: standing.to_owned(),
        limit: status.limit().map(|(_, window)| window.limit()),
        remaining: status.left(),
        reset_after_us: status.reset_after().map(|length| length.get()),
    }
}
