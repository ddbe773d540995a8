//! The operations that the admin API delegates to the deciding part of the process, which owns the
//! stores and the policy sources.

use std::future::Future;
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::Arc;

use parking_lot::Mutex;

use super::api::ApiError;
use super::api::ask::{CounterUsers, Peeked, TryRequest};
use super::api::counter::{Changed, CounterView};
use super::api::policies::Reloaded;
use super::api::store::ServerStatus;
use crate::algorithm::amend::Amendment;
use crate::journal::PeerDenials;

/// A boxed future for the result of an operation.
pub type OperationFuture<T> = Pin<Box<dyn Future<Output = Result<T, ApiError>> + Send>>;

/// Details of a write for the audit log, beyond its path. Handlers add each detail as soon as it is
/// known, so that the log entry is complete even if the write fails later.
#[derive(Clone, Debug, Default)]
pub struct AuditEntry(Arc<Mutex<String>>);

impl AuditEntry {
    /// Appends `text`.
    pub fn add(&self, text: &str) {
        self.0.lock().push_str(text);
    }

    /// Returns all details added so far.
    pub fn text(&self) -> String {
        self.0.lock().clone()
    }
}

/// Denials published by the other replicas on the same store.
#[derive(Debug, Default)]
pub struct PeerReport {
    /// `true` if there is a shared store to exchange denials through.
    pub is_shared: bool,
    /// The published denials.
    pub denials: Vec<PeerDenials>,
    /// Number of replicas that published denials.
    pub processes: usize,
    /// The reason why denials may be missing.
    pub missing: Option<String>,
}

/// Operations on the stores and the policies of this process.
pub trait Operations: Send + Sync {
    /// Returns the decision that a request would get now, without writing or counting anything.
    fn peek(&self, question: TryRequest) -> OperationFuture<Peeked>;

    /// Returns the callers that used up the counter of a descriptor (`key=value,…`) in a domain.
    fn who(&self, domain: String, descriptor: String) -> OperationFuture<CounterUsers>;

    /// Returns the state of the counter of a descriptor. The caller adds the denials from the
    /// journal.
    fn counter(&self, domain: String, descriptor: String) -> OperationFuture<CounterView>;

    /// Resets, refunds or grants hits to the counter of a descriptor.
    fn amend(
        &self,
        domain: String,
        descriptor: String,
        amendment: Amendment,
        audit: AuditEntry,
    ) -> OperationFuture<Changed>;

    /// Reloads the policies.
    fn reload(&self) -> OperationFuture<Reloaded>;

    /// Returns the denials that other replicas on the same store published for `minutes`, which are
    /// numbered since the epoch.
    fn peer_denials(&self, minutes: RangeInclusive<u64>) -> Pin<Box<dyn Future<Output = PeerReport> + Send>>;

    /// Returns the servers of the store; empty if counters live in this process.
    fn servers(&self) -> Vec<ServerStatus>;
}
