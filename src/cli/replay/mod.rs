//! `tollgate replay`: decides recorded traffic in virtual time.

mod compare;
mod denied;
mod line;
mod order;
mod report;
mod top;
mod trace;

use std::io::{self, BufRead, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use self::line::Format;
use self::report::ReplayReport;
use super::output::{print_json, try_print};
use super::{CommandError, load, try_block_on};
use crate::limiter::{InForce, Limiter, Modes};
use crate::policy::{PolicySet, ProblemReport, Source};
use crate::scenario::access_log;
use crate::scenario::dry_run::DryRun;
use crate::settings::{ReadingFlags, RedisFlags, place};
use crate::store::any::AnyStore;
use crate::store::backend::Backend as _;
use crate::store::clock::ManualClock;
use crate::store::memory::{Bounds, MemoryStore};
use crate::telemetry::metrics::Metrics;

/// Replay recorded traffic against policies: a trace, or an Envoy access log
#[derive(Debug, clap::Args)]
#[command(group = clap::ArgGroup::new("report").multiple(true))]
#[command(after_help = "\
A trace has one JSON object per line, in the order of time. `at` is in microseconds since the epoch, or RFC 3339:
  {\"at\": \"2026-11-21T12:00:00Z\", \"request\": {\"domain\": \"gateway\", \"descriptors\": [
     {\"entries\": [{\"key\": \"remote_address\", \"value\": \"203.0.113.7\"}]}]}}        (on one line)

The map of an access log, in YAML, assigns fields of its lines to entries:
  time: { field: start_time }
  domain: gateway
  descriptors:
    - remote_address: { field: downstream_remote_address, without: port }

Exit codes: 0 if the traffic is replayed, 2 if an input is invalid.

Examples:
  # Replay a trace and write each response
  tollgate replay --policy config/policies trace.jsonl > decisions.jsonl
  # Show the keys of an access log that would be denied
  tollgate replay --policy config/policies --access-log access.jsonl --map map.yaml
  # Compare two sets of policies on the same traffic
  tollgate replay --policy config/policies --against new/ --access-log access.jsonl --map map.yaml")]
pub struct Replay {
    /// Policy file or directory. May be repeated.
    #[arg(long, value_name = "PATH", required = true)]
    policy: Vec<PathBuf>,
    /// Store of the counters: `memory`, or a Redis URL. Keys have a random prefix and are removed
    /// at the end.
    #[arg(long, value_name = "URL", default_value = "memory")]
    store: String,
    /// Policies to compare with --policy on the same traffic, in memory. Prints the keys that only
    /// one of them denies. May be repeated.
    #[arg(long, value_name = "PATH", conflicts_with = "store", group = "report")]
    against: Vec<PathBuf>,
    /// JSON access log to replay instead of a trace, in memory. Prints the keys that would be
    /// denied. `-` is standard input.
    #[arg(
        long,
        value_name = "FILE",
        requires = "map",
        conflicts_with_all = ["trace", "store"],
        group = "report"
    )]
    access_log: Option<PathBuf>,
    /// Print the report of --access-log or --against as JSON.
    #[arg(long, requires = "report")]
    json: bool,
    /// Mapping of a line of the access log to a request.
    #[arg(long, value_name = "FILE", requires = "access_log")]
    map: Option<PathBuf>,
    /// Trace to replay. `-` is standard input.
    #[arg(value_name = "TRACE", default_value = "-")]
    trace: PathBuf,
    // Last: their help headings apply to all arguments that follow.
    #[command(flatten)]
    reading: ReadingFlags,
    #[command(flatten)]
    redis: RedisFlags,
}

/// Timeout of one line: long, since no caller waits for the responses of a trace.
const LINE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum length of a line, in bytes. No request is that long.
const MAX_LINE: u64 = 1 << 20;

/// The lines of a file that are not empty.
pub(super) struct NonEmptyLines<R> {
    input: R,
    name: String,
    number: u64,
    line: Vec<u8>,
}

/// The reason why a file with traffic cannot be read.
#[derive(Debug, thiserror::Error)]
pub(super) enum InputError {
    #[error("{name}: {error}")]
    File { name: String, error: io::Error },
    #[error("{position}: line longer than {MAX_LINE} bytes")]
    LongLine { position: String },
}

impl Replay {
    /// Writes a line for each line of the trace to standard output and a summary to standard error,
    /// or a report of the denials. Exits with 2 if an input cannot be read.
    pub(super) fn run(self) -> Result<ExitCode, CommandError> {
        try_block_on(async {
            if self.against.is_empty() && self.access_log.is_none() {
                self.replay().await
            } else {
                self.compare().await
            }
        })?;
        Ok(ExitCode::SUCCESS)
    }

    async fn compare(self) -> Result<(), CommandError> {
        let format = match &self.map {
            None => Format::Trace,
            Some(path) => {
                let name = path.display().to_string();
                let source = match std::fs::read_to_string(path) {
                    Ok(text) => Source { name, text },
                    Err(error) => return Err(InputError::File { name, error }.into()),
                };
                Format::AccessLog(Box::new(access_log::read(&source)?))
            }
        };
        let first = DryRun::new(self.policies(&self.policy)?);
        let second = match self.against.as_slice() {
            [] => None,
            paths => Some(DryRun::new(self.policies(paths)?)),
        };
        let comparison =
            compare::decide_all(self.lines()?, &format, &first, second.as_ref()).await?;
        let against = (!self.against.is_empty()).then(|| paths_of(&self.against));
        let report =
            ReplayReport { comparison: &comparison, policy: paths_of(&self.policy), against };
        if self.json {
            print_json(format_args!("{}\n", report.json()));
        } else {
            try_print(report)?;
        }
        Ok(())
    }

    fn policies(&self, paths: &[PathBuf]) -> Result<PolicySet, ProblemReport> {
        Ok(load(&self.reading, paths)?.1.policies)
    }

    async fn replay(self) -> Result<(), CommandError> {
        let location = self.redis.complete(place(&self.store)?)?.with_prefix(own_prefix());
        let policies = self.policies(&self.policy)?;

        let clock = Arc::new(ManualClock::default());
        let metrics = Metrics::new();
        let store = AnyStore::connect(&location, Some(&clock), &metrics.store)
            .unwrap_or_else(|| in_memory(&clock));
        let in_force = InForce::new(metrics);
        in_force.install(policies);
        let limiter = Limiter::new(in_force, store, Modes::default());
        let connected = tokio::time::timeout(LINE_TIMEOUT, limiter.store().connected()).await;
        connected.map_err(|_| format!("cannot connect to --store within {LINE_TIMEOUT:?}"))?;

        let decided = trace::decide_all(self.lines()?, &limiter, &clock).await;
        limiter.store().clear().await?;
        decided
    }

    fn lines(&self) -> Result<NonEmptyLines<Box<dyn BufRead>>, InputError> {
        NonEmptyLines::open(self.access_log.as_ref().unwrap_or(&self.trace))
    }
}

impl NonEmptyLines<Box<dyn BufRead>> {
    /// Opens a file; `-` is standard input.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub(super) fn open(path: &Path) -> Result<Self, InputError> {
        let name = path.display().to_string();
        let input: Box<dyn BufRead> = if path.as_os_str() == "-" {
            Box::new(io::stdin().lock())
        } else {
            match std::fs::File::open(path) {
                Ok(file) => Box::new(io::BufReader::new(file)),
                Err(error) => return Err(InputError::File { name, error }),
            }
        };
        Ok(Self { input, name, number: 0, line: Vec::new() })
    }
}

