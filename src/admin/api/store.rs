//! Status of the process and its store.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Api;
use super::undecided::{self, UndecidedView};
use crate::operations::Backend;
use crate::operations::servers::{ServerState, TimedReport};
use crate::printable::excerpt;
use crate::telemetry::build_info::BuildInfo;
use crate::telemetry::metrics::Process;

/// Maximum bytes of the reason of a rejected change.
const MAX_REASON: usize = 160;

/// The status of the process.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct ProcessStatus {
    /// Host name of this replica.
    pub instance: String,
    /// Version of the program, and the revision of its sources if it is known.
    pub program: String,
    /// Start time, RFC 3339.
    pub begun_at: String,
    /// `true` if the process is ready for requests.
    pub is_ready: bool,
    /// Current problems; empty if there are none.
    pub degraded: Vec<String>,
    /// Descriptors of the last ten seconds that the store could not judge.
    pub undecided: UndecidedView,
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
    /// The reason why no servers are listed although there may be some; absent if they are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub servers_unknown: Option<String>,
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
    /// Maximum memory of its data, in bytes (`maxmemory`); absent if it has none.
    pub max_bytes: Option<u64>,
    /// Percentage of that maximum in use; absent if there is none.
    pub memory_percent: Option<u64>,
    /// `true` if more than 90 % of that maximum are in use.
    pub is_nearly_full: bool,
    /// Treatment of writes at the maximum (`maxmemory_policy`); absent if it is not reported.
    pub policy: Option<String>,
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
            memory_percent: server.memory_percent(),
            is_nearly_full: server.is_nearly_full(),
            role: server.role,
            used_bytes: server.used_bytes,
            max_bytes: server.max_bytes,
            policy: server.policy,
            evicted_keys: server.evicted_keys,
            uptime_seconds: server.uptime.as_secs(),
            clock_offset_us: server.clock_offset_us,
            round_trip_us: u64::try_from(server.round_trip.as_micros()).unwrap_or(u64::MAX),
        }
    }
}

impl ServerStatus {
    /// Returns the problems with the server.
    fn problems(&self) -> impl Iterator<Item = String> {
        let Self { address, workers, connected, breakers_open, .. } = self;
        let connection = if *breakers_open > 0 {
            Some(format!(
                "store {address}: circuit breaker open in {breakers_open} of {workers} workers: no reply in time"
            ))
        } else {
            (connected < workers)
                .then(|| format!("store {address}: {connected} of {workers} workers are connected"))
        };
        let memory = self.info.as_ref().and_then(|info| info.memory_problem(address));
        connection.into_iter().chain(memory)
    }
}

impl ServerInfo {
    /// Returns the problem with the memory of the server at `address`, if it is nearly full.
    fn memory_problem(&self, address: &str) -> Option<String> {
        let percent = self.memory_percent.filter(|_| self.is_nearly_full)?;
        let effect = match self.policy.as_deref() {
            Some("noeviction") => "writes fail when it is full; raise maxmemory",
            Some(_) | None => {
                "counters are evicted when it is full, which admits more than the limits; raise \
                 maxmemory and set maxmemory-policy noeviction"
            }
        };
        Some(format!("store {address}: {percent} % of maxmemory used: {effect}"))
    }
}

/// Returns the problem of a policy change that was rejected for these reasons.
pub(super) fn rejected(report: &str) -> String {
    let first = report.lines().find_map(|line| line.strip_prefix("error: "));
    let reason = first.map(|line| format!(": {}", excerpt(line, MAX_REASON)));
    let reason = reason.unwrap_or_default();
    format!("the last policy change was rejected{reason}; `tollgate reload` shows all errors")
}

/// Returns the status of the process: its problems and its resource usage.
#[utoipa::path(get, path = "/api/v1/status", responses((status = 200, body = ProcessStatus)))]
pub(super) async fn status<B: Backend>(State(api): State<Api<B>>) -> Json<ProcessStatus> {
    let unready = api.process.not_ready_reason();
    let lost = api.journal.lost();
    let refused = api.process.policies().last_error.as_deref().map(rejected);
    let StoreStatus { servers, .. } = servers(&api);
    let undecided = api.undecided.lock().causes();
    let mut degraded: Vec<String> =
        unready.map(|reason| reason.trim().to_owned()).into_iter().collect();
    degraded.extend(refused);
    degraded.extend(undecided::problems(&undecided));
    degraded.extend(servers.iter().flat_map(ServerStatus::problems));
    Json(ProcessStatus {
        instance: api.instance.to_string(),
        program: BuildInfo::OF_PROGRAM.to_string(),
        begun_at: api.begun.to_string(),
        is_ready: unready.is_none(),
        degraded,
        undecided: UndecidedView::of(&undecided),
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
pub(super) async fn store<B: Backend>(State(api): State<Api<B>>) -> Json<StoreStatus> {
    Json(servers(&api))
}

fn servers(api: &Api<impl Backend>) -> StoreStatus {
    match api.operations.servers() {
        Ok(servers) => StoreStatus {
            servers: servers.into_iter().map(ServerStatus::from).collect(),
            servers_unknown: None,
        },
        Err(error) => StoreStatus { servers: Vec::new(), servers_unknown: Some(error.to_string()) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_to_which_some_workers_are_not_connected_is_a_problem() {
        let problems = |connected| {
            let address = "a".to_owned();
            let server =
                ServerStatus { address, workers: 2, connected, breakers_open: 0, info: None };
            server.problems().count()
        };
        assert_eq!([0, 1, 2].map(problems), [1, 1, 0]);
    }
}
