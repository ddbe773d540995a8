//! Redis as a [`Backend`]: the state of its masters, and operations by the files of `admin`.

use std::sync::Arc;
use std::time::Instant;

use tollgate_core::algorithm::hold::HoldList;
use tollgate_core::algorithm::tallies::EntryTally;
use tollgate_core::algorithm::time::Timestamp;
use tollgate_core::algorithm::verdict::Prior;
use tollgate_core::descriptor::CounterKey;

use super::server::Node;
use super::{CONNECTED_EVERY, RedisStore};
use crate::backend::{Backend, BackendError, BackendState, PublishedDenials};
use crate::fallback::Fallback;
use crate::loan::{LoanReturn, Returned};
use crate::replicas::{Registered, RegisteredReplica, ReplicaInfo};
use crate::scan::{ScanError, ScanPosition, ScannedKeys};
use crate::servers::{CheckUp, RefusedAccess, ServerList, ServerReport, StoreFinding};
use crate::{Check, Outcomes, StoreError};

impl Backend for RedisStore {
    fn is_shared(&self) -> bool {
        true
    }

    /// Waits until one master is connected, and connections to all others were attempted: a dead
    /// master does not keep keys of the others from being decided.
    async fn connected(&self) {
        for core in self.cores() {
            loop {
                let masters = core.routes.masters();
                let is_one_connected = masters.iter().any(|node| node.is_connected());
                if is_one_connected && masters.iter().all(|node| node.was_attempted()) {
                    break;
                }
                tokio::time::sleep(CONNECTED_EVERY).await;
            }
        }
    }

    async fn return_loan(
        &self,
        check: &Check<'_>,
        returned: LoanReturn,
        deadline: Instant,
    ) -> Result<Returned, StoreError> {
        self.return_one(check, &returned, deadline.into()).await
    }

    /// Waits until all take-backs are done, and all requests whose callers are gone are decided.
    async fn settled(&self) {
        self.background.settled().await;
    }

    fn state(&self) -> BackendState {
        let masters: Vec<Arc<Node>> = self.cores().flat_map(|core| core.routes.masters()).collect();
        if let Some(replica) = masters.iter().find(|node| node.is_replica()) {
            return BackendState::Replica(replica.address.to_string());
        }
        if let Some(refused) = self.refused_access() {
            return BackendState::Refused(refused);
        }
        // Limits of a second may have separate servers: both are needed.
        let is_connected =
            self.cores().all(|core| core.routes.masters().iter().any(|node| node.is_connected()));
        if is_connected {
            BackendState::Connected
        } else {
            BackendState::NotConnected(masters.iter().find_map(|node| node.connect_error()))
        }
    }

    fn decide_or_leave(
        &self,
        checks: &[Check<'_>],
        prior: Prior,
        deadline: Instant,
        fallback: &Fallback,
    ) -> impl Future<Output = Outcomes> + Send {
        self.decide_by_servers(checks, prior, deadline.into(), Some(fallback))
    }

    async fn check_up(&self) -> CheckUp {
        self.check_up().await
    }

    async fn examine(&self) -> Result<Vec<StoreFinding>, BackendError> {
        Ok(self.examine().await)
    }

    fn servers(&self) -> ServerList {
        let masters = self.cores().flat_map(|core| core.routes.masters());
        ServerList::Listed(masters.map(|node| node.health()).collect())
    }

    async fn server_reports(&self) -> Vec<ServerReport> {
        self.server_reports().await
    }

    async fn tallies(&self, key: &CounterKey<'_>) -> Result<Vec<EntryTally>, BackendError> {
        Ok(self.tallies(key).await?)
    }

    async fn open_holds(
        &self,
        key: &CounterKey<'_>,
        now: Timestamp,
    ) -> Result<HoldList, BackendError> {
        Ok(self.open_holds(key, now).await?)
    }

    async fn scan(&self, at: Option<ScanPosition>) -> Result<ScannedKeys, ScanError> {
        self.scan(at).await
    }

    async fn time_at(&self, at: &ScanPosition) -> Result<Timestamp, ScanError> {
        self.time_at(at).await
    }

    async fn clear(&self) -> Result<(), BackendError> {
        Ok(self.clear().await?)
    }

    async fn publish_denials(&self, by: &str, minute: u64, text: &str) -> Result<(), BackendError> {
        Ok(self.publish_denials(by, minute, text).await?)
    }

    async fn fetch_denials(&self, minutes: &[u64]) -> Result<Vec<PublishedDenials>, BackendError> {
        Ok(self.fetch_denials(minutes).await?)
    }

    async fn heartbeat(&self, id: &str) -> Result<Registered, BackendError> {
        Ok(self.heartbeat(id).await?)
    }

    async fn announce(&self, id: &str, info: &ReplicaInfo) -> Result<(), BackendError> {
        Ok(self.announce(id, info).await?)
    }

    async fn replicas(&self) -> Result<Vec<RegisteredReplica>, BackendError> {
        Ok(self.replicas().await?)
    }
}

impl RedisStore {
    /// Returns a server that refuses all that decisions need, with the reason and the next step, if
    /// no other master of its servers is connected: those decide their own keys.
    fn refused_access(&self) -> Option<RefusedAccess> {
        self.cores().find_map(|core| {
            let masters = core.routes.masters();
            let refused = masters.iter().find_map(|node| node.refused_access());
            refused.filter(|_| !masters.iter().any(|node| node.is_connected()))
        })
    }
}
