//! The servers of the store, as seen by the workers of this process.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;

use super::workers::WorkerServices;
use crate::store::backend::{Backend, BackendError};
use crate::store::servers::{ServerList, ServerReport};

/// A server of the store, as seen by the workers of this process.
#[derive(Clone, Debug)]
pub struct ServerState {
    /// Address of the server.
    pub address: String,
    /// Number of workers that use the server.
    pub workers: usize,
    /// Number of those workers that are connected to it.
    pub connected: usize,
    /// Number of those workers whose circuit breaker is open.
    pub breakers_open: usize,
    /// The last report of the server on itself; absent if there is none yet.
    pub report: Option<TimedReport>,
}

/// The report of a server on itself.
#[derive(Clone, Debug)]
pub struct TimedReport {
    /// Time of the report.
    pub at: Timestamp,
    /// The report.
    pub server: ServerReport,
}

/// The last report of each server, by address.
#[derive(Clone, Debug, Default)]
pub struct ServerReports(Arc<Mutex<HashMap<String, TimedReport>>>);

impl ServerReports {
    /// Records reports that just arrived.
    pub fn record(&self, servers: impl IntoIterator<Item = ServerReport>) {
        let at = Timestamp::now();
        let reports = servers.into_iter();
        let reports = reports.map(|server| (server.address.clone(), TimedReport { at, server }));
        self.0.lock().extend(reports);
    }

    /// Removes the report of a server that is not used any more.
    pub fn remove(&self, address: &str) {
        self.0.lock().remove(address);
    }

    fn of(&self, address: &str) -> Option<TimedReport> {
        self.0.lock().get(address).cloned()
    }
}

/// Returns the servers that the services use, by address; empty if counters live in this process.
pub(super) fn servers(
    services: &WorkerServices<impl Backend>,
    reports: &ServerReports,
) -> Result<Vec<ServerState>, BackendError> {
    let mut servers: BTreeMap<String, ServerState> = BTreeMap::new();
    for service in services.all() {
        let nodes = match service.limiter().store().backend().servers() {
            ServerList::Listed(nodes) => nodes,
            ServerList::InProcess => Vec::new(),
            ServerList::NotSupported => return Err(BackendError::NotSupported),
        };
        for node in nodes {
            let server = servers.entry(node.address).or_insert_with_key(|address| ServerState {
                workers: 0,
                connected: 0,
                breakers_open: 0,
                report: reports.of(address),
                address: address.clone(),
            });
            server.workers += 1;
            server.connected += usize::from(node.is_connected);
            server.breakers_open += usize::from(node.is_breaker_open);
        }
    }
    Ok(servers.into_values().collect())
}
