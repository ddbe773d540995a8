//! The clients during an attack: a well-behaved one that calls at a steady rate, and probes.

use std::net::SocketAddr;
use std::time::Duration;

use crate::support::TEST_TIMEOUT;
use crate::support::load::{Load, Summary, Traffic};
use crate::support::rls::{descriptor, request};

use super::probes::Probes;

/// Calls per second of the well-behaved client.
const RATE: u32 = 400;

/// Measurements of the clients of one service.
pub(super) struct Clients {
    /// The 90th percentile of the well-behaved client's latencies, and the percentage of its calls
    /// that failed: before, during and after.
    pub(super) p90: [Duration; 3],
    pub(super) failed: [f64; 3],
    /// Mean times until `/livez` was answered, and until a new client was.
    pub(super) livez: Duration,
    pub(super) new_client: Duration,
}

/// Clients of a service.
pub(super) struct Observer {
    load: Load,
    probes: Option<Probes>,
    /// Times when the attack began, when it ended, and when all was as before.
    phases: Vec<Duration>,
    livez: Duration,
    new_client: Duration,
}

impl Observer {
    /// Starts the well-behaved client.
    pub(super) fn of(grpc: SocketAddr) -> Self {
        let load = Load::with_another(grpc, traffic());
        let phases = Vec::new();
        Self { load, probes: None, phases, livez: Duration::ZERO, new_client: Duration::ZERO }
    }

    /// Begins a phase.
    pub(super) fn mark(&mut self) {
        self.phases.push(self.load.now());
    }

    /// Begins the attack, and probes.
    pub(super) fn begin(&mut self, grpc: SocketAddr, http: SocketAddr) {
        self.probes = Some(Probes::start(grpc, http));
        self.mark();
    }

    /// Ends the attack, and the probes.
    pub(super) fn end(&mut self) {
        self.mark();
        if let Some(probes) = self.probes.take() {
            (self.livez, self.new_client) = probes.finish();
        }
    }

    pub(super) fn finish(self) -> Clients {
        let calls = self.load.finish();
        let [attacked, ended, recovered] = self.phases[..] else { panic!("a phase is missing") };
        let phases = [(Duration::ZERO, attacked), (attacked, ended), (recovered, Duration::MAX)];
        let summaries = phases.map(|(from, to)| calls.between(from, to).summary());
        Clients {
            p90: summaries.each_ref().map(|summary| summary.p90),
            failed: summaries.each_ref().map(Summary::percent_failed),
            livez: self.livez,
            new_client: self.new_client,
        }
    }
}

/// Returns the calls of the well-behaved client.
fn traffic() -> Traffic {
    let groups = vec![vec![request(vec![descriptor(&[("user", "ann")])])]];
    Traffic { rate: RATE, groups, timeout: Some(TEST_TIMEOUT) }
}

impl std::fmt::Display for Clients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { p90, failed, livez, new_client } = self;
        write!(
            f,
            "p90 {p90:.1?}, failed {failed:.1?} %, /livez {livez:.1?}, new client {new_client:.1?}"
        )
    }
}
