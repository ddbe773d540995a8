//! The task that keeps a node connected, and checks the connection.

use std::sync::Weak;
use std::time::Duration;

use tollgate_core::backoff::Backoff;
use tracing::{info, warn};

use super::Node;
use super::connect_error::ConnectError;
use super::renewal::Renewal;
use crate::redis::server::connect::{Connector, NodeLink};

/// Waits between attempts to connect or to probe a silent node.
const FIRST_WAIT: Duration = Duration::from_millis(10);
const LONGEST_WAIT: Duration = Duration::from_secs(1);
/// Timeout for a probe; the first answer closes the breaker.
const PROBE_TIMEOUT: Duration = Duration::from_millis(100);
/// Number of unanswered probes after which the connection itself is dropped.
const PROBES: u32 = 10;
/// Interval and timeout of health checks on a connection. At the timeout, all calls in flight fail,
/// so it is longer than a server may be busy.
const HEALTH_CHECK_EVERY: Duration = Duration::from_secs(1);
const HEALTH_CHECK_TIMEOUT: Duration = Duration::from_secs(3);

/// Maintains a node's connection, and probes the node while it is silent, until its last handle is
/// dropped.
pub(super) async fn keep(node: Weak<Node>, connector: Connector) {
    let address = connector.address.to_string();
    let logged = connector.access.logged.clone();
    let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
    let mut renewal = Renewal::new(&connector);
    while node.strong_count() > 0 {
        match connector.connect().await {
            Ok(link) => {
                if logged.remove(&address) {
                    info!(address, "connected to Redis");
                }
                backoff.reset();
                if let Some(node) = node.upgrade() {
                    let loading = connector.load_scripts(&link);
                    // Calls wait for a connection that is replaced, and not for its scripts.
                    if node.was_attempted() {
                        tokio::spawn(loading);
                    } else {
                        loading.await;
                    }
                    node.begin(link);
                }
                while watch(&node, &connector, &mut renewal).await {}
            }
            Err(error) => {
                let reason = error.to_string();
                // The process warns of these once, regardless of the number of connections.
                let is_reported_once =
                    matches!(error, ConnectError::Replica | ConnectError::Forbidden { .. });
                if !is_reported_once && logged.replace(&address, &reason) {
                    warn!(address, error = reason, "Redis unreachable; retrying");
                }
                if let Some(node) = node.upgrade() {
                    node.record_refusal(&error);
                }
                let wait = backoff.next(connector.access.environment.random());
                tokio::time::sleep(wait).await;
            }
        }
    }
    logged.remove(&address);
}

/// The reasons to look at a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Occasion {
    /// The breaker opened, or the link was dropped.
    Notified,
    /// The credentials have changed, or the connection is old.
    Renewal,
    HealthCheck,
}

/// Waits for an occasion to look at the link, and does so. Returns `true` if it is still good.
async fn watch(node: &Weak<Node>, connector: &Connector, renewal: &mut Renewal) -> bool {
    let Some(node) = node.upgrade() else { return false };
    let watched = node.link.load_full();
    let occasion = tokio::select! {
        biased;
        () = node.wake.notified() => Occasion::Notified,
        () = renewal.due(watched.as_deref()) => Occasion::Renewal,
        () = tokio::time::sleep(HEALTH_CHECK_EVERY) => Occasion::HealthCheck,
    };
    let Some(link) = node.link.load_full() else { return false };
    let is_good = match occasion {
        Occasion::Notified if !node.breaker.is_open() => return true,
        Occasion::Notified => probe_until_response(&node, &link, connector).await,
        Occasion::Renewal => renewal.renew(&node, &link, connector).await,
        Occasion::HealthCheck => link.is_good(HEALTH_CHECK_TIMEOUT).await,
    };
    if !is_good {
        node.lose(&link);
    }
    is_good
}

/// Probes a silent node, and closes the breaker on the first answer. Returns `true` if there was
/// one.
async fn probe_until_response(node: &Node, link: &NodeLink, connector: &Connector) -> bool {
    let address = connector.address.to_string();
    warn!(address, "Redis timed out; on_store_error applies until it responds");
    let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
    for _ in 0..PROBES {
        match link.answers(PROBE_TIMEOUT).await {
            Some(true) => {
                node.breaker.close();
                info!(address, "Redis responds again");
                return true;
            }
            Some(false) => {}
            // Nothing answers on a connection that is lost.
            None => return false,
        }
        tokio::time::sleep(backoff.next(connector.access.environment.random())).await;
    }
    false
}
