//! Comparison of tollgate and the ceiling, in alternating turns on one machine. Figures are ratios,
//! since ratios hold across machines.
//!
//! `cargo bench --bench compare` measures all cases, `-- redis memory` the named ones; `-- --list`
//! lists the cases, `--help` the options. `benches/RESULTS.md` has the results, with machine and
//! date.
//!
//! | file | contents |
//! |---|---|
//! | `case` | comparisons and their targets |
//! | `measure`, `counters` | rounds and medians; memory cost of a counter |
//! | `servers` | tollgate, the ceiling, Redis: started on free ports, stopped after the case |
//! | `load` | load generator |
//! | `round_trip` | a bare script call |
//! | `report` | output |
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::wildcard_enum_match_arm,
    reason = "a measurement that panics is none, and its figures have three digits"
)]

mod case;
mod counters;
mod load;
mod measure;
mod report;
mod round_trip;
mod servers;

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;

use self::case::{CASES, COUNTERS, Place};
use self::measure::Effort;

// The allocator of the binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measure tollgate against a server of the same proto with a constant response, in turns.
#[derive(Parser)]
struct Arguments {
    /// Cases to measure; all if none is given.
    #[arg(value_parser = names())]
    cases: Vec<String>,
    /// Seconds of each server's turn in a round.
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Measure each case also at half of its throughput, at a steady rate.
    #[arg(long)]
    open: bool,
    /// Print a line of JSON per case.
    #[arg(long)]
    json: bool,
    /// Path of an envoyproxy/ratelimit binary to measure against instead, on the same Redis.
    #[arg(long, value_name = "PATH")]
    peer: Option<PathBuf>,
    /// List the cases.
    #[arg(long)]
    list: bool,
    /// Passed by cargo to every benchmark.
    #[arg(long, hide = true)]
    bench: bool,
}

fn names() -> Vec<&'static str> {
    CASES.iter().map(|case| case.name).chain([COUNTERS]).collect()
}

fn main() {
    // The ceiling is part of this binary, so it is built with the same profile.
    if std::env::args().nth(1).is_some_and(|first| first == servers::CEILING) {
        return tollgate_testkit::ceiling::run(std::env::args().skip(2))
            .expect("the ceiling can listen");
    }
    let arguments = Arguments::parse();
    if arguments.list {
        return names().iter().for_each(|name| println!("{name}"));
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(measure(&arguments));
}

async fn measure(arguments: &Arguments) {
    let effort = Effort {
        rounds: arguments.rounds.max(1),
        time: Duration::from_secs_f64(arguments.seconds),
        is_open: arguments.open,
    };
    let is_wanted =
        |name: &str| arguments.cases.is_empty() || arguments.cases.iter().any(|case| case == name);
    let peer = arguments.peer.as_deref();
    for case in CASES.iter().filter(|case| is_wanted(case.name)) {
        let case = match peer {
            Some(_) if case.place() == Place::Memory => continue,
            Some(_) => case.against_peer(),
            None => *case,
        };
        report::case(&case, &measure::measure(case, effort, peer).await, arguments.json);
    }
    if is_wanted(COUNTERS) && peer.is_none() {
        report::counters(counters::bytes_of_one().await, arguments.json);
    }
}
