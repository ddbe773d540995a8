//! Memory as a [`Backend`]: its counters belong to this process, and are lost when it ends.

use std::sync::Arc;
use std::time::Instant;

use tollgate_core::algorithm::hold::HoldList;
use tollgate_core::algorithm::tallies::EntryTally;
use tollgate_core::algorithm::time::Timestamp;
use tollgate_core::descriptor::CounterKey;

use super::MemoryStore;
use crate::backend::{Backend, BackendError};
use crate::clock::Clock;
use crate::loan::{LoanReturn, Returned};
use crate::scan::{ScanError, ScanPosition, ScannedKeys};
use crate::servers::ServerList;
use crate::{Check, StoreError};

impl<C: Clock> Backend for Arc<MemoryStore<C>> {
    fn is_shared(&self) -> bool {
        false
    }

    fn servers(&self) -> ServerList {
        ServerList::InProcess
    }

    async fn return_loan(
        &self,
        check: &Check<'_>,
        returned: LoanReturn,
        _: Instant,
    ) -> Result<Returned, StoreError> {
        self.return_now(check, returned)
    }

    async fn tallies(&self, key: &CounterKey<'_>) -> Result<Vec<EntryTally>, BackendError> {
        Ok(MemoryStore::tallies(self, key))
    }

    async fn open_holds(
        &self,
        key: &CounterKey<'_>,
        now: Timestamp,
    ) -> Result<HoldList, BackendError> {
        Ok(MemoryStore::open_holds(self, key, now))
    }

    async fn scan(&self, at: Option<ScanPosition>) -> Result<ScannedKeys, ScanError> {
        Ok(MemoryStore::scan(self, at))
    }

    async fn time_at(&self, _: &ScanPosition) -> Result<Timestamp, ScanError> {
        Ok(self.now())
    }

    /// Deletes nothing: the counters end with the process.
    async fn clear(&self) -> Result<(), BackendError> {
        Ok(())
    }
}
