//! The rows of the report: a service on a store, verified while the store or a replica is
//! disturbed. Each row is one command, which starts real servers on this machine.
//!
//! ```text
//! cargo build --release
//! cargo run --release --example report -- --service tollgate --store redis --disturb store-killed
//! cargo run --release --example report -- --peer PATH    # all rows; with envoyproxy/ratelimit
//! ```
//!
//! Each of the three flags can be repeated. A row that violates a property is a result, not an
//! error; `--keep-held` exits with 1 if a row of Tollgate violates one for which docs/promise.md
//! makes no exception.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "what cannot be started is no row"
)]

mod disturbance;
mod service;
mod store;

use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use clap::{Parser, ValueEnum};
use serde_json::Value;
use tollgate_testkit::built;
use tollgate_testkit::tollgate::command;

use disturbance::Disturbance;
use service::{Replicas, ReportedService};
use store::ReportedStore;

/// Time between two disturbances.
const DISTURB_EVERY: Duration = Duration::from_secs(2);
/// Attempts to start a row.
const MOST_STARTS: u32 = 3;
/// Tolerance for clocks: all processes run on one machine.
const SKEW_MS: &str = "10";

/// Head of the table.
const HEAD: &str = "| store | disturbance | times | service | calls | admitted | denied | errors \
                    | late | over limit | also violated |\n\
                    |---|---|---:|---|---:|---:|---:|---:|---:|---:|---|";

#[derive(Parser)]
struct ReportArguments {
    /// Services; all if none is given
    #[arg(long, value_enum)]
    service: Vec<ReportedService>,
    /// Stores; all if none is given
    #[arg(long, value_enum)]
    store: Vec<ReportedStore>,
    /// Disturbances; all if none is given
    #[arg(long, value_enum)]
    disturb: Vec<Disturbance>,
    /// Seconds of a row
    #[arg(long, default_value_t = 12)]
    seconds: u32,
    /// Calls per second
    #[arg(long, default_value_t = 1000)]
    rate: u32,
    /// Binary of envoyproxy/ratelimit; without it, its rows are left out
    #[arg(long)]
    peer: Option<PathBuf>,
    /// Exits with 1 if Tollgate violates a property without an exception
    #[arg(long)]
    keep_held: bool,
}

/// A row of the report.
#[derive(Clone, Copy)]
struct ReportRow {
    service: ReportedService,
    store: ReportedStore,
    disturbance: Disturbance,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = ReportArguments::parse();
    if !built().join("tollgate").exists() {
        eprintln!("there is no tollgate beside this program: run `cargo build --release` first");
        return ExitCode::from(2);
    }
    let rows = match rows(&arguments) {
        Ok(rows) => rows,
        Err(reason) => {
            eprintln!("{reason}");
            return ExitCode::from(2);
        }
    };
    println!("{HEAD}");
    let mut code = ExitCode::SUCCESS;
    for row in rows {
        let (report, disturbed) = row.run(&arguments).await;
        println!("{}", row.text(&report, disturbed));
        if arguments.keep_held && row.breaks_promise(&report) {
            eprintln!("{}: a property is violated\n{report:#}", row.name());
            code = ExitCode::FAILURE;
        }
    }
    code
}

/// Returns the rows that are possible. If there is none, returns the reason.
fn rows(arguments: &ReportArguments) -> Result<Vec<ReportRow>, &'static str> {
    fn given<T: ValueEnum>(given: &[T]) -> &[T] {
        if given.is_empty() { T::value_variants() } else { given }
    }
    let mut rows = Vec::new();
    let mut reason = "no rows";
    for &disturbance in given(&arguments.disturb) {
        for &store in given(&arguments.store) {
            for &service in given(&arguments.service) {
                let row = ReportRow { service, store, disturbance };
                match row.possible(arguments.peer.as_deref()) {
                    Ok(()) => rows.push(row),
                    Err(why) => reason = why,
                }
            }
        }
    }
    if rows.is_empty() { Err(reason) } else { Ok(rows) }
}

