//! The trait of stores that hold counters: what the process may ask of one besides decisions.
//!
//! A method with a body is optional: by default, a store needs no connection and reports no
//! problems, and operators see [`BackendError::NotSupported`] in the place of an answer. The
//! optional methods that wait return in bounded time, whatever the state of the servers, except
//! [`connected`](Backend::connected) and [`settled`](Backend::settled).

use std::future::{Future, ready};
use std::time::Instant;

use tollgate_core::algorithm::hold::HoldList;
use tollgate_core::algorithm::tallies::EntryTally;
use tollgate_core::algorithm::time::Timestamp;
use tollgate_core::algorithm::verdict::Prior;
use tollgate_core::descriptor::CounterKey;

use super::fallback::Fallback;
use super::loan::{self, LoanReturn, Returned};
use super::replicas::{Registered, RegisteredReplica, ReplicaInfo};
use super::scan::{ScanError, ScanPosition, ScannedKeys};
use super::servers::{CheckUp, RefusedAccess, ServerList, ServerReport, StoreFinding};
use super::{Check, Lender, Outcomes, StoreError};

/// The state of a store's servers, on which readiness depends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackendState {
    /// The store can decide, if not for all keys.
    Connected,
    /// No server is connected; with the reason, if one is known.
    NotConnected(Option<String>),
    /// The server at this address must be a master, and is a read-only replica.
    Replica(String),
    /// A server refuses all that decisions need, and no other is connected.
    Refused(RefusedAccess),
}

/// Reason why a store does not answer an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BackendError {
    /// The store has no such operation.
    #[error("not supported by this store")]
    NotSupported,
    /// The store failed.
    #[error(transparent)]
    Failed(#[from] StoreError),
}

/// A text with denials that a process published.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublishedDenials {
    /// ID of the process.
    pub by: String,
    /// Number of the minute since the epoch.
    pub minute: u64,
    /// The text.
    pub text: Vec<u8>,
}

/// A store that holds counters, without layers. Clones are handles of one store.
pub trait Backend: Lender + Clone {
    /// Returns `true` if other processes may use the same counters: denials and leases of this
    /// process are then cached, and the process shares limits with others under `local`.
    fn is_shared(&self) -> bool;

    /// Waits until the store is ready for calls: until it has tried to connect to all its servers,
    /// and is connected to one.
    fn connected(&self) -> impl Future<Output = ()> + Send {
        ready(())
    }

    /// Waits until work that continues after replies is done.
    fn settled(&self) -> impl Future<Output = ()> + Send {
        ready(())
    }

    /// Returns the state of the servers, as seen by this handle.
    fn state(&self) -> BackendState {
        BackendState::Connected
    }

