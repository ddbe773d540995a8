//! A service whose store fails: its client, its probes, loads on it, and bounds of the results.

use std::panic::{AssertUnwindSafe, panic_any, resume_unwind};
use std::time::Duration;

use futures_util::FutureExt as _;

use tollgate::grpc::proto::RateLimitRequest;
use tollgate::grpc::proto::rate_limit_response::Code;

use crate::load::{CALM, Calls, Load, Summary, Traffic};
use crate::policy::Policies;
use crate::rls::{Client, descriptor, request};
use crate::tollgate::Tollgate;
use crate::web::Web;
use crate::{TEST_TIMEOUT, becomes};

/// Calls per second that a debug build of the service and of these callers sustains on a busy
/// machine.
pub const RATE: u32 = 200;
/// Timeout of a decision. Longer than the default, so that other load on the machine is not taken
/// for a fault.
pub const TIMEOUT: Duration = Duration::from_secs(1);
/// Latency above which a call was delayed by more than its timeout and a busy machine.
pub const HUNG: Duration = Duration::from_secs(3);
/// Maximum median latency if no call waits for its timeout.
pub const AT_ONCE: Duration = Duration::from_millis(200);
/// Percentage of failed calls that is attributed to a busy machine.
pub const NOISE: f64 = 1.0;

/// A service with its client and its probes.
pub struct Service {
    pub tollgate: Tollgate,
    pub client: Client,
    pub web: Web,
    /// Read until the service ends: without its file it reports that a change was rejected.
    _policies: Policies,
}

impl Service {
    /// Starts a service whose counters are at `store`, and does not wait until it is ready.
    pub async fn begin(store: &str, flags: &[&str]) -> Self {
        Self::begin_within(&format!("{TIMEOUT:?}"), store, flags).await
    }

    /// Starts a service with this timeout for decisions, unless the environment sets one.
    pub async fn begin_within(timeout: &str, store: &str, flags: &[&str]) -> Self {
        let timeout = std::env::var("FAULTS_STORE_TIMEOUT").unwrap_or_else(|_| timeout.to_owned());
        let own = ["--store", store, "--store-timeout", &timeout];
        let policies = policies();
        let tollgate = Tollgate::serve_with(policies.path(), &[&own, flags].concat());
        let client = Client::connect(tollgate.grpc).await;
        let web = Web::new(tollgate.http);
        Self { tollgate, client, web, _policies: policies }
    }

    /// Starts a service, and waits until it decides.
    pub async fn start(store: &str, flags: &[&str]) -> Self {
        Self::begin(store, flags).await.started().await
    }

    /// Waits until the service is ready and its workers decide.
    pub async fn started(self) -> Self {
        self.becomes_ready().await;
        // Readiness depends on the process's own connections: those of its workers may follow a
        // moment later.
        let is_decided = |answer: &Answer| *answer == Answer::Ok;
        for user in values(4) {
            becomes("it decides", TEST_TIMEOUT, || self.decide("user", &user), is_decided).await;
        }
        self
    }

    pub async fn becomes_ready(&self) {
        becomes("it is ready", TEST_TIMEOUT, || self.readiness(), |status| *status == 200).await;
    }

    pub async fn readiness(&self) -> u16 {
        self.web.get("/readyz").await.status
    }

    pub async fn decide(&self, key: &str, value: &str) -> Answer {
        answer_of(&self.client, one(key, value)).await
    }

    pub async fn load(&self, groups: Vec<Vec<RateLimitRequest>>) -> Load {
        let rate = std::env::var("FAULTS_RATE").map_or(RATE, |rate| rate.parse().unwrap());
        Load::start(self.tollgate.grpc, Traffic { rate, groups, timeout: None }).await
    }

    /// Asserts the answer of each kind of `on_store_error`; local admits half.
    pub async fn answers_by_on_store_error(&self, value: &str) {
        assert_eq!(self.decide("user", value).await, Answer::Unavailable);
        assert_eq!(self.decide("lenient", value).await, Answer::Ok);
        assert_eq!(self.decide("strict", value).await, Answer::Over);
        for _ in 0..5 {
            assert_eq!(self.decide("alone", value).await, Answer::Ok);
        }
        assert_eq!(self.decide("alone", value).await, Answer::Over);
    }

    /// Terminates the service, which must exit with code 0.
    pub fn ends(mut self, state: &str) {
        assert_eq!(self.tollgate.terminate().code(), Some(0), "{state}");
    }
}

