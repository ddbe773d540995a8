//! A store in memory whose calls wait while its gate is closed, and are late at their deadline.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::watch;

use crate::algorithm::Receipt;
use crate::algorithm::amend::{Amended, Amendment};
use crate::algorithm::time::Timestamp;
use crate::algorithm::verdict::Prior;
use crate::store::backend::Backend;
use crate::store::clock::ManualClock;
use crate::store::memory::MemoryStore;
use crate::store::{Check, Lender, Lent, Outcomes, Store, StoreError};

/// The store, with its gate.
#[derive(Clone)]
pub(super) struct GatedStore {
    pub(super) store: Arc<MemoryStore<Arc<ManualClock>>>,
    /// `true` while it is open.
    pub(super) gate: watch::Sender<bool>,
}

impl GatedStore {
    pub(super) fn new(store: MemoryStore<Arc<ManualClock>>) -> Self {
        Self { store: Arc::new(store), gate: watch::Sender::new(true) }
    }

    async fn pass(&self, deadline: Instant) -> Result<(), StoreError> {
        // A wait is no step of the runtime if it need not be.
        if *self.gate.borrow() {
            return Ok(());
        }
        let mut gate = self.gate.subscribe();
        let open = gate.wait_for(|is_open| *is_open);
        match tokio::time::timeout_at(deadline.into(), open).await {
            Ok(_) => Ok(()),
            Err(_) => Err(StoreError::Late),
        }
    }
}

impl Store for GatedStore {
    async fn decide(&self, checks: &[Check<'_>], prior: Prior, deadline: Instant) -> Outcomes {
        match self.pass(deadline).await {
            Ok(()) => self.store.decide(checks, prior, deadline).await,
            Err(error) => checks.iter().map(|_| Err(error)).collect(),
        }
    }

    async fn amend(
        &self,
        check: &Check<'_>,
        amendment: Amendment,
        deadline: Instant,
    ) -> Result<Amended, StoreError> {
        self.pass(deadline).await?;
        self.store.amend(check, amendment, deadline).await
    }

    fn now(&self) -> Timestamp {
        Store::now(&self.store)
    }
}

impl Lender for GatedStore {
    async fn lend(&self, check: &Check<'_>, deadline: Instant) -> Result<Lent, StoreError> {
        self.pass(deadline).await?;
        self.store.lend(check, deadline).await
    }

    async fn take_back(
        &self,
        check: &Check<'_>,
        receipt: Receipt,
        deadline: Instant,
    ) -> Result<(), StoreError> {
        self.pass(deadline).await?;
        self.store.take_back(check, receipt, deadline).await
    }
}

impl Backend for GatedStore {
    fn is_shared(&self) -> bool {
        false
    }
}
