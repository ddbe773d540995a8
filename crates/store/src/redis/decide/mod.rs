//! Decisions of requests, leases and amendments, by the servers of their slots.
//!
//! | file | purpose |
//! |---|---|
//! | `alone` | a request of a single check |
//! | `request`, `plan` | any request: distribution of checks over slots, and what is undone |
//! | `take_back` | charges that have to be undone |
//! | `amend` | amendments of one counter by operators |
//! | `lend` | hits that are charged in advance |
//! | `loan` | returns of loans |

mod alone;
mod amend;
mod lend;
mod loan;
mod plan;
mod request;
mod take_back;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::time::Instant;
use tollgate_core::algorithm::amend::{Amended, Amendment};
use tollgate_core::algorithm::time::Timestamp;
use tollgate_core::algorithm::verdict::Prior;

use self::plan::Group;
use super::calls::{Core, within};
use super::{CONNECTED_EVERY, RedisStore};
use crate::fallback::Fallback;
use crate::{CertainDenials, Check, Outcomes, Store, StoreError};

impl RedisStore {
    fn core_of(&self, group: &Group) -> &Arc<Core> {
        self.core_for(group.per_second)
    }

    /// Decides; with a fallback, that decides the checks that no server judged, and whose
    /// `on_store_error` is `local`. Without it, they are errors.
    pub(super) fn decide_by_servers(
        &self,
        checks: &[Check<'_>],
        prior: Prior,
        deadline: Instant,
        fallback: Option<&Fallback>,
    ) -> impl Future<Output = Outcomes> + Send {
        async move {
            if let Some(check) = alone::only_change(checks)
                && let Some(outcome) = self.decide_alone(check, prior, deadline).await
            {
                let outcomes = alone::outcomes_of(checks, outcome);
                return match fallback {
                    Some(fallback) => fallback.complete(checks, outcomes, prior),
                    None => outcomes,
                };
            }
            // Boxed, so that the common path does not carry its state.
            Box::pin(self.decide_all(checks, prior, deadline, fallback)).await
        }
    }

    /// Waits until connections to the servers of these slots were attempted, successfully or not.
    /// Only needed at startup.
    async fn begin(&self, groups: &[Group], deadline: Instant) {
        if self.has_begun() {
            return;
        }
        while Instant::now() < deadline
            && !groups.iter().all(|group| self.core_of(group).was_attempted(group.slot))
        {
            tokio::time::sleep_until(within(CONNECTED_EVERY).min(deadline)).await;
        }
        if self.cores().all(|core| core.routes.was_attempted()) {
            self.begun.store(true, Ordering::Relaxed);
        }
    }
}

impl Store for RedisStore {
    fn decide(
        &self,
        checks: &[Check<'_>],
        prior: Prior,
        deadline: std::time::Instant,
    ) -> impl Future<Output = Outcomes> + Send {
        self.decide_by_servers(checks, prior, deadline.into(), None)
    }

    async fn amend(
        &self,
        check: &Check<'_>,
        amendment: Amendment,
        deadline: std::time::Instant,
    ) -> Result<Amended, StoreError> {
        self.amend_one(check, amendment, Instant::from_std(deadline)).await
    }

    fn now(&self) -> Timestamp {
        self.core.now()
    }

    fn certain_denials(&self) -> CertainDenials {
        // Only a connection shows that a proxy shards keys.
        if self.core.is_sharded() { CertainDenials::IrrevocableOnly } else { self.certain_denials }
    }
}
