//! Mutants of the Lua scripts: changes one line at a time, and gives it to nets in order of their
//! cost, until one finds it: random traces that memory judges as well, few simulated worlds, tests
//! with real servers, many worlds. A mutant that survives is equivalent, or shows a test that is
//! missing.
//!
//! ```text
//! cargo run --release --example mutants -- --sample 100 --output tests/lua_mutants.tsv
//! cargo run --release --example mutants -- --matching gcra --nets 1 --output mutants.tsv
//! ```
//!
//! The output has a line for each mutant: its place, kind, line and change, the net that found it,
//! the seed of the world or the test that did, the number of nets that were tried, and seconds. A
//! run goes on where the last one with the same file ended: what survived fewer nets is given to
//! the others. First, all traces and worlds run once unchanged: a mutant is then given to those
//! alone that run its line; and the tests, to learn whether they pass.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a simulation that panics is a test that fails; some of it serves tests only"
)]

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::io::Write as _;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use clap::Parser;
use parking_lot::Mutex;
use tollgate_testkit::traces::simulated::{UNLIKE_RECORDED, broken_by, number_of_cases};
use tollgate_testkit::world;

use world::checker::check;
use world::mutants::program::TestProgram;
use world::mutants::sources::Sources;
use world::mutants::{Mutant, mutants_of};
use world::plan::Plan;
use world::retries::run_retries;
use world::run::run;
use world::server::lua::{choose_mutant, digest, record_lines, scripts, take_lines};

#[derive(Parser)]
struct MutantArguments {
    /// Only mutants whose place or line contains this text
    #[arg(long)]
    matching: Option<String>,
    /// Only this number of mutants, a fair sample
    #[arg(long)]
    sample: Option<usize>,
    /// Number of worlds, and of worlds of retries
    #[arg(long, default_value_t = 300)]
    seeds: u64,
    /// Number of nets: 1 for traces in this process, 2 for some worlds as well
    #[arg(long, default_value_t = NETS.len())]
    nets: usize,
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

/// A net: random traces, simulated worlds of some seeds, or a set of tests.
#[derive(Clone, Copy)]
enum Net {
    /// Traces that memory and simulated servers must judge alike.
    Traces,
    /// Seeds from the first number on, below the second one.
    Worlds(u64, u64),
    /// An index of [`TESTS`].
    Tests(usize),
}

/// Nets in order of their cost: few worlds and few traces find most of what many find, in seconds.
const NETS: [Net; 6] = [
    Net::Traces,
    Net::Worlds(0, FEW),
    Net::Tests(0),
    Net::Tests(1),
    Net::Tests(2),
    Net::Worlds(FEW, u64::MAX),
];
const FEW: u64 = 10;

/// A set of tests with real servers.
struct TestSet {
    name: &'static str,
    /// Parts of the names of its tests.
    filters: &'static [&'static str],
    /// The number of random cases, if it is not the tests' own.
    cases: Option<u32>,
}

const TESTS: [TestSet; 3] = [
    TestSet {
        name: "stored bytes, edges",
        filters: &["redis::golden", "redis::edges"],
        cases: None,
    },
    TestSet {
        name: "few traces",
        filters: &["redis::traces::random", "redis::amend"],
        cases: Some(8),
    },
    TestSet {
        name: "all traces",
        filters: &[
            "redis::traces",
            "redis::verdicts",
            "redis::failing",
            "redis::batching",
            "redis::cancelled",
        ],
        cases: None,
    },
];

/// The end of a mutant.
enum Fate {
    /// The net, and the seed or the test that found it.
    Killed {
        net: &'static str,
        by: String,
    },
    Survived,
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Killed { net, by } => write!(f, "{net}\t{by}"),
            Self::Survived => f.write_str("survived\t"),
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
    let places =
        mutants.iter().map(|(place, mutant)| (mutant.to_string(), place.clone())).collect();
    if let Some(text) = &arguments.matching {
        mutants.retain(|(place, mutant)| place.contains(text) || mutant.line.contains(text));
    }
    // In an order of which each beginning is a fair sample.
    mutants.sort_by_cached_key(|(_, mutant)| digest(mutant.to_string().as_bytes()));
    mutants.truncate(arguments.sample.unwrap_or(usize::MAX));
    let known = tried(&arguments.output, &places);
    let mutants: Vec<UntriedMutant> = mutants
        .into_iter()
        .map(|(place, mutant)| {
            let nets = known.get(&mutant.to_string()).copied().unwrap_or_default();
            UntriedMutant { place, mutant, nets }
        })
        .filter(|candidate| candidate.nets < arguments.nets)
        .collect();
    println!("{} mutants to run", mutants.len());
    let tests = (arguments.nets > 2).then(|| Tests::prepare(sources, arguments.nets));
    // A mutant may panic in the simulation; its fate is printed instead.
    std::panic::set_hook(Box::new(|_| {}));
    run_all(&mutants, &Nets { learned, tests, number: arguments.nets }, &arguments);
    tried(&arguments.output, &places);
    ExitCode::SUCCESS
}

