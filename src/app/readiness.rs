//! Whether the process should be asked: what makes it so, and that every probe tells the same.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{info, warn};

use super::Shared;
use super::serving::Service;
use super::stores::Stores;
use crate::admin::{Facts, Needs, StoreState};
use crate::grpc::health::Health;
use crate::settings::ReadinessSettings;

/// How often the state of the store is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Nothing is there yet, but for a store that nobody has to wait for.
pub(super) fn begin(settings: &ReadinessSettings, stores: &Stores) -> Arc<Facts> {
    let facts = Arc::new(Facts::new(needs(settings)));
    if stores.are_ready_at_once() {
        facts.set_store(StoreState::Ready);
    }
    facts
}

/// What of policies has to be there.
fn needs(settings: &ReadinessSettings) -> Needs {
    match (settings.ready_while_policy, settings.ready_without_policy) {
        (true, _) => Needs::Policy,
        (false, true) => Needs::NoPolicy,
        (false, false) => Needs::Load,
    }
}

/// Says over gRPC what is said over HTTP: at once, and then whenever it changes.
pub(super) async fn tell(facts: &Facts, health: &Health) -> JoinHandle<()> {
    let (mut readiness, health) = (facts.readiness(), health.clone());
    let is_ready = readiness.borrow_and_update().is_ready();
    health.set(is_ready).await;
    tokio::spawn(async move {
        while readiness.changed().await.is_ok() {
            let is_ready = readiness.borrow_and_update().is_ready();
            health.set(is_ready).await;
        }
    })
}

/// Follows the store for ever: the process is ready once it has been reached and all who ask it are connected, but not while
/// the server is a replica; with `ready_while_store` only while a connection to it is open.
pub(super) fn follow_store(
    shared: &Shared,
    all_connected: impl Future<Output = ()> + Send + 'static,
    service: Arc<Service>,
    ready_while_store: bool,
) -> JoinHandle<()> {
    let (stores, facts) = (shared.stores.clone(), Arc::clone(&shared.facts));
    tokio::spawn(async move {
        let Some(store) = service.limiter().store().redis() else { return };
        let mut reached = std::pin::pin!(async {
            stores.ready().await;
            all_connected.await;
        });
        let mut ticks = interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut is_reached, mut before) = (false, StoreState::NotReached);
        loop {
            tokio::select! {
                () = &mut reached, if !is_reached => is_reached = true,
                _ = ticks.tick() => {}
            }
            let replica = store.replica();
            let state = match &replica {
                Some(_) => StoreState::Replica,
                None if !is_reached => StoreState::NotReached,
                None if ready_while_store && !store.is_connected() => StoreState::Lost,
                None => StoreState::Ready,
            };
            if state != before {
                log(before, state, replica);
                if !stores.are_ready_at_once() {
                    facts.set_store(state);
                }
                before = state;
            }
        }
    })
}

fn log(before: StoreState, state: StoreState, replica: Option<String>) {
    match (before, state) {
        (_, StoreState::Replica) => {
            warn!(address = replica, "redis is a replica, which takes no writes; waiting for a master at this address");
        }
        (_, StoreState::Lost) => warn!("no connection to the store is open: not ready"),
        (StoreState::Lost | StoreState::Replica, StoreState::Ready) => info!("the store is connected again"),
        (_, StoreState::Ready | StoreState::NotReached) => {}
    }
}
