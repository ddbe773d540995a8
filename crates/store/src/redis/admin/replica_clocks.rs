//! Clock offsets of replicas from their masters: a replica's clock decides once it is promoted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use redis::aio::{ConnectionLike as _, MultiplexedConnection};
use tokio::time::{Instant, timeout};
use tollgate_core::algorithm::time::Timestamp;

use crate::redis::config::access::Access;
use crate::redis::config::url::ServerAddress;
use crate::redis::credentials::Logins;
use crate::redis::credentials::login::Login;
use crate::redis::server::connect::{connect, timeout_of};
use crate::servers::ReplicaClock;

/// Timeout for a replica's reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum number of replicas queried for each master.
const MOST: usize = 8;

/// Connections to replicas, kept from one query to the next. A replica that is unreachable or does
/// not return the time is left out until the next query.
#[derive(Default)]
pub(in crate::redis) struct ReplicaConnections(Mutex<BTreeMap<ServerAddress, KeptConnection>>);

/// A connection that is kept until its login or its age is no longer right.
struct KeptConnection {
    connection: MultiplexedConnection,
    login: Arc<Login>,
    since: Instant,
}

impl KeptConnection {
    fn is_usable(&self, access: &Access, logins: &Logins) -> bool {
        logins.published().is_none_or(|login| login == self.login)
            && access.max_age.is_none_or(|age| self.since.elapsed() < age)
    }

    async fn open(access: &Access, logins: &Logins, address: &ServerAddress) -> Option<Self> {
        let login = logins.current(timeout_of(access)).await.ok()?;
        let connection = connect(access, address, &login).await.ok()?;
        Some(Self { connection, login, since: Instant::now() })
    }
}

impl std::fmt::Debug for ReplicaConnections {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ReplicaConnections")
    }
}

impl ReplicaConnections {
    /// Returns the clocks of a master's replicas. `master_offset_us` is the offset of the master's
    /// own clock from this process's.
    pub(in crate::redis) async fn clocks(
        &self,
        access: &Access,
        logins: &Logins,
        replicas: impl Iterator<Item = ServerAddress>,
        master_offset_us: i64,
    ) -> Vec<ReplicaClock> {
        let clocks = replicas.take(MOST).map(async |address| {
            let offset_us = self.offset_us(access, logins, &address).await?;
            let offset_us = offset_us.saturating_sub(master_offset_us);
            Some(ReplicaClock { address: address.to_string(), offset_us })
        });
        join_all(clocks).await.into_iter().flatten().collect()
    }

    /// Closes the connections to all other replicas.
    pub(in crate::redis) fn keep<'c>(&self, clocks: impl Iterator<Item = &'c ReplicaClock>) {
        let kept: BTreeSet<&str> = clocks.map(|clock| clock.address.as_str()).collect();
        self.0.lock().retain(|address, _| kept.contains(&*address.to_string()));
    }

    /// Returns the microseconds by which a replica's clock is ahead of this process's.
    async fn offset_us(
        &self,
        access: &Access,
        logins: &Logins,
        address: &ServerAddress,
    ) -> Option<i64> {
        let kept = self.0.lock().remove(address);
        let mut kept = match kept.filter(|kept| kept.is_usable(access, logins)) {
            Some(kept) => kept,
            None => KeptConnection::open(access, logins, address).await?,
        };
        let sent = access.environment.now();
        let time = redis::cmd("TIME");
        let reply = timeout(REPLY_TIMEOUT, kept.connection.req_packed_command(&time)).await;
        let reply = reply.ok()?.ok()?;
        let received = access.environment.now();
        let (seconds, micros): (u64, u64) =
            redis::from_redis_value(reply.extract_error().ok()?).ok()?;
        self.0.lock().insert(address.clone(), kept);
        Some(offset_us(seconds.saturating_mul(1_000_000).saturating_add(micros), sent, received))
    }
}

/// Returns the microseconds by which a clock was ahead of this process's at the midpoint between
/// request and reply.
pub(super) fn offset_us(theirs: u64, sent: Timestamp, received: Timestamp) -> i64 {
    let ours = sent.as_micros().midpoint(received.as_micros());
    i64::try_from(i128::from(theirs).saturating_sub(i128::from(ours))).unwrap_or_default()
}
