//! Readiness: the conditions for it, and reporting it consistently to all probes.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tracing::{info, warn};

use super::parts::ProcessParts;
use crate::grpc::health::Health;
use crate::operations::process_state::{ProcessState, StoreState};
use crate::operations::workers::{WorkerService, WorkerServices};
use crate::settings::ReadinessSettings;
use crate::store::backend::{Backend, BackendState};
use crate::store::servers::{AccessRefusal, RefusedAccess};

/// Time after which the ports open even if the process is not ready. The first connection to a
/// store takes a few milliseconds.
const OPEN_AFTER: Duration = Duration::from_secs(1);
/// Polling interval for the state of the store.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Mirrors the readiness of HTTP in the gRPC health service: once immediately, then on every
/// change. Returns the task that does so, and a channel with the last state set.
pub(super) async fn mirror(
    process: &ProcessState,
    health: &Health,
) -> (JoinHandle<()>, watch::Receiver<bool>) {
    let mut readiness = process.readiness();
    let health = health.clone();
    let is_ready = readiness.borrow_and_update().is_ready();
    health.set_serving(is_ready).await;
    let (sender, is_serving) = watch::channel(is_ready);
    let mirroring = tokio::spawn(async move {
        while readiness.changed().await.is_ok() {
            let is_ready = readiness.borrow_and_update().is_ready();
            health.set_serving(is_ready).await;
            sender.send_replace(is_ready);
        }
    });
    (mirroring, is_serving)
}

/// Waits until health is SERVING, for at most [`OPEN_AFTER`]. Earlier clients would see
/// NOT_SERVING.
pub(super) async fn wait_to_open(mut is_serving: watch::Receiver<bool>) {
    let _ = timeout(OPEN_AFTER, is_serving.wait_for(|is_serving| *is_serving)).await;
}

/// Follows the state of the store forever.
///
/// The process is ready once the store has been reached and all services are connected to it,
/// except while the server is a replica, refuses the login or denies required commands; with
/// `ready_while_store`, only while a connection to it is open.
pub(super) fn follow_store<B: Backend>(
    shared: &ProcessParts<B>,
    services: WorkerServices<B>,
    all_connected: impl Future<Output = ()> + Send + 'static,
    service: &Arc<WorkerService<B>>,
    settings: &ReadinessSettings,
) -> JoinHandle<()> {
    let stores = shared.stores.clone();
    let process = Arc::clone(&shared.process);
    let service = Arc::clone(service);
    let ready_while_store = settings.ready_while_store;
    tokio::spawn(async move {
        let mut reached = std::pin::pin!(async {
            stores.ready().await;
            all_connected.await;
        });
        let mut ticks = interval(POLL_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut is_reached = false;
        let mut before = StoreState::NotReached;
        loop {
            tokio::select! {
                () = &mut reached, if !is_reached => is_reached = true,
                _ = ticks.tick() => {}
            }
            let own = service.limiter().store().backend().state();
            // A worker's connection may be the first that is refused.
            let refused = services.all().into_iter().find_map(|service| refused_access(&service));
            let (state, detail) = match (own, refused) {
                (BackendState::Replica(address), _) => (StoreState::Replica, Some(address)),
                (_, Some(RefusedAccess { address, refusal, text })) => {
                    let state = match refusal {
                        AccessRefusal::Commands => StoreState::Forbidden,
                        AccessRefusal::Login => StoreState::LoginRefused,
                    };
                    (state, Some(format!("{address}: {text}")))
                }
                (_, None) if !is_reached => (StoreState::NotReached, None),
                (BackendState::NotConnected(_), None) if ready_while_store => {
                    (StoreState::Lost, None)
                }
                (_, None) => (StoreState::Ready, None),
            };
            if state != before {
                log(before, state, detail);
                if !stores.are_ready_at_once() {
                    process.set_store(state);
                }
                before = state;
            }
        }
    })
}

/// Returns the server that refuses access to a service.
fn refused_access(service: &WorkerService<impl Backend>) -> Option<RefusedAccess> {
    match service.limiter().store().backend().state() {
        BackendState::Refused(refused) => Some(refused),
        BackendState::Connected | BackendState::NotConnected(_) | BackendState::Replica(_) => None,
    }
}

/// Logs a change of state. `detail` is the master's address if the server is a replica, or the
/// reason why it refuses access.
fn log(before: StoreState, state: StoreState, detail: Option<String>) {
    match (before, state) {
        (_, StoreState::Replica) => {
            warn!(
                address = detail,
                "Redis is a read-only replica; waiting for a master at this address"
            );
        }
        (_, StoreState::Forbidden) => {
            warn!(
                error = detail,
                "Redis denies commands that decisions require; not ready until its user has the permissions"
            );
        }
        (_, StoreState::LoginRefused) => {
            warn!(error = detail, "Redis refuses the login; not ready until it is accepted");
        }
        (_, StoreState::Lost) => warn!("store disconnected; not ready"),
        (
            StoreState::Lost
            | StoreState::Replica
            | StoreState::Forbidden
            | StoreState::LoginRefused,
            StoreState::Ready,
        ) => info!("store reconnected"),
        (_, StoreState::Ready | StoreState::NotReached) => {}
    }
}