impl ReportRow {
    /// Returns an error if there is no such row.
    fn possible(self, peer: Option<&Path>) -> Result<(), &'static str> {
        if self.service.is_peer() && peer.is_none() {
            return Err("--peer has the path of the binary of envoyproxy/ratelimit");
        }
        if self.service.is_peer() && self.store == ReportedStore::Memory {
            return Err("envoyproxy/ratelimit has no counters of its own");
        }
        if self.service == ReportedService::WholeLimit
            && (self.store != ReportedStore::Memory || self.disturbance != Disturbance::None)
        {
            return Err("it has no counters: use --store memory and --disturb none");
        }
        if self.service.is_peer() && self.disturbance == Disturbance::ClockAhead {
            return Err("libfaketime does not change the clock of a program in Go");
        }
        self.disturbance.possible_on(self.store)
    }

    fn name(self) -> String {
        [self.service.name(), self.store.name(), self.disturbance.name()].join(", ")
    }

    /// Verifies the service. Returns the report of `tollgate verify`, and how often it was
    /// disturbed.
    async fn run(self, arguments: &ReportArguments) -> (Value, u32) {
        let mut reason = String::new();
        // On a busy machine, a service may be too slow for the first requests.
        for _ in 0..MOST_STARTS {
            match self.try_run(arguments).await {
                Ok(run) => return run,
                Err(why) => reason = why,
            }
        }
        panic!("{}: {reason}", self.name())
    }

    /// Runs once. Returns an error if the command could not start its run.
    async fn try_run(self, arguments: &ReportArguments) -> Result<(Value, u32), String> {
        let store = self.store.start(self.disturbance).await;
        let count = if self.store == ReportedStore::Memory { 1 } else { 2 };
        let mut replicas = Replicas::start(self, count, &store, arguments.peer.as_deref()).await;
        let mut verify = command(["verify", "--json", "--deadline", "500", "--skew", SKEW_MS]);
        verify.args(["--duration", &arguments.seconds.to_string()]);
        verify.args(["--rate", &self.service.rate(arguments.rate).to_string()]);
        for header in self.service.headers() {
            verify.args(["--header", header]);
        }
        verify.arg("--policy").arg(replicas.policy());
        for target in replicas.targets() {
            verify.args(["--target", target]);
        }
        let child = verify.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let ended = tokio::task::spawn_blocking(move || child.wait_with_output().unwrap());
        let mut disturbed = 0;
        tokio::time::sleep(DISTURB_EVERY).await;
        while !ended.is_finished() && self.disturbance.is_repeated() {
            self.disturbance.disturb(&store, &mut replicas).await;
            disturbed += 1;
            tokio::time::sleep(self.disturbance.pause()).await;
        }
        let output = ended.await.unwrap();
        let report = serde_json::from_slice(&output.stdout);
        report
            .map(|report| (report, disturbed))
            .map_err(|_| String::from_utf8_lossy(&output.stderr).into_owned())
    }

    /// Returns the row of the table.
    fn text(self, report: &Value, disturbed: u32) -> String {
        let count = |name: &str| report[name].as_u64().unwrap_or_default().to_string();
        let [over, rest] = [true, false].map(|over| {
            let properties = report["properties"].as_array().unwrap().iter();
            let of_kind = properties.filter(|one| (one["property"] == "never_over") == over);
            of_kind.cloned().collect::<Vec<_>>()
        });
        let over = match over[0]["verdict"].as_str() {
            Some("inconclusive") => "inconclusive".to_owned(),
            _ => format!("{} of {}", over[0]["contradictions"], over[0]["checked_on"]),
        };
        let mut violated: Vec<String> = Vec::new();
        for property in rest.iter().filter(|one| one["verdict"] == "violated") {
            let name = property["property"].as_str().unwrap().replace('_', " ");
            let counts = (&property["contradictions"], &property["checked_on"]);
            violated.push(format!("{name}: {} of {}", counts.0, counts.1));
        }
        if let Some(skew) = report["explained_by_skew_ms"].as_u64() {
            violated.push(format!("clocks {skew} ms apart would explain it"));
        }
        let cells = [
            self.store.name().to_owned(),
            self.disturbance.name().to_owned(),
            disturbed.to_string(),
            self.service.name().to_owned(),
            count("calls"),
            count("admitted"),
            count("denied"),
            count("errors"),
            count("late"),
            over,
            violated.join("; "),
        ];
        format!("| {} |", cells.join(" | "))
    }

    /// Returns `true` if Tollgate violates a property although the store has kept its data and
    /// answered.
    fn breaks_promise(self, report: &Value) -> bool {
        let mut properties = report["properties"].as_array().unwrap().iter();
        let is_excepted = self.disturbance.loses_data(self.store);
        self.service.is_tollgate()
            && !is_excepted
            && properties
                .any(|one| one["verdict"] == "violated" && one["property"] != "answered_in_time")
    }
}
