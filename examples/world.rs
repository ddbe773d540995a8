//! Simulated worlds: runs seeds, replays one, makes a failing one small, or shows it as it runs.
//!
//! ```text
//! cargo run --release --example world -- --seeds 0..1000
//! cargo run --release --example world -- --seed 7 --history
//! cargo run --release --example world -- --seed 7 --shrink
//! ```
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a simulation that panics is a test that fails; some of it serves tests only"
)]

use std::collections::BTreeMap;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::Parser;
use parking_lot::Mutex;
use tollgate_testkit::world;

use world::checker::check;
use world::coverage::Coverage;
use world::plan::Plan;
use world::retries::run_retries;
use world::run::{Extras, Report, run, run_with};

#[derive(Parser)]
struct WorldArguments {
    /// Replays one seed
    #[arg(long)]
    seed: Option<u64>,
    /// Runs many seeds, such as 0..1000
    #[arg(long, value_parser = seeds, default_value = "0..100")]
    seeds: Range<u64>,
    /// Runs every so many seeds: of each 4, number 2 has holders of loans; of each 8, 6 has proxies
    #[arg(long, default_value_t = 1)]
    step: u64,
    /// Runs worlds of reserves that are sent until they are decided
    #[arg(long)]
    retries: bool,
    /// Prints every event of the seed
    #[arg(long)]
    history: bool,
    /// Shows the seed as it runs: a table of servers, processes and events
    #[arg(long)]
    watch: bool,
    /// Makes a failing seed small: fewer calls and faults that still fail
    #[arg(long)]
    shrink: bool,
    /// Prints in how many worlds each event happened, and met each kind of fault
    #[arg(long)]
    coverage: bool,
    /// Fails if an event happened in no world
    #[arg(long)]
    complete: bool,
    /// Prints the hash of each seed
    #[arg(long)]
    hashes: bool,
    /// Stops at the first seed that fails
    #[arg(long)]
    first: bool,
    /// Number of threads
    #[arg(long, default_value_t = 2)]
    threads: usize,
}

fn seeds(text: &str) -> Result<Range<u64>, String> {
    let (from, to) = text.split_once("..").ok_or("not a range, such as 0..1000")?;
    let number = |text: &str| text.parse::<u64>().map_err(|error| error.to_string());
    Ok(number(from)?..number(to)?)
}

fn main() -> ExitCode {
    tollgate::descriptor::fix_hashes();
    let arguments = WorldArguments::parse();
    let failed = match arguments.seed {
        Some(seed) if arguments.retries => retry(seed..seed.saturating_add(1), &arguments),
        None if arguments.retries => retry(arguments.seeds.clone(), &arguments),
        Some(seed) => replay(seed, &arguments),
        None => run_all(&arguments),
    };
    ExitCode::from(u8::from(failed))
}

/// Runs one seed. Returns `true` if it breaks a promise.
fn replay(seed: u64, arguments: &WorldArguments) -> bool {
    let mut plan = Plan::of(seed);
    if arguments.shrink {
        plan = world::shrink::shrink(plan);
    }
    let report = run_with(&plan, Extras { watches: arguments.watch, ..Extras::default() });
    if arguments.history || arguments.shrink {
        print_plan(&plan);
        report.chronicle.lines.iter().for_each(|line| println!("{line}"));
    }
    let broken = check(&report);
    println!("seed {seed}: hash {}", report.chronicle.hash());
    broken.iter().for_each(|text| println!("seed {seed}: {text}"));
    !broken.is_empty()
}

fn print_plan(plan: &Plan) {
    println!(
        "{:?}, groups {}, processes {}, workers {}, delay {} ms, deny cache {} ms, clocks {:?}",
        plan.arrangement,
        plan.groups,
        plan.processes,
        plan.workers,
        plan.most_delay_ms,
        plan.deny_cache_ms,
        plan.skews_us
    );
    println!("{}counters of rules {:?}", plan.policy(0), plan.counters);
    plan.rules.iter().for_each(|rule| println!("amounts {:?}", rule.amounts));
}

/// Runs worlds of retried reserves. Returns `true` if one breaks a promise.
fn retry(seeds: Range<u64>, arguments: &WorldArguments) -> bool {
    let totals = Mutex::new(BTreeMap::<&str, u64>::new());
    let failed = for_each_seed(seeds.clone(), arguments, |seed| {
        let report = run_retries(seed);
        for (name, count) in report.counts {
            *totals.lock().entry(name).or_default() += count;
        }
        report.broken
    });
    totals.lock().iter().for_each(|(name, count)| println!("{count:>9} {name}"));
    println!("{} seeds, {failed} failed", seeds.end.saturating_sub(seeds.start));
    failed > 0
}

/// Runs many seeds. Returns `true` if one breaks a promise.
fn run_all(arguments: &WorldArguments) -> bool {
    let totals = Mutex::new(BTreeMap::<String, u64>::new());
    let coverage = Mutex::new(Coverage::default());
    let failed = for_each_seed(arguments.seeds.clone(), arguments, |seed| {
        let report = run(&Plan::of(seed));
        add(&mut totals.lock(), &report);
        if arguments.hashes {
            println!("seed {seed}: hash {}", report.chronicle.hash());
        }
        if arguments.coverage || arguments.complete {
            coverage.lock().add(&report);
        }
        check(&report)
    });
    let totals = totals.into_inner();
    totals.iter().for_each(|(name, count)| println!("{count:>10} {name}"));
    let coverage = coverage.into_inner();
    if arguments.coverage {
        print!("{coverage}");
    }
    let missing = coverage.missing();
    if arguments.complete && !missing.is_empty() {
        println!("happened in no world: {}", missing.join(", "));
        return true;
    }
    let Range { start, end } = arguments.seeds;
    println!("{failed} of {} seeds failed", (end - start).div_ceil(arguments.step));
    failed > 0
}

/// Runs seeds on several threads, and prints the promises that each breaks, which `run_seed`
/// returns. Returns the number of seeds that break one; with `--first`, ends after the first.
fn for_each_seed(
    seeds: Range<u64>,
    arguments: &WorldArguments,
    run_seed: impl Fn(u64) -> Vec<String> + Sync,
) -> u64 {
    let next = AtomicU64::new(seeds.start);
    let failed = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..arguments.threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(arguments.step, Ordering::Relaxed);
                    let stops = arguments.first && failed.load(Ordering::Relaxed) > 0;
                    if seed >= seeds.end || stops {
                        return;
                    }
                    let broken = run_seed(seed);
                    failed.fetch_add(u64::from(!broken.is_empty()), Ordering::Relaxed);
                    broken.iter().for_each(|text| println!("seed {seed}: {text}"));
                }
            });
        }
    });
    failed.into_inner()
}

/// Adds the events of a world to the totals.
fn add(totals: &mut BTreeMap<String, u64>, report: &Report) {
    *totals.entry("worlds".to_owned()).or_default() += 1;
    for (name, count) in &report.counts {
        *totals.entry(name.clone()).or_default() += count;
    }
    for record in &report.chronicle.calls {
        *totals.entry(format!("answer {}", record.ending.name())).or_default() += 1;
        for effect in record.ending.effects() {
            *totals.entry(format!("hold {effect}")).or_default() += 1;
        }
    }
}
