//! How the process and its store are.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Api;
use crate::telemetry::metrics::Process;

/// How the process is.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Status {
    /// The version of the program.
    pub program: String,
    /// When it began, RFC 3339.
    pub begun_at: String,
    /// Whether it should be asked.
    pub is_ready: bool,
    /// What is not as it should be, in words; empty: nothing.
    pub degraded: Vec<String>,
    /// Bytes of memory that the process has.
    pub resident_bytes: Option<u64>,
    /// The journal of denials.
    pub journal: JournalStatus,
    /// Rules that have decided something.
    pub active_rules: usize,
}

/// How the journal of denials is.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct JournalStatus {
    /// Whether denials are taken down.
    pub is_on: bool,
    /// Bytes that it takes.
    pub bytes: usize,
    /// Denials that it had no room for, since the process began.
    pub dropped: u64,
    /// Keys that went for others.
    pub replaced: u64,
}

/// How the store is.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Store {
    /// Its servers; none where counters live in this process.
    pub servers: Vec<Server>,
}

/// A server of the store, as the workers of this process see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Server {
    /// Its address.
    pub address: String,
    /// Workers that know it.
    pub workers: usize,
    /// Those of them that are connected to it.
    pub connected: usize,
    /// Those of them whose breaker is open: it does not answer in time, and calls fail at once until it does.
    pub breakers_open: usize,
    /// What it said of itself last; absent: nothing yet.
    pub told: Option<Told>,
}

/// What a server said of itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Told {
    /// When, RFC 3339.
    pub at: String,
    /// Its role: `master` or `slave`.
    pub role: String,
    /// Bytes that its data take.
    pub used_bytes: u64,
    /// Keys that it has evicted since it began, counters perhaps among them.
    pub evicted_keys: u64,
    /// Seconds since it began.
    pub uptime_seconds: u64,
    /// How far its clock is ahead of this process's.
    pub clock_offset_us: i64,
    /// How long it took to say this, in microseconds.
    pub round_trip_us: u64,
}

impl Server {
    /// What is not as it should be.
    fn problem(&self) -> Option<String> {
        let Self { address, workers, connected, breakers_open, .. } = self;
        if *breakers_open > 0 {
            return Some(format!("store {address}: does not answer {breakers_open} of {workers} workers in time"));
        }
        (connected < workers).then(|| format!("store {address}: {connected} of {workers} workers are connected"))
    }
}

/// How the process is: what is not as it should be, and what it takes.
#[utoipa::path(get, path = "/api/v1/status", responses((status = 200, body = Status)))]
pub(super) async fn status(State(api): State<Api>) -> Json<Status> {
    let (unready, lost) = (api.facts.unready(), api.journal.lost());
    let refused = api.facts.policies().last_error.map(|_| "the last change of the policies was refused".to_owned());
    let servers = api.desk.servers();
    let mut degraded: Vec<String> = unready.map(|reason| reason.trim().to_owned()).into_iter().collect();
    degraded.extend(refused);
    degraded.extend(servers.iter().filter_map(Server::problem));
    Json(Status {
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

/// The servers of the store: who is connected, which breakers are open, what they say of themselves.
#[utoipa::path(get, path = "/api/v1/store", responses((status = 200, body = Store)))]
pub(super) async fn store(State(api): State<Api>) -> Json<Store> {
    Json(Store { servers: api.desk.servers() })
}
