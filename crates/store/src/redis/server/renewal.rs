//! Renewal of a connection in use, without a failed call: authentication in place after its
//! credentials have changed, or replacement by another connection, because of its age or where
//! authentication in place is not possible.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tollgate_core::backoff::Backoff;
use tracing::{debug, warn};

use super::Node;
use super::connect::{AuthReply, Connector, NodeLink};
use crate::redis::credentials::CurrentLogin;

/// Waits between attempts. The connection remains in use meanwhile.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// Timeout of a login on a connection in use.
const AUTH_TIMEOUT: Duration = Duration::from_secs(1);

/// The changes that the connections of a node follow.
pub(super) struct Renewal {
    changes: watch::Receiver<CurrentLogin>,
    backoff: Backoff,
    /// The time of the next attempt after one that failed.
    retry_at: Option<Instant>,
}

impl Renewal {
    pub(super) fn new(connector: &Connector) -> Self {
        Self {
            changes: connector.logins.changes(),
            backoff: Backoff::new(FIRST_WAIT, LONGEST_WAIT),
            retry_at: None,
        }
    }

    /// Waits until the credentials change, or the link is to be renewed for another reason.
    pub(super) async fn due(&mut self, link: Option<&NodeLink>) {
        let due = self.retry_at.or_else(|| link?.replace_at());
        let by_time = async {
            match due {
                Some(due) => tokio::time::sleep_until(due).await,
                None => std::future::pending().await,
            }
        };
        let changes = &mut self.changes;
        let is_changed = tokio::select! {
            biased;
            changed = changes.changed() => match changed {
                Ok(()) => true,
                // Never: the connector has the sender.
                Err(_) => std::future::pending().await,
            },
            () = by_time => false,
        };
        if is_changed {
            // Other credentials are tried at once.
            self.backoff.reset();
        }
    }

    /// Renews the link if that is due. If it fails, the link remains in use until the next attempt.
    /// Returns `false` if the link is lost.
    pub(super) async fn renew(
        &mut self,
        node: &Node,
        link: &Arc<NodeLink>,
        connector: &Connector,
    ) -> bool {
        self.retry_at = None;
        let is_old = link.replace_at().is_some_and(|at| at <= Instant::now());
        let changed = connector.logins.published().filter(|login| *login != link.login());
        let must_replace = match &changed {
            None if is_old => true,
            None => return true,
            // Another user may have other rights, which a new connection checks.
            Some(login) if login.user != link.login().user || is_old => true,
            Some(login) => match link.authenticate(login, AUTH_TIMEOUT).await {
                AuthReply::Accepted => {
                    connector.metrics.reauthentications.inc();
                    self.succeed(connector);
                    return true;
                }
                AuthReply::Lost => return false,
                AuthReply::Late => false,
                AuthReply::Refused => true,
            },
        };
        if must_replace {
            self.replace(node, connector).await;
        } else {
            self.fail(connector, "no reply to the new credentials in time");
        }
        true
    }

    /// Makes another connection, and then leaves the one in use to its calls, with which it ends.
    async fn replace(&mut self, node: &Node, connector: &Connector) {
        match connector.connect().await {
            Ok(link) => {
                connector.load_scripts(&link).await;
                node.begin(link);
                connector.metrics.renewed_connections.inc();
                self.succeed(connector);
            }
            Err(error) => self.fail(connector, &error.to_string()),
        }
    }

    fn succeed(&mut self, connector: &Connector) {
        self.backoff.reset();
        let address = connector.address.to_string();
        debug!(address, "connection to Redis renewed");
        connector.access.logged.remove(&logged_as(&address));
    }

    fn fail(&mut self, connector: &Connector, reason: &str) {
        connector.metrics.renewal_failures.inc();
        let wait = self.backoff.next(connector.access.environment.random());
        self.retry_at = Instant::now().checked_add(wait);
        let address = connector.address.to_string();
        if connector.access.logged.replace(&logged_as(&address), reason) {
            warn!(address, error = reason, "cannot renew a connection to Redis; it remains in use");
        }
    }
}

/// Returns the name under which errors of renewals are stored, beside those of an address.
fn logged_as(address: &str) -> String {
    format!("renewal of {address}")
}
