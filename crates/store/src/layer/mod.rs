//! Layers: stores around another store. Each passes through when it is off.
//!
//! This file has a store below all layers, as the service uses it.
//!
//! | file | subject |
//! |---|---|
//! | `deny_cache` | denials that are repeated without a call of the store |
//! | `lease` | hits that are charged in advance |
//! | `loans` | hits that are charged in advance for holders outside of the process |
//! | `local` | decisions of this process alone while the store is unavailable |

pub mod deny_cache;
pub mod lease;
pub mod loans;
pub mod local;

use std::sync::Arc;
use std::time::Instant;

use tollgate_core::algorithm::amend::{Amended, Amendment};
use tollgate_core::algorithm::time::Timestamp;
use tollgate_core::algorithm::verdict::Prior;
use tollgate_telemetry::metrics::StoreMetrics;

use self::deny_cache::{DenialTable, DenyCache};
use self::lease::Leases;
use self::loans::Loans;
use self::local::Local;
use super::backend::Backend;
use super::fallback::Fallback;
use super::{Check, Outcomes, Store, StoreError};

/// A store with all layers around it.
pub struct Layered<B> {
    leases: Leases<DenyCache<Local<B>>>,
    loans: Loans<B>,
}

impl<B: Backend> Layered<B> {
    /// Puts a fallback and leases around a store, and a cache of denials if `denials` are given.
    pub fn new(
        backend: B,
        fallback: Fallback,
        denials: Option<Arc<DenialTable>>,
        metrics: Arc<StoreMetrics>,
    ) -> Self {
        let loans = Loans::new(backend.clone(), Arc::clone(&metrics));
        let local = Local::new(backend, Some(fallback));
        Self { leases: Leases::new(DenyCache::new(local, denials), metrics), loans }
    }

    /// Creates layers that do nothing: the store decides every request.
    pub fn disabled(backend: B, metrics: Arc<StoreMetrics>) -> Self {
        let loans = Loans::new(backend.clone(), Arc::clone(&metrics));
        let store = DenyCache::new(Local::new(backend, None), None);
        Self { leases: Leases::disabled(store, metrics), loans }
    }

    /// Returns the store without its layers.
    pub fn backend(&self) -> &B {
        self.leases.store().store().store()
    }

    /// Returns the loans of the store below all layers.
    pub fn loans(&self) -> &Loans<B> {
        &self.loans
    }

    /// Waits until pending charges and take-backs are done and leased hits are returned. Nothing is
    /// leased afterwards.
    pub async fn settled(&self) {
        self.leases.settled().await;
        self.leases.store().settled().await;
        self.loans.settled().await;
        self.backend().settled().await;
    }
}

impl<B: Backend> Store for Layered<B> {
    fn decide(
        &self,
        checks: &[Check<'_>],
        prior: Prior,
        deadline: Instant,
    ) -> impl Future<Output = Outcomes> + Send {
        self.leases.decide(checks, prior, deadline)
    }

    fn amend(
        &self,
        check: &Check<'_>,
        amendment: Amendment,
        deadline: Instant,
    ) -> impl Future<Output = Result<Amended, StoreError>> + Send {
        self.leases.amend(check, amendment, deadline)
    }

    fn now(&self) -> Timestamp {
        self.leases.now()
    }
}

#[cfg(test)]
mod tests;
