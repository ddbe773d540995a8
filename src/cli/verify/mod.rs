//! `tollgate verify`: sends concurrent requests to a rate limit service, and checks its answers.
//!
//! | file | contents |
//! |---|---|
//! | `client` | the service, over gRPC |
//! | `gateway` | a gateway that asks the service, over HTTP |
//! | `report` | the result, as text and JSON |
//! | `units` | durations in flags |

mod client;
mod gateway;
mod report;
mod units;

use std::cell::RefCell;
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use gateway::{GatewayTarget, KeyHeader};
use report::VerifyReport;
use units::{MILLISECOND, SECOND, in_units};

use super::client_tls::ClientTlsFlags;
use super::output::{print, print_json};
use super::{CommandError, load, try_block_on};
use crate::grpc::client::{ClientError, RateLimitClient};
use crate::settings::ReadingFlags;
use crate::verify::rules::{TargetKind, rules_of};
use crate::verify::run::VerifyRun;
use crate::verify::service::VerifiedService;
use crate::verify::workload::{Disturbance, VerifyClient, Workload};

/// Most calls of a run: they are kept in memory until it ends, at about 200 bytes each.
const MAX_CALLS: u64 = 5_000_000;

/// Longest run, in seconds.
const MAX_DURATION: u64 = 86_400;

/// Verify that a running rate limit service enforces its limits
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Sends concurrent requests and checks that the answers are consistent with the limits. Works with \
any service that implements Envoy's protocol. Keys without a value get fresh random values, so that \
no other traffic shares the counters; rules without such a key are not checked.

Exit codes: 0 if all checked properties held, 1 if one was violated, 2 if the run is inconclusive \
(a limit was not reached, most calls failed, a target is down) or could not start.

Examples:
  tollgate verify --target 127.0.0.1:8081 --policy config/policies/api-gateway.yaml

  # An Envoy with ext_authz, RLQS or a rate limit filter, whose descriptors have the header x-user as `user`
  tollgate verify --target http://127.0.0.1:10000/ --header user=x-user --policy limits.yaml

  # Two replicas of one service, one of which is restarted every 3 s
  tollgate verify --target 10.0.0.1:8081 --target 10.0.0.2:8081 --policy config/policies \\
    --duration 30s --disturb 'docker restart ratelimit-1' --history calls.jsonl")]
pub struct Verify {
    /// gRPC address of a replica, host:port; repeat it for each replica of one service. With
    /// --header, the URL of a gateway that calls the service, http://HOST:PORT/PATH: 429 is a
    /// denial, codes below 400 are admissions.
    #[arg(long = "target", value_name = "ADDRESS", required = true)]
    targets: Vec<String>,
    /// Verify gateways: the HTTP header with the value of a key of descriptors, KEY=HEADER. May be
    /// repeated. Rules with other keys are not checked.
    #[arg(long = "header", value_name = "KEY=HEADER")]
    headers: Vec<KeyHeader>,
    /// Policy files that the service has loaded, or directories that contain them.
    #[arg(long, value_name = "PATH", required = true)]
    policy: Vec<PathBuf>,
    /// Duration of the run; Ctrl-C ends it early and prints the result. Without a unit: seconds.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = |text: &str| in_units(text, SECOND, 1..=MAX_DURATION))]
    duration: u64,
    /// Concurrent clients, each with a connection of its own.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    clients: u32,
    /// Requests per second of all clients together.
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    rate: u32,
    /// Deadline of a call. Without a unit: milliseconds.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = |text: &str| in_units(text, MILLISECOND, 1..=5000))]
    deadline: u64,
    /// Tolerated difference between the clocks of this machine, the replicas and the store. Without
    /// a unit: milliseconds.
    #[arg(long, value_name = "DURATION", default_value = "50ms", value_parser = |text: &str| in_units(text, MILLISECOND, 0..=60_000))]
    skew: u64,
    /// Command to run by `sh -c` while requests are sent, such as one that restarts a replica.
    #[arg(long, value_name = "COMMAND")]
    disturb: Option<String>,
    /// Time between the runs of the command. Without a unit: seconds.
    #[arg(long, value_name = "DURATION", default_value = "3s", requires = "disturb", value_parser = |text: &str| in_units(text, SECOND, 1..=86_400))]
    disturb_every: u64,
    /// File to write the history to: one call per line, as JSON.
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    tls: ClientTlsFlags,
    // Last: its help heading applies to all arguments that follow.
    #[command(flatten)]
    reading: ReadingFlags,
}

impl Verify {
    /// Runs the workload and prints the result.
    pub(super) fn run(self) -> Result<ExitCode, CommandError> {
        Ok(ExitCode::from(try_block_on(self.verify())?))
    }