/// A mutant to run.
struct UntriedMutant {
    place: String,
    mutant: Mutant,
    /// The number of nets that it has survived.
    nets: usize,
}

/// Reads the mutants of a file of results, each with the number of nets that need not be tried:
/// those that it survived, or all. Of the rows of a mutant, the last one stays in the file, with
/// its place of today; those of lines that have changed do not.
fn tried(output: &Path, places: &HashMap<String, String>) -> HashMap<String, usize> {
    let text = std::fs::read_to_string(output).unwrap_or_default();
    let mut tried = HashMap::new();
    let mut rows = BTreeMap::new();
    for line in text.lines() {
        let cells: Vec<&str> = line.split('\t').collect();
        let [_, kind, source, mutated, net, seed, nets, seconds] = cells[..] else {
            panic!("not a row of results: {line}")
        };
        let name = [kind, source, mutated].join("\t");
        if let Some(place) = places.get(&name) {
            let row = format!("{place}\t{name}\t{net}\t{seed}\t{nets}\t{seconds}\n");
            rows.insert((place, name.clone()), row);
            tried.insert(name, if net == "survived" { nets.parse().unwrap() } else { NETS.len() });
        }
    }
    std::fs::write(output, rows.into_values().collect::<String>()).unwrap();
    tried
}

