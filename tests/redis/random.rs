//! Random policies and traces: memory, one server and a cluster give the same answers.
//!
//! Each run has the same cases, unless `TOLLGATE_RANDOM_SEED` is set. `TOLLGATE_RANDOM_CASES` sets
//! their number.

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

use super::{cluster, from_environment};
use crate::support::redis::Redis;
use crate::support::traces::sides::Sides;
use crate::support::traces::{TraceCase, cases, run};

const CASES: u32 = 12;

#[test]
fn memory_redis_and_a_cluster_decide_alike() {
    agree(0, CASES, cases::decided());
}

#[test]
fn memory_redis_and_a_cluster_decide_alike_in_later_centuries() {
    agree(4, CASES, cases::decided_later());
}

#[test]
fn memory_redis_and_a_cluster_decide_alike_when_amounts_change() {
    agree(1, CASES / 2, cases::with_other_amounts());
}

#[test]
fn memory_redis_and_a_cluster_decide_alike_when_hits_of_grants_and_resets_return() {
    agree(2, CASES, cases::lent());
}

#[test]
fn memory_redis_and_a_cluster_tally_alike() {
    agree(3, CASES, cases::tallied());
}

/// Runs `cases` cases of a strategy.
pub(super) fn agree(test: u8, cases: u32, strategy: impl Strategy<Value = TraceCase>) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (redis, cluster) = runtime.block_on(async { (Redis::start().await, cluster().await) });
    let urls = [redis.url(), cluster.url()];
    let mut seed = [test; 32];
    seed[0] =
        u8::try_from(from_environment("TOLLGATE_RANDOM_SEED").unwrap_or_default() % 256).unwrap();
    let config = Config {
        cases: from_environment("TOLLGATE_RANDOM_CASES").unwrap_or(cases),
        failure_persistence: None,
        max_shrink_iters: from_environment("PROPTEST_MAX_SHRINK_ITERS").unwrap_or(2_000),
        max_shrink_time: 60_000,
        ..Config::default()
    };
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &seed);
    let outcome = TestRunner::new_with_rng(config, rng).run(&strategy, |case| {
        let case = case.in_turn();
        let compared = async {
            let sides = Sides::new(&urls, "random:", case.modes).await;
            sides.clear().await;
            run(&sides, &case).await
        };
        runtime.block_on(compared).map_err(TestCaseError::fail)
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}