/// An answer in short form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Ok,
    Over,
    Unavailable,
}

pub async fn answer_of(client: &Client, request: RateLimitRequest) -> Answer {
    match client.decide(request).await {
        Ok(answer) if answer.overall_code() == Code::Ok => Answer::Ok,
        Ok(_) => Answer::Over,
        Err(status) if status.code() == tonic::Code::Unavailable => Answer::Unavailable,
        Err(status) => panic!("{status:?}"),
    }
}

/// Returns a limit for each kind of `on_store_error`, of which tests use up only `alone` and `few`.
/// Nothing refills within a test.
pub fn policies() -> Policies {
    let limits = [
        ("user", 1_000_000, "error"),
        ("lenient", 1_000_000, "allow"),
        ("strict", 1_000_000, "deny"),
        ("alone", 10, "local"),
        ("few", 60, "error"),
        ("none", 0, "error"),
    ];
    let rule = |(key, amount, on_error): (&str, u32, &str)| {
        format!(
            "  - key: {key}\n    rate_limit: {{ algorithm: gcra, requests_per_unit: {amount}, unit: year, on_store_error: {on_error} }}\n"
        )
    };
    Policies::of(&format!("domain: test\ndescriptors:\n{}", limits.map(rule).concat()))
}

pub fn one(key: &str, value: &str) -> RateLimitRequest {
    request(vec![descriptor(&[(key, value)])])
}

/// Returns a request for each of the values of a key.
pub fn all(key: &str, values: &[String]) -> Vec<RateLimitRequest> {
    values.iter().map(|value| one(key, value)).collect()
}

/// Returns values that are easy to find in the servers.
pub fn values(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("value-{number:03}")).collect()
}

/// Number of attempts at a measurement: load of other processes passes, a defect does not.
const ATTEMPTS: usize = 3;

/// A panic of a measurement that was too slow, or during which this process did not run.
struct TooSlow(String);

/// Runs a measurement, again if it was too slow. Any other failure is final.
pub async fn measured(measurement: impl AsyncFn()) {
    for attempt in 1..=ATTEMPTS {
        let Err(panic) = AssertUnwindSafe(measurement()).catch_unwind().await else { return };
        match panic.downcast::<TooSlow>() {
            Ok(slow) if attempt < ATTEMPTS => report("measured again", slow.0),
            Ok(slow) => panic!("{}, {ATTEMPTS} times", slow.0),
            Err(other) => resume_unwind(other),
        }
    }
}

/// Ends a measurement as too slow, unless it is fast enough.
#[track_caller]
pub fn is_fast(is_fast: bool, what: impl FnOnce() -> String) {
    if !is_fast {
        panic_any(TooSlow(what()));
    }
}

/// Prints a measurement, for `docs/faults.md`.
pub fn report(what: &str, figure: impl std::fmt::Display) {
    eprintln!("fault: {what}: {figure}");
}

/// Prints the results of calls, and asserts that no call hung.
pub fn summary_of(what: &str, calls: &Calls) -> Summary {
    let summary = calls.summary();
    report(what, &summary);
    is_fast(summary.calls > 0, || format!("{what}: no calls"));
    is_fast(summary.longest < HUNG, || format!("{what}: {summary}"));
    summary
}

/// Prints the results of calls, and asserts that no call had to fail.
pub fn unaffected(what: &str, calls: &Calls) {
    let summary = summary_of(what, calls);
    is_fast(summary.percent_failed() <= NOISE, || format!("{what}: {summary}"));
}

/// Prints the results of calls, and asserts that decisions resume `within` a time after `since`,
/// and that the last of the calls succeed. The load must go on until decisions have resumed
/// ([`Load::until_calm`]).
pub fn recovers_within(what: &str, calls: &Calls, since: Duration, within: Duration) {
    let summary = summary_of(what, calls);
    let over_at = summary.over_at().max(since);
    // A machine may be too busy for half of the time, but not for all of it.
    let took = calls.undisturbed(since, over_at).max((over_at - since) / 2);
    report(what, format!("over {:?} after its cause, {took:?} undisturbed", over_at - since));
    is_fast(took <= within, || format!("{what}: not over {within:?} after {since:?}: {summary}"));
    let after = calls.since(calls.last().saturating_sub(CALM)).summary();
    is_fast(after.calls > 0, || format!("{what}: no calls at the end"));
    is_fast(after.percent_failed() <= NOISE, || format!("{what}, at the end: {after}"));
}
