//! Traces on real servers: memory, a server of each flavor and Clusters decide alike.
//!
//! Simulated servers judge the same traces made by hand, and other random ones (`tests/world`).
//! `TOLLGATE_RANDOM_CASES` sets the number of random cases, `TOLLGATE_RANDOM_SEED` the first one.

use futures_util::future::join_all;
use tollgate::limiter::Modes;

use super::{calm, cluster, from_environment};
use crate::support::redis::cluster::{Cluster, Layout};
use crate::support::redis::flavor::Flavor;
use crate::support::redis::{Redis, Setup};
use crate::support::traces::directed::{DIRECTED, the_most_records};
use crate::support::traces::sides::Sides;
use crate::support::traces::simulated::random_case;
use crate::support::traces::{TraceCase, run};

const CASES: u32 = 48;
/// The first random case that is none of the simulated servers.
const FIRST: u32 = 32;

/// Real servers whose stores are compared with memory.
pub(super) struct RealServers {
    pub(super) single: Vec<Redis>,
    clusters: [Cluster; 2],
}

impl RealServers {
    pub(super) async fn start() -> Self {
        let setup = |flavor| Setup { flavor, ..Setup::default() };
        let single = join_all(Flavor::ALL.map(|flavor| Redis::start_as(setup(flavor)))).await;
        let oldest = Layout { setup: setup(Flavor::Redis62), ..calm() };
        Self { single, clusters: [cluster().await, Cluster::start_as(oldest).await] }
    }

    pub(super) fn urls(&self) -> Vec<String> {
        self.single.iter().map(Redis::url).chain(self.clusters.iter().map(Cluster::url)).collect()
    }
}

#[tokio::test]
async fn directed_traces_are_judged_alike_by_memory_and_real_servers() {
    agree(DIRECTED.iter().cloned().chain([the_most_records()])).await;
}

#[tokio::test]
async fn random_traces_are_judged_alike_by_memory_and_real_servers() {
    let first = from_environment("TOLLGATE_RANDOM_SEED").unwrap_or(FIRST);
    let cases = from_environment("TOLLGATE_RANDOM_CASES").unwrap_or(CASES);
    agree((first..first + cases).map(|seed| random_case(seed.into()))).await;
}

async fn agree(cases: impl Iterator<Item = TraceCase>) {
    let servers = RealServers::start().await;
    let mut modes = Modes::default();
    let mut sides = Sides::new(&servers.urls(), "traces:", modes).await;
    for (number, case) in cases.enumerate() {
        if case.modes != modes {
            modes = case.modes;
            sides = Sides::new(&servers.urls(), "traces:", modes).await;
        }
        sides.clear().await;
        let compared = run(&sides, &case.in_turn()).await;
        compared.unwrap_or_else(|difference| panic!("case {number}: {difference}"));
    }
}
