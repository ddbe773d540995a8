//! Store layer that decides alone while the store is unavailable, for limits whose
//! `on_store_error` is `local`. The decisions are those of a [`Fallback`].
//!
//! A store that can judge a part of a request and fail for the rest takes the fallback along
//! ([`Backend::decide_or_leave`]): only the store can take back the charges of that part if this
//! process then denies.

use std::time::Instant;

use futures_util::future::Either;
use tollgate_core::algorithm::Receipt;
use tollgate_core::algorithm::amend::{Amended, Amendment};
use tollgate_core::algorithm::time::Timestamp;
use tollgate_core::algorithm::verdict::Prior;

use crate::backend::Backend;
use crate::fallback::Fallback;
use crate::{CertainDenials, Check, Lender, Lent, Outcomes, Store, StoreError};

/// A store whose failures are decided by local counters.
pub struct Local<S> {
    store: S,
    /// The local counters; without them, failures are errors.
    fallback: Option<Fallback>,
}

impl<S: Backend> Local<S> {
    /// Creates a layer over `store`. Without a fallback, `local` is an error.
    pub fn new(store: S, fallback: Option<Fallback>) -> Self {
        Self { store, fallback }
    }

    /// Returns the underlying store.
    pub fn store(&self) -> &S {
        &self.store
    }
}

impl<S: Backend> Store for Local<S> {
    fn decide(
        &self,
        checks: &[Check<'_>],
        prior: Prior,
        deadline: Instant,
    ) -> impl Future<Output = Outcomes> + Send {
        match &self.fallback {
            None => Either::Left(self.store.decide(checks, prior, deadline)),
            Some(fallback) => {
                Either::Right(self.store.decide_or_leave(checks, prior, deadline, fallback))
            }
        }
    }

    fn amend(
        &self,
        check: &Check<'_>,
        amendment: Amendment,
        deadline: Instant,
    ) -> impl Future<Output = Result<Amended, StoreError>> + Send {
        self.store.amend(check, amendment, deadline)
    }

    fn now(&self) -> Timestamp {
        self.store.now()
    }

    fn certain_denials(&self) -> CertainDenials {
        self.store.certain_denials()
    }
}

impl<S: Backend> Lender for Local<S> {
    fn lend(
        &self,
        check: &Check<'_>,
        deadline: Instant,
    ) -> impl Future<Output = Result<Lent, StoreError>> + Send {
        self.store.lend(check, deadline)
    }

    fn take_back(
        &self,
        check: &Check<'_>,
        receipt: Receipt,
        deadline: Instant,
    ) -> impl Future<Output = Result<(), StoreError>> + Send {
        self.store.take_back(check, receipt, deadline)
    }
}
