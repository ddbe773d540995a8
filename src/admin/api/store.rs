//! Status of the process and its store.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Api;
use crate::operations::servers::{ServerState, TimedReport};
use crate::telemetry::metrics::Process;

/// The status of the process.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ProcessStatus {
    /// Version of the program.
    pub program: String,
    /// Start time, RFC 3339.
    pub begun_at: String,
    /// `true` if the process is ready for requests.
    pub is_ready: bool,
    /// Current problems; empty if there are none.
    pub degraded: Vec<String>,
    /// Resident memory of the process in bytes.
    pub resident_bytes: Option<u64>,
    /// The journal of denials.
    pub journal: JournalStatus,
    /// Number of rules that have decided at least one request.
    pub active_rules: usize,
}

/// The status of the journal of denials.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct JournalStatus {
    /// `true` if denials are recorded.
    pub is_on: bool,
    /// Memory in use, in bytes.
    pub bytes: usize,
    /// Denials dropped for lack of space since the start of the process.
    pub dropped: u64,
    /// Keys evicted in favor of others.
    pub replaced: u64,
}

/// The status of the store.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct StoreStatus {
    /// Servers of the store; empty if counters live in this process.
    pub servers: Vec<ServerStatus>,
}

/// A server of the store, as seen by the workers of this process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ServerStatus {
    /// Address of the server.
    pub address: String,
    /// Number of workers that use the server.
    pub workers: usize,
    /// Number of those workers that are connected to it.
    pub connected: usize,
    /// Number of those workers whose circuit breaker is open: the server does not reply in time,
    /// and calls fail at once until it does.
    pub breakers_open: usize,
    /// The last report of the server on itself; absent if there is none yet.
    pub info: Option<ServerInfo>,
}

/// The report of a server on itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ServerInfo {
    /// Time of the report, RFC 3339.
    pub at: String,
    /// Role: `master` or `slave`.
    pub role: String,
    /// Memory used by its data, in bytes.
    pub used_bytes: u64,
    /// Keys evicted since the server started, possibly including counters.
    pub evicted_keys: u64,
    /// Seconds since the server started.
    pub uptime_seconds: u64,
    /// Microseconds by which its clock is ahead of that of this process.
    pub clock_offset_us: i64,
    /// Round-trip time of the request for this report, in microseconds.
    pub round_trip_us: u64,
}

impl From<ServerState> for ServerStatus {
    fn from(server: ServerState) -> Self {
        let ServerState { address, workers, connected, breakers_open, report } = server;
        Self { address, workers, connected, breakers_open, info: report.map(ServerInfo::from) }
    }
}

impl From<TimedReport> for ServerInfo {
    fn from(TimedReport { at, server }: TimedReport) -> Self {
        Self {
            at: at.to_string(),
            role: server.role,
            used_bytes: server.used_bytes,
            evicted_keys: server.evicted_keys,
            uptime_seconds: server.uptime.as_secs(),
            clock_offset_us: server.clock_offset_us,
            round_trip_us: u64::try_from(server.round_trip.as_micros()).unwrap_or(u64::MAX),
        }
    }
}

impl ServerStatus {
    /// Returns the problem with the server, if there is one.
    fn problem(&self) -> Option<String> {
        let Self { address, workers, connected, breakers_open, .. } = self;
        if *breakers_open > 0 {
            return Some(format!(
                "store {address}: circuit breaker open in {breakers_open} of {workers} workers: no reply in time"
            ));
        }
        (connected < workers)
            .then(|| format!("store {address}: {connected} of {workers} workers are connected"))
    }
}

/// Returns the status of the process: its problems and its resource usage.
#[utoipa::path(get, path = "/api/v1/status", responses((status = 200, body = ProcessStatus)))]
pub(super) async fn status(State(api): State<Api>) -> Json<ProcessStatus> {
    let unready = api.process.not_ready_reason();
    let lost = api.journal.lost();
    let refused =
        api.process.policies().last_error.map(|_| "the last policy change was rejected".to_owned());
    let servers = servers(&api);
    let mut degraded: Vec<String> =
        unready.map(|reason| reason.trim().to_owned()).into_iter().collect();
    degraded.extend(refused);
    degraded.extend(servers.iter().filter_map(ServerStatus::problem));
    Json(ProcessStatus {
        program: env!("CARGO_PKG_VERSION").to_owned(),
        begun_at: api.begun.to_string(),
        is_ready: unready.is_none(),
        degraded,
        resident_bytes: Process::resident_bytes(),
        journal: JournalStatus {
            is_on: api.journal.is_on(),
            bytes: api.journal.bytes(),
            dropped: lost.dropped,
            replaced: lost.replaced,
        },
        active_rules: api.rates.lock().len(),
    })
}

/// Returns the servers of the store: connections, open circuit breakers, and what the servers
/// report about themselves.
#[utoipa::path(get, path = "/api/v1/store", responses((status = 200, body = StoreStatus)))]
pub(super) async fn store(State(api): State<Api>) -> Json<StoreStatus> {
    Json(StoreStatus { servers: servers(&api) })
}

fn servers(api: &Api) -> Vec<ServerStatus> {
    api.operations.servers().into_iter().map(ServerStatus::from).collect()
}