    /// Judges as [`decide`](super::Store::decide) does, and leaves to `fallback` the checks that
    /// the store cannot judge and whose `on_store_error` is `local`.
    ///
    /// By default, the fallback decides them if the store failed for the whole request; else they
    /// are errors. A store of several servers does better: it keeps the charges of a part until the
    /// fallback has decided the rest, and takes them back unless the request is then admitted.
    fn decide_or_leave(
        &self,
        checks: &[Check<'_>],
        prior: Prior,
        deadline: Instant,
        fallback: &Fallback,
    ) -> impl Future<Output = Outcomes> + Send {
        async move {
            let outcomes = self.decide(checks, prior, deadline).await;
            fallback.complete(checks, outcomes, prior)
        }
    }

    /// Accepts the return of a loan, if it is the first one and not too late: in one step, keeps
    /// the number of the loan, and takes the unused hits back as [`take_back`](Lender::take_back)
    /// does.
    ///
    /// By default, refuses all returns: unused hits then count until they expire.
    fn return_loan(
        &self,
        check: &Check<'_>,
        returned: LoanReturn,
        deadline: Instant,
    ) -> impl Future<Output = Result<Returned, StoreError>> + Send {
        let _ = (check, returned, deadline);
        ready(loan::NOT_KEPT)
    }

    /// Checks at startup for server settings that break a promise.
    fn check_up(&self) -> impl Future<Output = CheckUp> + Send {
        ready(CheckUp::default())
    }

    /// Examines all servers, before a service uses them.
    ///
    /// # Errors
    /// The store does not support it.
    fn examine(&self) -> impl Future<Output = Result<Vec<StoreFinding>, BackendError>> + Send {
        ready(Err(BackendError::NotSupported))
    }

    /// Returns the servers that decide, as seen by this handle.
    fn servers(&self) -> ServerList {
        ServerList::NotSupported
    }

    /// Queries the servers on themselves; those that do not answer are left out.
    fn server_reports(&self) -> impl Future<Output = Vec<ServerReport>> + Send {
        ready(Vec::new())
    }

    /// Returns the tallies of a counter, those with the most hits first; empty if the counter does
    /// not exist or records nothing.
    ///
    /// # Errors
    /// The store failed or does not support it, or the value cannot be read.
    fn tallies(
        &self,
        key: &CounterKey<'_>,
    ) -> impl Future<Output = Result<Vec<EntryTally>, BackendError>> + Send {
        let _ = key;
        ready(Err(BackendError::NotSupported))
    }

    /// Returns the open holds of a counter at `now`, the instant of the counter, oldest first.
    ///
    /// # Errors
    /// The store failed or does not support it, or the counter or its holds cannot be read.
    fn open_holds(
        &self,
        key: &CounterKey<'_>,
        now: Timestamp,
    ) -> impl Future<Output = Result<HoldList, BackendError>> + Send {
        let _ = (key, now);
        ready(Err(BackendError::NotSupported))
    }

    /// Returns some of the keys of the store from a position on, or from the first.
    ///
    /// # Errors
    /// A server failed, the position is that of no master, or the store does not support it.
    fn scan(
        &self,
        at: Option<ScanPosition>,
    ) -> impl Future<Output = Result<ScannedKeys, ScanError>> + Send {
        let _ = at;
        ready(Err(ScanError::NotSupported))
    }

    /// Returns the time of the clock by which the counters at a position are judged.
    ///
    /// # Errors
    /// As for [`scan`](Self::scan).
    fn time_at(
        &self,
        at: &ScanPosition,
    ) -> impl Future<Output = Result<Timestamp, ScanError>> + Send {
        let _ = at;
        ready(Err(ScanError::NotSupported))
    }

    /// Deletes all counters of the store.
    ///
    /// # Errors
    /// The store failed or does not support it.
    fn clear(&self) -> impl Future<Output = Result<(), BackendError>> + Send {
        ready(Err(BackendError::NotSupported))
    }

    /// Publishes the text of the process `by` for a minute, replacing an earlier one.
    ///
    /// # Errors
    /// The store failed or does not support it.
    fn publish_denials(
        &self,
        by: &str,
        minute: u64,
        text: &str,
    ) -> impl Future<Output = Result<(), BackendError>> + Send {
        let _ = (by, minute, text);
        ready(Err(BackendError::NotSupported))
    }

    /// Fetches the texts that all processes published for these minutes.
    ///
    /// # Errors
    /// The store failed or does not support it.
    fn fetch_denials(
        &self,
        minutes: &[u64],
    ) -> impl Future<Output = Result<Vec<PublishedDenials>, BackendError>> + Send {
        let _ = minutes;
        ready(Err(BackendError::NotSupported))
    }

    /// Sends a heartbeat of the process `id`, and returns the live processes on the store.
    ///
    /// # Errors
    /// The store failed or does not support it: `local` then needs a given number of replicas.
    fn heartbeat(&self, id: &str) -> impl Future<Output = Result<Registered, BackendError>> + Send {
        let _ = id;
        ready(Err(BackendError::NotSupported))
    }

    /// Publishes the description of the process `id`, until some time without another one.
    ///
    /// # Errors
    /// The store failed or does not support it.
    fn announce(
        &self,
        id: &str,
        info: &ReplicaInfo,
    ) -> impl Future<Output = Result<(), BackendError>> + Send {
        let _ = (id, info);
        ready(Err(BackendError::NotSupported))
    }

    /// Returns the live processes on the store with their descriptions, at most a thousand.
    ///
    /// # Errors
    /// The store failed or does not support it.
    fn replicas(
        &self,
    ) -> impl Future<Output = Result<Vec<RegisteredReplica>, BackendError>> + Send {
        ready(Err(BackendError::NotSupported))
    }
}
