//! The second phase: builds the parts of a service. Its tasks and workers run, and nothing listens
//! yet.

use std::io;
use std::sync::Arc;

use super::http::{self, Web};
use super::operations::operations;
use super::parts::ProcessParts;
use super::policies::InitialPolicies;
use super::ports::Listeners;
use super::prepare::Prepared;
use super::running::{Probed, Running};
use super::serve::{Callers, Operators};
use super::serving::Serving;
use super::statistics::StatisticsServices;
use super::stores::OpenStore;
use super::tasks::Tasks;
use super::workers::Workers;
use super::{candidates, policies, readiness, spans};
use crate::grpc::health::Health;
use crate::http2::registry::Registry;
use crate::operations::Backend;
use crate::operations::denial_sync::DenialSync;
use crate::settings::Settings;

/// A service that does not listen yet.
pub(super) struct Built<B> {
    /// The ports of operators.
    pub(super) operators: Operators<B>,
    /// The ports of callers.
    pub(super) callers: Callers<B>,
    /// The state that probes see.
    pub(super) probed: Probed,
    /// The parts that run already.
    pub(super) running: Running<B>,
}

/// Builds a service over a store.
///
/// # Errors
/// A thread or a runtime cannot be created.
pub(super) async fn build<B: Backend>(
    open: OpenStore<B>,
    settings: Settings,
    prepared: Prepared,
) -> io::Result<Built<B>> {
    let Prepared { listeners: Listeners { public, admin }, connections, admission, .. } = prepared;
    let statistics = StatisticsServices::new(settings.stats.clone());
    let metrics = statistics.metrics(settings.observation.max_rules);
    let sending = statistics.send(&metrics)?;
    let shared = ProcessParts::new(&settings, open, metrics);
    let health = Health::new().await;
    let mut tasks = Tasks::default();
    let installer = shared.installer(&settings.policy.options);
    let InitialPolicies { read, loaded } = prepared.policies;
    installer.begin(&read, loaded);
    tasks.add("candidates", candidates::begin(&settings.policy, &installer)?);
    let tracer = spans::begin(settings.tracing.clone(), &shared.metrics.spans, &mut tasks);
    let tls = prepared.certificates.as_ref().map(|certificates| certificates.tls.clone());
    let serving = Arc::new(Serving::new(&settings, &shared, health.clone(), tls, tracer));
    let service = serving.service();
    let services = serving.services.clone();
    let connected = serving.all_connected();
    let (mirroring, is_serving) = readiness::mirror(&shared.process, &health).await;
    let follow_store =
        readiness::follow_store(&shared, services, connected, &service, &settings.readiness);
    let denial_sync = DenialSync::new(shared.stores.id(), &shared.observation.journal, &service);
    let operations = operations(&settings, &shared, &serving, &service, &installer, &denial_sync);
    let budget = Arc::clone(&serving.budget);
    let registry = Registry::new(connections.grpc, budget, Arc::clone(&serving.observer));
    let workers = Workers::start(settings.limits.workers, move |incoming, drain| {
        Arc::clone(&serving).serve(incoming, drain)
    })?;
    let decisions = http::decisions(&service, &settings, registry.budget())?;
    let are_examples = settings.policy.are_examples;
    let follow_policies = policies::follow_source(settings.policy, settings.xds, read, installer)?;

    let ProcessParts { metrics, policies, stores, observation, .. } = shared.clone();
    let poll_servers = stores.clone().poll_servers(Arc::clone(&service));
    tasks.add("store-state", follow_store);
    tasks.add("policies", follow_policies);
    tasks.spawn("stores", stores.maintain());
    tasks.spawn("servers", poll_servers);
    tasks.spawn("denials", denial_sync.clone().run());
    tasks.spawn("observation", observation.follow(policies, metrics));
    tasks.spawn("replicas", operations.replicas.clone().run());

    let tls = prepared.admin_certificates.as_ref().map(|certificates| certificates.tls.clone());
    let rights = Arc::clone(&admission.rights);
    let web = Web { shared: shared.clone(), operations, rights, connections, tls };
    let certificates = [prepared.certificates, prepared.admin_certificates];
    let operators = Operators {
        web,
        listener: admin,
        admission,
        certificates,
        statistics,
        stats_listener: prepared.stats,
    };
    let process = Arc::clone(&shared.process);
    let probed = Probed { process, health: health.clone(), mirroring };
    let callers =
        Callers { shared, public, is_serving, are_examples, registry, connections, decisions };
    let running = Running { health, workers, tasks, denial_sync, service, sending };
    Ok(Built { operators, callers, probed, running })
}
