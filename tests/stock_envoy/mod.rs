//! The behavior of a stock Envoy as the client of RLQS, one row per message that a server can send.
//! All cases run at once, in buckets of their own. If a newer Envoy differs, the engine in
//! `src/rlqs` and its double of this client change first.

mod ping;

use std::time::Duration;

use tokio::time::sleep;
use tollgate::grpc::proto::quota::rate_limit_quota_response::BucketAction;
use tollgate::grpc::proto::rate_limit_strategy::{BlanketRule, RequestsPerTimeUnit, Strategy};

use crate::support::envoy::Envoy;
use crate::support::quotas::{NEVER, QuotaServer, abandon, assignment, blanket, loan, tokens};
use crate::support::root;
use crate::support::{TEST_TIMEOUT, becomes};
use prost_types::Duration as ProtoDuration;

/// Time after which a response has been applied by all workers.
const APPLIED: Duration = Duration::from_millis(300);
/// Requests of a case that counts how many pass.
const REQUESTS: usize = 20;

/// Name of a row, its expected result, and the result found.
type Row = (&'static str, String, String);

/// An Envoy, and the server that it reports to.
struct Rig {
    envoy: Envoy,
    server: QuotaServer,
}

impl Rig {
    async fn start() -> Self {
        let server = QuotaServer::start().await;
        let template = std::fs::read_to_string(root().join("tests/rlqs/envoy.yaml")).unwrap();
        let port = server.address.port().to_string();
        let envoy = Envoy::start_by(&template, &[("TOLLGATE", port.as_str())]).await;
        Self { envoy, server }
    }

    /// Sends one request, and returns `true` if it passes.
    async fn passes(&self, bucket: &str, settings: &'static str) -> bool {
        let headers = [("x-bucket", bucket.as_bytes()), ("x-settings", settings.as_bytes())];
        match self.envoy.edge.get_with("/", &headers).await.status {
            200 => true,
            429 => false,
            other => panic!("status {other}"),
        }
    }

    /// Sends requests, and returns how many pass.
    async fn count(&self, bucket: &str, requests: usize) -> usize {
        let mut passed = 0;
        for _ in 0..requests {
            passed += usize::from(self.passes(bucket, "deny").await);
        }
        passed
    }

    /// Opens a bucket by a request, and waits for its first report.
    async fn open(&self, bucket: &str) {
        self.passes(bucket, "deny").await;
        self.server.first_report(bucket).await;
    }

    /// Sends actions, and waits until they are applied.
    async fn send(&self, actions: Vec<BucketAction>) {
        self.server.send(actions).await;
        sleep(APPLIED).await;
    }

    /// Opens a bucket, sends one assignment, and returns how many of the requests pass then.
    async fn count_under(
        &self,
        bucket: &str,
        ttl: Option<(i64, i32)>,
        strategy: Option<Strategy>,
        requests: usize,
    ) -> usize {
        self.open(bucket).await;
        self.send(vec![assignment(bucket, ttl, strategy)]).await;
        self.count(bucket, requests).await
    }
}

fn row(name: &'static str, expected: impl ToString, found: impl ToString) -> Row {
    (name, expected.to_string(), found.to_string())
}

fn every(seconds: i64, nanos: i32) -> ProtoDuration {
    ProtoDuration { seconds, nanos }
}

#[tokio::test]
async fn every_row_of_the_table_holds_for_a_stock_envoy() {
    let rig = Rig::start().await;
    let (first, second, third, fourth) = tokio::join!(
        async { [loans(&rig).await, pushes(&rig).await].concat() },
        async { [refills(&rig).await, times_to_live(&rig).await].concat() },
        async { [ignored(&rig).await, first_requests(&rig).await].concat() },
        async { [reports(&rig).await, reuse(&rig).await].concat() },
    );
    let rows = [first, second, third, fourth].concat();
    let differences: Vec<_> =
        rows.iter().filter(|(_, expected, found)| expected != found).collect();
    assert!(differences.is_empty(), "row, expected, found: {differences:#?}");
}

/// DENY_ALL and a token bucket in one response: exactly N requests, also if N repeats.
async fn loans(rig: &Rig) -> Vec<Row> {
    rig.open("loan").await;
    let mut passed = Vec::new();
    for hits in [7, 8, 9, 7, 7, 7] {
        rig.send(loan("loan", 60, hits)).await;
        passed.push(rig.count("loan", REQUESTS).await);
    }
    // The rest of a loan is gone once the next one is there.
    rig.send(loan("loan", 60, 9)).await;
    passed.push(rig.count("loan", 4).await);
    rig.send(loan("loan", 60, 6)).await;
    passed.push(rig.count("loan", REQUESTS).await);
    vec![row("loans", "[7, 8, 9, 7, 7, 7, 4, 6]", format!("{passed:?}"))]
}

/// A token bucket alone, while the old one is empty.
async fn pushes(rig: &Rig) -> Vec<Row> {
    let minute = Some((60, 0));
    let first = rig.count_under("push", minute, tokens(5, NEVER), REQUESTS).await;
    rig.send(vec![assignment("push", minute, tokens(9, NEVER))]).await;
    let larger = rig.count("push", REQUESTS).await;
    rig.send(loan("push", 60, 3)).await;
    let fresh = rig.count("push", REQUESTS).await;
    vec![row("plain pushes lend nothing", "[5, 0, 3]", format!("{:?}", [first, larger, fresh]))]
}

/// The fill interval: less than a second, and another number of whole seconds.
async fn refills(rig: &Rig) -> Vec<Row> {
    let minute = Some((60, 0));
    let half = every(0, 500_000_000);
    let unlimited = rig.count_under("half", minute, tokens(1, half), 40).await;

    let second = rig.count_under("seconds", minute, tokens(3, NEVER), REQUESTS).await;
    rig.send(vec![assignment("seconds", minute, tokens(3, every(1, 0)))]).await;
    sleep(Duration::from_millis(2_500)).await;
    let ignored = rig.count("seconds", REQUESTS).await;
    rig.send(vec![assignment("seconds", minute, tokens(3, every(1, 1)))]).await;
    sleep(Duration::from_millis(2_500)).await;
    let applied = rig.count("seconds", REQUESTS).await > 0;
    vec![
        row("a fill interval below a second is no limit", 40, unlimited),
        row("tokens that never refill", 3, second),
        row("other seconds are ignored", 0, ignored),
        row("other nanoseconds are not", true, applied),
    ]
}

/// The time to live: whole seconds, and none is zero.
async fn times_to_live(rig: &Rig) -> Vec<Row> {
    rig.open("ttl").await;
    rig.server.send(vec![assignment("ttl", Some((1, 900_000_000)), tokens(50, NEVER))]).await;
    sleep(APPLIED).await;
    let at_first = rig.passes("ttl", "deny").await;
    sleep(Duration::from_millis(1_250)).await;
    let later = rig.passes("ttl", "deny").await;
    let without = rig.count_under("no-ttl", None, tokens(50, NEVER), REQUESTS).await;
    vec![
        row(
            "a TTL of 1.9 s, at once and after 1.55 s",
            "(true, false)",
            format!("{:?}", (at_first, later)),
        ),
        row("no TTL expires at once", 0, without),
    ]
}

/// Assignments that Envoy does not apply.
async fn ignored(rig: &Rig) -> Vec<Row> {
    let minute = Some((60, 0));
    let rate = RequestsPerTimeUnit { requests_per_time_unit: 100, time_unit: 1 };
    let rate = Some(Strategy::RequestsPerTimeUnit(rate));
    let by_rate = rig.count_under("rate", minute, rate, REQUESTS).await;
    let by_none = rig.count_under("none", minute, None, REQUESTS).await;
    rig.open("known").await;
    let unknown = assignment("unknown", minute, blanket(BlanketRule::AllowAll));
    rig.send([vec![unknown], loan("known", 60, 4)].concat()).await;
    let known = rig.count("known", REQUESTS).await;
    let unknown = rig.count("unknown", REQUESTS).await;
    vec![
        row("requests_per_time_unit is not applied", 0, by_rate),
        row("no strategy is not applied", 0, by_none),
        row("actions after one for an unknown bucket are applied", 4, known),
        row("an unknown bucket gets nothing", 0, unknown),
    ]
}

/// The first request of a bucket, which is decided before the server knows of it.
async fn first_requests(rig: &Rig) -> Vec<Row> {
    let mut rows = Vec::new();
    for (settings, name, expected) in [
        ("allow", "the first request is allowed and reported", "(true, 1, 0, 0)"),
        ("deny", "the first request is denied and reported", "(false, 0, 1, 0)"),
    ] {
        let bucket = format!("first-{settings}");
        let passed = rig.passes(&bucket, settings).await;
        let usage = rig.server.first_report(&bucket).await;
        let elapsed = usage.time_elapsed.unwrap_or_default().seconds;
        let found = (passed, usage.num_requests_allowed, usage.num_requests_denied, elapsed);
        rows.push(row(name, expected, format!("{found:?}")));
    }
    let ttl = Some((1, 0));
    rig.send(vec![assignment("first-allow", ttl, blanket(BlanketRule::DenyAll))]).await;
    let denied = rig.passes("first-allow", "allow").await;
    sleep(Duration::from_secs(1)).await;
    let expired = rig.passes("first-allow", "allow").await;
    rows.push(row("an expired assignment", "(false, true)", format!("{:?}", (denied, expired))));
    rows
}

/// Reports: every 5 s, of all buckets, in whole seconds, until a bucket is abandoned.
async fn reports(rig: &Rig) -> Vec<Row> {
    rig.open("idle").await;
    rig.open("abandoned").await;
    rig.open("renewed").await;
    rig.send(vec![abandon("abandoned")]).await;
    rig.send(loan("renewed", 60, 2)).await;
    let used = rig.count("renewed", 5).await;
    let three = async || rig.server.reports_of("idle").len();
    becomes("three reports of an idle bucket", TEST_TIMEOUT, three, |reports| *reports >= 3).await;
    let reports = rig.server.reports_of("idle");
    let interval = reports[2].0.duration_since(reports[1].0).as_secs_f64();
    let idle = &reports[2].1;
    let elapsed = idle.time_elapsed.unwrap_or_default();
    let found = (
        interval.round(),
        // Cut to whole seconds, so that it may be one less than the interval.
        (4..=5).contains(&elapsed.seconds) && elapsed.nanos == 0,
        idle.num_requests_allowed + idle.num_requests_denied,
    );
    let expected = (5.0, true, 0);
    let sums = rig.server.reports_of("renewed").into_iter().fold((0, 0), |sum, (_, usage)| {
        (sum.0 + usage.num_requests_allowed, sum.1 + usage.num_requests_denied)
    });
    let is_named = rig.server.reports().iter().all(|(_, report)| report.domain == "test");
    rig.passes("abandoned", "deny").await;
    let again = async || rig.server.reports_of("abandoned").len();
    let again = becomes("a first report again", TEST_TIMEOUT, again, |reports| *reports >= 2).await;
    vec![
        row("an idle bucket is reported every 5 s", format!("{expected:?}"), format!("{found:?}")),
        // The request that opened the bucket, and those beyond the loan, were denied.
        row("reports have all requests", "(2, (2, 4))", format!("{:?}", (used, sums))),
        row("every message has the domain", true, is_named),
        row("an abandoned bucket is reported again from its next request on", 2, again),
    ]
}

/// `reuse_last_assignment`, which Envoy 1.40 does not apply.
async fn reuse(rig: &Rig) -> Vec<Row> {
    rig.passes("reuse", "reuse").await;
    rig.server.first_report("reuse").await;
    rig.send(vec![assignment("reuse", Some((1, 0)), blanket(BlanketRule::AllowAll))]).await;
    let assigned = rig.passes("reuse", "reuse").await;
    sleep(Duration::from_millis(1_200)).await;
    let expired = rig.passes("reuse", "reuse").await;
    vec![row(
        "reuse_last_assignment is not applied",
        "(true, false)",
        format!("{:?}", (assigned, expired)),
    )]
}