/// A kind of simulation: its name, and the run of a seed, which returns the promises that it
/// breaks.
type SimulationKind = (&'static str, fn(u64) -> Vec<String>);

const SIMULATIONS: [SimulationKind; 3] = [
    ("differential", broken_by),
    ("world", |seed| check(&run(&Plan::of(seed)))),
    ("retries", |seed| run_retries(seed).broken),
];
/// The first kinds that are no worlds.
const TRACES: usize = 1;

/// Results of traces and worlds without a mutant.
#[derive(Default)]
struct Learned {
    /// The texts of all scripts.
    scripts: BTreeSet<String>,
    /// The simulations that run a line, in order: a seed and an index of [`SIMULATIONS`].
    runs: HashMap<String, BTreeSet<(u64, usize)>>,
}

/// Runs all simulations unchanged.
fn learn(arguments: &MutantArguments) -> Learned {
    let traces = number_of_cases();
    let worlds = if arguments.nets > TRACES { arguments.seeds } else { 0 };
    let learned = Mutex::new(Learned::default());
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..arguments.threads {
            scope.spawn(|| {
                record_lines();
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= worlds.max(traces) {
                        break;
                    }
                    for (index, (name, run)) in SIMULATIONS.iter().enumerate() {
                        let is_trace = index < TRACES && seed < traces;
                        if !is_trace && (index < TRACES || seed >= worlds) {
                            continue;
                        }
                        let broken = run(seed);
                        assert!(broken.is_empty(), "{name} {seed} fails unchanged: {broken:?}");
                        let mut learned = learned.lock();
                        for line in take_lines() {
                            learned.runs.entry(line).or_default().insert((seed, index));
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

/// All nets, of which the first `number` are used.
struct Nets {
    learned: Learned,
    tests: Option<Tests>,
    number: usize,
}

/// The program of the tests, and the time that each set of [`TESTS`] takes unchanged.
struct Tests {
    program: Mutex<TestProgram>,
    sources: Sources,
    lengths: Vec<Duration>,
}

impl Tests {
    /// Builds the program, and runs the tests of the first nets unchanged.
    fn prepare(sources: Sources, nets: usize) -> Self {
        let program = TestProgram::build(&sources);
        let mut lengths = Vec::new();
        let sets = NETS.iter().take(nets).filter(|net| matches!(net, Net::Tests(_))).count();
        for TestSet { name, filters, cases } in TESTS.into_iter().take(sets) {
            let begun = Instant::now();
            let limit = Duration::from_secs(1800);
            let failed = program.run(None, &sources, filters, cases, limit);
            assert_eq!(failed, None, "a test of {name} fails unchanged");
            lengths.push(begun.elapsed());
            println!("{name}: {:.1} s", begun.elapsed().as_secs_f64());
        }
        Self { program: Mutex::new(program), sources, lengths }
    }

    /// Gives a mutant to a set.
    fn find(&self, set: usize, mutant: &Mutant) -> Option<Fate> {
        let limit = self.lengths[set] * 4 + Duration::from_secs(30);
        let TestSet { name: net, filters, cases } = TESTS[set];
        let program = self.program.lock();
        let by = program.run(Some(mutant), &self.sources, filters, cases, limit)?;
        Some(Fate::Killed { net, by })
    }
}

/// Runs the mutants on several threads, and writes each one's fate.
fn run_all(mutants: &[UntriedMutant], nets: &Nets, arguments: &MutantArguments) {
    let begun = Instant::now();
    let file = std::fs::OpenOptions::new().create(true).append(true).open(&arguments.output);
    let file = Mutex::new(file.unwrap());
    let next = AtomicUsize::new(0);
    let killed = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..arguments.threads {
            scope.spawn(|| {
                while begun.elapsed().as_secs() < arguments.budget {
                    let Some(candidate) = mutants.get(next.fetch_add(1, Ordering::Relaxed)) else {
                        return;
                    };
                    let since = Instant::now();
                    let (fate, tried) = nets.fate_of(candidate);
                    let is_killed = matches!(fate, Fate::Killed { .. });
                    killed.fetch_add(usize::from(is_killed), Ordering::Relaxed);
                    let UntriedMutant { place, mutant, .. } = candidate;
                    let seconds = since.elapsed().as_secs_f64();
                    writeln!(file.lock(), "{place}\t{mutant}\t{fate}\t{tried}\t{seconds:.1}")
                        .unwrap();
                }
            });
        }
    });
    let run = next.into_inner().min(mutants.len());
    println!("{run} run, {} killed", killed.into_inner());
}

impl Nets {
    /// Gives a mutant to the nets that it has not survived. Also returns how many it has met.
    fn fate_of(&self, candidate: &UntriedMutant) -> (Fate, usize) {
        for (tried, net) in (1..=self.number).zip(NETS).skip(candidate.nets) {
            let killed = match (net, &self.tests) {
                (Net::Traces, _) => {
                    let seeds = 0..number_of_cases();
                    in_simulations(&candidate.mutant, &self.learned, 0..TRACES, seeds)
                }
                (Net::Worlds(from, to), _) => {
                    let kinds = TRACES..SIMULATIONS.len();
                    in_simulations(&candidate.mutant, &self.learned, kinds, from..to)
                }
                (Net::Tests(set), Some(tests)) => tests.find(set, &candidate.mutant),
                (Net::Tests(_), None) => None,
            };
            if let Some(fate) = killed {
                return (fate, tried);
            }
        }
        (Fate::Survived, self.number)
    }
}

/// Runs the simulations of some kinds and seeds that run a mutant's line until one finds it.
fn in_simulations(
    mutant: &Mutant,
    learned: &Learned,
    kinds: Range<usize>,
    seeds: Range<u64>,
) -> Option<Fate> {
    let runs = learned.runs.get(&mutant.line)?.range((seeds.start, 0)..(seeds.end, 0));
    choose_mutant(Some(mutant.clone()));
    let mut unlike = None;
    let fate = runs.filter(|(_, kind)| kinds.contains(kind)).find_map(|(seed, kind)| {
        let (net, run) = SIMULATIONS[*kind];
        let broken = catch_unwind(AssertUnwindSafe(|| run(*seed)));
        // What memory says comes before what the scripts have said until now.
        if broken.as_ref().is_ok_and(|broken| *broken == [UNLIKE_RECORDED]) {
            unlike = unlike.or(Some(*seed));
            return None;
        }
        let is_killed = !broken.is_ok_and(|broken| broken.is_empty());
        is_killed.then(|| Fate::Killed { net, by: seed.to_string() })
    });
    choose_mutant(None);
    fate.or_else(|| Some(Fate::Killed { net: "recorded", by: unlike?.to_string() }))
}
