//! Iteration over the keys of all counters of a store, in parts.

use tollgate_core::descriptor::OwnedKey;

use super::StoreError;

/// A position in the keys of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScanPosition {
    /// `true` for the servers for limits of a second.
    pub per_second: bool,
    /// Address of the server; empty for counters in memory.
    pub address: String,
    /// Cursor of that server.
    pub cursor: u64,
}

/// A part of the keys of one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScannedKeys {
    /// The keys; also keys that are not those of counters.
    pub keys: Vec<OwnedKey>,
    /// The position of these keys.
    pub at: ScanPosition,
    /// The position at which the keys go on; `None` after the last.
    pub next: Option<ScanPosition>,
}

/// Reason why keys cannot be listed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScanError {
    /// No master is known.
    #[error("no master of the store is known")]
    NoServer,
    /// The position names a server that is not a master of the store.
    #[error("{0} is not a master of the store now; start again from the beginning")]
    UnknownServer(String),
    /// The store cannot list its keys.
    #[error("not supported by this store")]
    NotSupported,
    /// A server failed.
    #[error("{0}: {1}")]
    Server(String, StoreError),
}