impl<R: BufRead> NonEmptyLines<R> {
    /// Returns the next line.
    ///
    /// # Errors
    /// The file cannot be read, or a line is too long.
    pub(super) fn next(&mut self) -> Result<Option<&[u8]>, InputError> {
        loop {
            self.line.clear();
            self.number += 1;
            let mut bounded = (&mut self.input).take(MAX_LINE);
            let read = bounded
                .read_until(b'\n', &mut self.line)
                .map_err(|error| InputError::File { name: self.name.clone(), error })?;
            if bounded.limit() == 0 {
                return Err(InputError::LongLine { position: self.position() });
            }
            if read == 0 {
                return Ok(None);
            }
            if !self.line.trim_ascii().is_empty() {
                return Ok(Some(&self.line));
            }
        }
    }

    /// Returns the position of the last line, as `file:line`.
    pub(super) fn position(&self) -> String {
        format!("{}:{}", self.name, self.number)
    }
}

/// Formats paths for a report.
fn paths_of(paths: &[PathBuf]) -> String {
    let paths: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
    paths.join(", ")
}

fn in_memory(clock: &Arc<ManualClock>) -> AnyStore<Arc<ManualClock>> {
    let bounds = Bounds { max_bytes: usize::MAX, domain_max_bytes: usize::MAX };
    AnyStore::Memory(Arc::new(MemoryStore::new(bounds, Arc::clone(clock))))
}

/// Returns a random prefix, so that keys never collide with those of another store.
fn own_prefix() -> Vec<u8> {
    format!("replay-{:032x}:", rand::random::<u128>()).into_bytes()
}
