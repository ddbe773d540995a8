//! The time from the start of the process to its first decision.

use std::time::{Duration, Instant};

use crate::support::load::no_other_load;
use crate::support::policy::{Policies, daily};
use crate::support::rls::Client;
use crate::support::tollgate::{Tollgate, output};

/// Number of times that the start may take of a control at the same time: a process that reads the
/// same policies and ends.
const MAX_RATIO: u32 = 6;
/// Number of rounds, of which one must be fast enough: load of other processes passes.
const ROUNDS: usize = 5;

#[tokio::test]
async fn the_first_decision_takes_a_few_times_as_long_as_a_check_of_the_policies() {
    let _alone = no_other_load().await;
    let policies = Policies::of(&daily("user", 5));
    let mut measured: Vec<(Duration, Duration)> = Vec::new();
    for _ in 0..ROUNDS {
        let begun = Instant::now();
        assert!(output(["check", policies.path().to_str().unwrap()]).status.success());
        let checked = begun.elapsed();
        let begun = Instant::now();
        let service = Tollgate::serve(policies.path());
        assert!(Client::connect(service.grpc).await.hit("user", "ann").await);
        let decided = begun.elapsed();
        measured.push((decided, checked));
        if decided <= checked * MAX_RATIO {
            println!("{measured:?}");
            return;
        }
    }
    panic!("the first decisions, and checks of the policies, took {measured:?}");
}