    /// Returns the exit code.
    async fn verify(&self) -> Result<u8, CommandError> {
        let calls = self.duration * u64::from(self.rate);
        if calls > MAX_CALLS {
            return Err(format!(
                "--duration x --rate is {calls} calls, at most {MAX_CALLS} are checked; lower one of them"
            )
            .into());
        }
        let (_, loaded) = load(&self.reading, &self.policy)
            .map_err(|report| format!("policies are invalid\n{report}"))?;
        let (rules, skipped) = rules_of(&loaded.policies, self.skew, &self.kind()?);
        if rules.is_empty() {
            return Err(format!("no rule can be verified: {}", skipped.join("; ")).into());
        }
        let mut run = VerifyRun::new(rules, skipped);
        let run = if self.has_gateways() {
            let clients = self.gateways(&mut run).await?;
            self.drive(clients, run).await
        } else {
            let clients = self.connect(&mut run).await?;
            self.drive(clients, run).await
        };
        let run = run.borrow();
        self.write_history(&run).map_err(|error| format!("cannot write the history: {error}"))?;
        let checker = run.check(self.skew);
        let conditions = run.conditions(self.skew, self.deadline());
        let report = VerifyReport::new(self, &run, checker.results(), &conditions);
        let report = if report.depends_on_clocks() {
            report.with_explaining_skew(run.explaining_skew(self.skew))
        } else {
            report
        };
        if self.json {
            print_json(format_args!("{}\n", report.json()));
        } else {
            print(report.text());
        }
        Ok(report.exit_code())
    }

    /// Sends the requests of a run.
    async fn drive<S: VerifiedService + 'static>(
        &self,
        clients: Vec<VerifyClient<S>>,
        run: VerifyRun,
    ) -> Rc<RefCell<VerifyRun>> {
        let run = Rc::new(RefCell::new(run));
        let local = tokio::task::LocalSet::new();
        local.run_until(self.workload().drive(clients, &run)).await;
        run
    }

    /// Returns `true` if the targets are gateways.
    fn has_gateways(&self) -> bool {
        !self.headers.is_empty()
    }

    fn kind(&self) -> Result<TargetKind, CommandError> {
        if !self.has_gateways() {
            return Ok(TargetKind::Service);
        }
        if self.tls.options().is_some() {
            return Err("--tls does not apply to gateways, which are called by http://".into());
        }
        let keys = self.headers.iter().map(|header| header.key.clone());
        Ok(TargetKind::Gateway { keys: keys.collect() })
    }

    /// Returns clients of gateways, each of one target in turn.
    ///
    /// # Errors
    /// A target is no URL, or does not answer.
    async fn gateways(
        &self,
        run: &mut VerifyRun,
    ) -> Result<Vec<VerifyClient<gateway::GatewayClient>>, CommandError> {
        let headers: Arc<[KeyHeader]> = Arc::from(&*self.headers);
        let mut targets = Vec::new();
        for url in &self.targets {
            targets.push(GatewayTarget::of(url, &headers)?);
        }
        for (url, target) in self.targets.iter().zip(&targets) {
            run.probe(url, &mut target.client(), self.deadline()).await?;
        }
        let mut clients = Vec::new();
        for ((target, gateway), _) in targets.iter().enumerate().cycle().zip(0..self.clients) {
            clients.push(VerifyClient { target, service: gateway.client() });
        }
        Ok(clients)
    }

    /// Connects all clients, each to one target in turn.
    ///
    /// # Errors
    /// A target does not answer, or has no limit for a rule.
    async fn connect(
        &self,
        run: &mut VerifyRun,
    ) -> Result<Vec<VerifyClient<RateLimitClient>>, CommandError> {
        let tls = self.tls.options();
        for address in &self.targets {
            let client = RateLimitClient::connect(address, tls.as_ref()).await;
            let mut client = client.map_err(ClientError::with_advice)?;
            run.probe(address, &mut client, self.deadline()).await?;
        }
        let mut clients = Vec::new();
        for ((target, address), _) in self.targets.iter().enumerate().cycle().zip(0..self.clients) {
            let service = RateLimitClient::connect(address, tls.as_ref()).await;
            let service = service.map_err(ClientError::with_advice)?;
            clients.push(VerifyClient { target, service });
        }
        Ok(clients)
    }

    fn workload(&self) -> Workload {
        Workload {
            duration: Duration::from_secs(self.duration),
            rate: self.rate,
            deadline: self.deadline(),
            disturbance: self.disturb.clone().map(|command| Disturbance {
                command,
                every: Duration::from_secs(self.disturb_every),
            }),
        }
    }

    fn deadline(&self) -> Duration {
        Duration::from_millis(self.deadline)
    }

    fn write_history(&self, run: &VerifyRun) -> std::io::Result<()> {
        let Some(path) = &self.history else { return Ok(()) };
        let mut text = String::new();
        for call in &run.calls {
            text.push_str(&report::call_json(run, &self.targets, call).to_string());
            text.push('\n');
        }
        std::fs::write(path, text)
    }
}
