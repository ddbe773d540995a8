//! Mutants of the Lua scripts: changes one line at a time, and runs simulated worlds until one of
//! them breaks a promise. A mutant that survives is equivalent, or shows a test that is missing.
//!
//! ```text
//! cargo run --release --example mutants -- --sample 100 --output mutants.tsv
//! cargo run --release --example mutants -- --matching gcra --output mutants.tsv
//! ```
//!
//! The output has a line for each mutant: its place, kind, line and change, the kind of world that
//! found it, its seed, and seconds. A run goes on where the last one with the same file ended.
//! First, all worlds run once unchanged: a mutant is then given to those alone that run its line.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a simulation that panics is a test that fails; some of it serves tests only"
)]

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use clap::Parser;
use parking_lot::Mutex;
use tollgate_testkit::world;

use world::checker::check;
use world::mutants::{Mutant, Sources, mutants_of};
use world::plan::Plan;
use world::retries::run_retries;
use world::run::run;
use world::server::lua::{choose_mutant, record_lines, scripts, take_lines};

#[derive(Parser)]
struct MutantArguments {
    /// Only mutants whose place or line contains this text
    #[arg(long)]
    matching: Option<String>,
    /// Only this number of mutants, evenly spread
    #[arg(long)]
    sample: Option<usize>,
    /// Number of worlds, and of worlds of retries
    #[arg(long, default_value_t = 300)]
    seeds: u64,
    /// File that results are added to; mutants that it has are not run again
    #[arg(long)]
    output: PathBuf,
    /// Stops after this number of seconds
    #[arg(long, default_value_t = 3600)]
    budget: u64,
    /// Number of threads
    #[arg(long, default_value_t = 2)]
    threads: usize,
}

/// The end of a mutant.
enum Fate {
    Killed {
        net: &'static str,
        seed: u64,
    },
    Survived,
    /// No world runs its line.
    NotReached,
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Killed { net, seed } => write!(f, "{net}\t{seed}"),
            Self::Survived => f.write_str("survived\t"),
            Self::NotReached => f.write_str("not reached\t"),
        }
    }
}

fn main() -> ExitCode {
    tollgate::descriptor::fix_hashes();
    let arguments = MutantArguments::parse();
    let learned = learn(&arguments);
    let scripts = &learned.scripts;
    let sources = Sources::read();
    let mut mutants: Vec<(String, Mutant)> = mutants_of(scripts.iter().map(String::as_str))
        .into_iter()
        .map(|mutant| (sources.places(&mutant.line), mutant))
        .collect();
    println!("{} scripts, {} mutants", scripts.len(), mutants.len());
    if let Some(text) = &arguments.matching {
        mutants.retain(|(place, mutant)| place.contains(text) || mutant.line.contains(text));
    }
    if let Some(sample) = arguments.sample {
        let every = mutants.len().div_ceil(sample.max(1)).max(1);
        mutants = mutants.into_iter().step_by(every).collect();
    }
    let known = std::fs::read_to_string(&arguments.output).unwrap_or_default();
    let known: HashSet<&str> = known.lines().filter_map(name_of).collect();
    mutants.retain(|(place, mutant)| !known.contains(format!("{place}\t{mutant}").as_str()));
    println!("{} mutants to run", mutants.len());
    // A mutant may panic in the simulation; its fate is printed instead.
    std::panic::set_hook(Box::new(|_| {}));
    run_all(&mutants, &learned, &arguments);
    ExitCode::SUCCESS
}

/// A kind of world: its name, and the run of a seed, which returns the promises that it breaks.
type Net = (&'static str, fn(u64) -> Vec<String>);

const NETS: [Net; 2] =
    [("world", |seed| check(&run(&Plan::of(seed)))), ("retries", |seed| run_retries(seed).broken)];

/// Results of worlds without a mutant.
#[derive(Default)]
struct Learned {
    /// The texts of all scripts.
    scripts: BTreeSet<String>,
    /// The worlds that run a line, in order: a seed and an index of [`NETS`].
    worlds: HashMap<String, BTreeSet<(u64, usize)>>,
}

/// Runs all worlds unchanged.
fn learn(arguments: &MutantArguments) -> Learned {
    let learned = Mutex::new(Learned::default());
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..arguments.threads {
            scope.spawn(|| {
                record_lines();
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= arguments.seeds {
                        break;
                    }
                    for (net, (name, run)) in NETS.iter().enumerate() {
                        let broken = run(seed);
                        assert!(broken.is_empty(), "{name} {seed} fails unchanged: {broken:?}");
                        let mut learned = learned.lock();
                        for line in take_lines() {
                            learned.worlds.entry(line).or_default().insert((seed, net));
                        }
                    }
                }
                let mut learned = learned.lock();
                learned.scripts.extend(scripts().into_iter().filter(|text| is_ours(text)));
            });
        }
    });
    learned.into_inner()
}

/// Returns `true` for a script that the store composed, and `false` for its checks of servers.
fn is_ours(script: &str) -> bool {
    script.starts_with("-- tollgate ")
}

/// Returns the part of a line of the output that names the mutant.
fn name_of(line: &str) -> Option<&str> {
    line.match_indices('\t').nth(3).and_then(|(end, _)| line.get(..end))
}

/// Runs the mutants on several threads, and writes each one's fate.
fn run_all(mutants: &[(String, Mutant)], learned: &Learned, arguments: &MutantArguments) {
    let begun = Instant::now();
    let file = std::fs::OpenOptions::new().create(true).append(true).open(&arguments.output);
    let file = Mutex::new(file.unwrap());
    let next = AtomicUsize::new(0);
    let killed = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..arguments.threads {
            scope.spawn(|| {
                while begun.elapsed().as_secs() < arguments.budget {
                    let Some((place, mutant)) = mutants.get(next.fetch_add(1, Ordering::Relaxed))
                    else {
                        return;
                    };
                    let since = Instant::now();
                    let fate = fate_of(mutant, learned);
                    killed.fetch_add(
                        usize::from(matches!(fate, Fate::Killed { .. })),
                        Ordering::Relaxed,
                    );
                    let seconds = since.elapsed().as_secs_f64();
                    writeln!(file.lock(), "{place}\t{mutant}\t{fate}\t{seconds:.1}").unwrap();
                }
            });
        }
    });
    let run = next.into_inner().min(mutants.len());
    println!("{run} run, {} killed", killed.into_inner());
}

/// Runs the worlds that run a mutant's line until one finds it.
fn fate_of(mutant: &Mutant, learned: &Learned) -> Fate {
    let Some(worlds) = learned.worlds.get(&mutant.line) else { return Fate::NotReached };
    choose_mutant(Some(mutant.clone()));
    let fate = worlds.iter().find_map(|(seed, net)| {
        let (net, run) = NETS[*net];
        let broken = catch_unwind(AssertUnwindSafe(|| run(*seed)));
        let is_killed = !broken.is_ok_and(|broken| broken.is_empty());
        is_killed.then_some(Fate::Killed { net, seed: *seed })
    });
    choose_mutant(None);
    fate.unwrap_or(Fate::Survived)
}
