//! The servers of a store as operators see them: connections, reports and findings.

use std::time::Duration;

/// Percentage of the maximum memory above which a server is nearly full.
pub(super) const NEARLY_FULL_PERCENT: u64 = 90;

/// The servers of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServerList {
    /// The store does not list its servers.
    NotSupported,
    /// None: counters are in the memory of this process.
    InProcess,
    /// The servers that decide, as seen by this handle.
    Listed(Vec<ServerHealth>),
}

/// The state of a server as seen by one handle of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerHealth {
    /// Its address.
    pub address: String,
    /// `true` if there is a connection.
    pub is_connected: bool,
    /// `true` if it does not answer in time, so that calls fail immediately until it does.
    pub is_breaker_open: bool,
}

/// The state that a server reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerReport {
    /// Its address.
    pub address: String,
    /// Identifies one run of the server (`run_id`).
    pub run: String,
    /// `master` or `slave`.
    pub role: String,
    /// Bytes of memory that its data use.
    pub used_bytes: u64,
    /// Maximum of these bytes (`maxmemory`); `None` if there is none.
    pub max_bytes: Option<u64>,
    /// Treatment of writes at the maximum (`maxmemory_policy`).
    pub policy: Option<String>,
    /// Number of keys evicted since it started.
    pub evicted_keys: u64,
    /// Time since it started.
    pub uptime: Duration,
    /// Microseconds by which its clock is ahead of this process's.
    pub clock_offset_us: i64,
    /// Round-trip time of this query.
    pub round_trip: Duration,
    /// The clocks of its replicas, as far as these are reachable.
    pub replicas: Vec<ReplicaClock>,
}

/// The clock of a replica of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaClock {
    /// The replica's address.
    pub address: String,
    /// Microseconds by which it is ahead of its master's.
    pub offset_us: i64,
}

/// The reason why a server refuses all that decisions need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessRefusal {
    /// A refused user or password, or a missing one.
    Login,
    /// Permissions that the user lacks.
    Commands,
}

/// A server that refuses all that decisions need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedAccess {
    /// Its address.
    pub address: String,
    /// The reason.
    pub refusal: AccessRefusal,
    /// The error, with the next step.
    pub text: String,
}

/// Problems with the configuration of the servers, for the log at startup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckUp {
    /// Problems that keep limits from being shared at all.
    pub errors: Vec<String>,
    /// Problems that break a promise occasionally.
    pub warnings: Vec<String>,
}

/// A finding about one server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreFinding {
    /// Address of the server.
    pub server: String,
    /// The subject, in one word.
    pub topic: &'static str,
    /// The grade.
    pub grade: Grade,
    /// Description in one sentence.
    pub text: String,
}

/// Grade of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grade {
    /// As it should be.
    Good,
    /// A promise is broken occasionally, or something other than decisions fails.
    Warning,
    /// Limits are not decided.
    Problem,
}

/// Returns the percentage of the maximum memory that is in use; `None` if the maximum is 0: there
/// is none.
pub(super) fn memory_percent(used: u64, max: u64) -> Option<u64> {
    used.saturating_mul(100).checked_div(max)
}

impl ServerReport {
    /// Returns the percentage of its maximum memory that is in use; `None` if it has no maximum.
    pub fn memory_percent(&self) -> Option<u64> {
        memory_percent(self.used_bytes, self.max_bytes?)
    }

    /// Returns `true` if more than 90 % of its maximum memory are in use.
    pub fn is_nearly_full(&self) -> bool {
        self.memory_percent().is_some_and(|percent| percent > NEARLY_FULL_PERCENT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_nearly_full_above_90_percent_of_its_maximum() {
        let report = |used_bytes, max_bytes| ServerReport {
            address: "redis:6379".to_owned(),
            run: String::new(),
            role: "master".to_owned(),
            used_bytes,
            max_bytes,
            policy: None,
            evicted_keys: 0,
            uptime: Duration::ZERO,
            clock_offset_us: 0,
            round_trip: Duration::ZERO,
            replicas: Vec::new(),
        };
        for (used, max, percent, is_nearly_full) in [
            (900, Some(1_000), Some(90), false),
            (910, Some(1_000), Some(91), true),
            (u64::MAX, Some(1 << 63), Some(1), false),
            (10, Some(0), None, false),
            (10, None, None, false),
        ] {
            let report = report(used, max);
            let found = (report.memory_percent(), report.is_nearly_full());
            assert_eq!(found, (percent, is_nearly_full), "{used} of {max:?}");
        }
    }
}
