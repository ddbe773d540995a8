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
use crate::admin::{Facts, Needs};
use crate::grpc::health::Health;
use crate::settings::ReadinessSettings;

/// How often it is looked whether a connection to the store is open.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Nothing is there yet, but for a store that nobody has to wait for.
pub(super) fn begin(settings: &ReadinessSettings, stores: &Stores) -> Arc<Facts> {
    let facts = Arc::new(Facts::new(needs(settings)));
    if stores.are_ready_at_once() {
        facts.store_is_ready();
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

/// Says that the store is there once it is and all who ask it are connected; and, where it is `watched`, when no connection to
/// it is open any more.
pub(super) fn follow_store(
    shared: &Shared,
    all_connected: impl Future<Output = ()> + Send + 'static,
    watched: Option<Arc<Service>>,
) -> JoinHandle<()> {
    let (stores, facts) = (shared.stores.clone(), Arc::clone(&shared.facts));
    tokio::spawn(async move {
        stores.ready().await;
        all_connected.await;
        tell_of_store(&facts, watched).await;
    })
}

async fn tell_of_store(facts: &Facts, watched: Option<Arc<Service>>) {
    facts.store_is_ready();
    let Some(service) = watched else { return };
    let mut ticks = interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut was_connected = true;
    loop {
        ticks.tick().await;
        let is_connected = service.limiter().store().is_connected();
        match (was_connected, is_connected) {
            (true, false) => {
                warn!("no connection to the store is open: not ready");
                facts.store_is_lost();
            }
            (false, true) => {
                info!("the store is connected again");
                facts.store_is_ready();
            }
            (true, true) | (false, false) => {}
        }
        was_connected = is_connected;
    }
}
