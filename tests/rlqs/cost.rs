//! The cost of RLQS in the service: CPU of a report and of a fleet, memory of a bucket and of a
//! stream.
//!
//! By default, only the memory of a bucket in the binary of the tests. The figures of docs/rlqs.md
//! are those of a release build, in memory and on a Redis server:
//!
//! ```text
//! export TOLLGATE_RLQS_COST=target/release/tollgate
//! cargo test --locked --test parts rlqs::cost -- --nocapture
//! ```

use std::ffi::OsString;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::interval;
use tokio_stream::wrappers::ReceiverStream;
use tollgate::grpc::proto::quota::rate_limit_quota_service_client::RateLimitQuotaServiceClient;
use tollgate::grpc::proto::quota::rate_limit_quota_usage_reports::BucketQuotaUsage;
use tollgate::grpc::proto::quota::{BucketId, RateLimitQuotaResponse, RateLimitQuotaUsageReports};
use tonic::Streaming;
use tonic::transport::Channel;

use crate::support::built;
use crate::support::policy::Policies;
use crate::support::redis::Redis;
use crate::support::rls::channel;
use crate::support::tollgate::{Tollgate, command_of};
use crate::support::usage::{Usage, resident_bytes};
use crate::support::web::Web;
use crate::support::{TEST_TIMEOUT, becomes};

const POLICY: &str = "
domain: test
descriptors:
  - key: tenant
    rate_limit: { unit: day, requests_per_unit: 1000000000, lease: { size: 50, ttl: 1s, rlqs: { ttl: 15s, size: 10% } } }
";
/// Hits of the first loan, and of later ones if all of it is used.
const FIRST: u64 = 50_000_000;
const LATER: u64 = 100_000_000;
/// Buckets of the stream, and of a message. An ID has 26 bytes.
const BUCKETS: usize = 19_000;
const PER_MESSAGE: usize = 100;
/// Streams without reports but the first one, and those of a connection.
const STREAMS: usize = 1_000;
const PER_CONNECTION: usize = 50;
/// Memory that is reserved for a bucket: 1.25 KiB and twice its ID, by `SECURITY.md`.
const MAX_BUCKET: u64 = 1_280 + 2 * 26;

/// Proxies of a fleet, buckets of each, and those of them that have requests.
const FLEET: u32 = 100;
const FLEET_BUCKETS: usize = 1_000;
const FLEET_ACTIVE: usize = 10;
/// Reports of each proxy of a fleet: the first, which has the loans that all buckets got; those
/// while idle buckets get loans, too; and those once they get none.
const FLEET_PHASES: [u32; 3] = [1, 5, 6];
const REPORT_INTERVAL: Duration = Duration::from_secs(5);

/// A stream whose messages are answered one by one.
struct Reporter {
    reports: mpsc::Sender<RateLimitQuotaUsageReports>,
    responses: Streaming<RateLimitQuotaResponse>,
}

fn message(
    buckets: std::ops::Range<usize>,
    allowed: u64,
    denied: u64,
) -> RateLimitQuotaUsageReports {
    let usages = buckets.map(|bucket| BucketQuotaUsage {
        bucket_id: Some(BucketId {
            bucket: [("tenant".to_owned(), format!("{bucket:012}"))].into(),
        }),
        num_requests_allowed: allowed,
        num_requests_denied: denied,
        ..BucketQuotaUsage::default()
    });
    let bucket_quota_usages = usages.collect();
    RateLimitQuotaUsageReports { domain: "test".to_owned(), bucket_quota_usages }
}

impl Reporter {
    /// Opens a stream with one bucket, beside those that are measured.
    async fn open(channel: Channel) -> Self {
        let (reports, receiver) = mpsc::channel(16);
        reports.send(message(BUCKETS..BUCKETS + 1, 0, 1)).await.unwrap();
        let mut client = RateLimitQuotaServiceClient::new(channel);
        let opened = client.stream_rate_limit_quotas(ReceiverStream::new(receiver)).await.unwrap();
        let mut reporter = Self { reports, responses: opened.into_inner() };
        reporter.answered().await;
        reporter
    }

    async fn answered(&mut self) {
        let response = self.responses.message().await.unwrap().unwrap();
        assert!(!response.bucket_action.is_empty());
    }

    /// Opens all buckets.
    async fn open_all(&mut self) {
        for first in (0..BUCKETS).step_by(PER_MESSAGE) {
            self.open_some(first).await;
        }
    }

    /// Opens the buckets of one message.
    async fn open_some(&mut self, first: usize) {
        self.reports.send(message(first..first + PER_MESSAGE, 0, 1)).await.unwrap();
        self.answered().await;
    }

    /// Reports all buckets. If requests were allowed, each of them gets another loan.
    async fn report_all(&mut self, allowed: u64) {
        for first in (0..BUCKETS).step_by(PER_MESSAGE) {
            self.reports.send(message(first..first + PER_MESSAGE, allowed, 0)).await.unwrap();
            if allowed > 0 {
                self.answered().await;
            }
        }
    }
}

/// A service, with its policies.
struct Measured {
    service: Tollgate,
    _policies: Policies,
}

impl Measured {
    fn serve(store: &str) -> Self {
        Self::serve_with(store, &[], true)
    }

    /// Starts a service without huge pages, of which memory in use is a multiple.
    fn serve_in_small_pages(store: &str) -> Self {
        Self::serve_with(store, &[], false)
    }

    fn serve_with(store: &str, flags: &[&str], has_huge_pages: bool) -> Self {
        let program = std::env::var_os("TOLLGATE_RLQS_COST");
        let program = program.unwrap_or_else(|| OsString::from(built().join("tollgate")));
        let policies = Policies::of(POLICY);
        let policy = policies.path().to_str().unwrap();
        let flags = [&["--policy", policy, "--store", store], flags].concat();
        let mut command = command_of(program, ["serve"]);
        if !has_huge_pages {
            command.env("MIMALLOC_ALLOW_THP", "0");
        }
        let service = Tollgate::serve_as(&mut command, &flags);
        Self { service, _policies: policies }
    }

    async fn open(&self) -> Reporter {
        Reporter::open(channel(self.service.grpc).await).await
    }

    fn memory(&self) -> u64 {
        resident_bytes(self.service.process.id())
    }

    fn usage(&self) -> Usage {
        Usage::of(self.service.process.id())
    }
}

/// Returns the bytes of a bucket, of so many that freed memory of messages and calls counts little.
async fn bucket_memory(store: &str) -> u64 {
    let measured = Measured::serve_in_small_pages(store);
    drop(measured.open().await);
    let before = measured.memory();
    let mut reporters = [measured.open().await, measured.open().await, measured.open().await];
    // In turn, since a stream without reports ends.
    for first in (0..BUCKETS).step_by(PER_MESSAGE) {
        for reporter in &mut reporters {
            reporter.open_some(first).await;
        }
    }
    let buckets = Web::new(measured.service.http).metric("tollgate_rlqs_buckets").await;
    measured.memory().saturating_sub(before) / buckets
}

/// Returns the bytes of a stream, with a part of its connection.
async fn stream_memory() -> u64 {
    let measured = Measured::serve_in_small_pages("memory");
    drop(measured.open().await);
    let before = measured.memory();
    let mut streams = Vec::new();
    for _ in 0..STREAMS / PER_CONNECTION {
        let connection = channel(measured.service.grpc).await;
        for _ in 0..PER_CONNECTION {
            streams.push(Reporter::open(connection.clone()).await);
        }
    }
    measured.memory().saturating_sub(before) / STREAMS as u64
}

/// Prints the microseconds of CPU of a first report, of one that gets another loan, and of an idle
/// one.
async fn report_cpu(store: &str, redis: Option<u32>) {
    const ROUNDS: usize = 5;
    let measured = Measured::serve(store);
    let of_redis = || redis.map(Usage::of).unwrap_or_default();
    let per_report = |cpu: Usage, rounds: usize| {
        cpu.cpu.as_secs_f64() * 1e6 / f64::from(u32::try_from(BUCKETS * rounds).unwrap())
    };
    let mut reporter = measured.open().await;
    let before = measured.usage();
    reporter.open_all().await;
    let first = per_report(measured.usage().since(before), 1);

    let before = (measured.usage(), of_redis());
    for round in 0..ROUNDS {
        reporter.report_all(if round == 0 { FIRST } else { LATER }).await;
    }
    let active = per_report(measured.usage().since(before.0), ROUNDS);
    let active_redis = per_report(of_redis().since(before.1), ROUNDS);

    drop(reporter);
    let mut reporter = measured.open().await;
    reporter.open_all().await;
    let web = Web::new(measured.service.http);
    let reports = async || web.metric("tollgate_rlqs_reports_total").await;
    let read = reports().await + (BUCKETS * ROUNDS) as u64;
    let before = measured.usage();
    for _ in 0..ROUNDS {
        reporter.report_all(0).await;
    }
    becomes("all reports are read", TEST_TIMEOUT, reports, |reports| *reports >= read).await;
    let idle = per_report(measured.usage().since(before), ROUNDS);
    eprintln!("{store}: first {first:.1} us, active {active:.1} us, idle {idle:.2} us");
    eprintln!("Redis: active {active_redis:.1} us");
}

/// Returns the message of a proxy of a fleet.
fn fleet_message() -> RateLimitQuotaUsageReports {
    let mut report = message(0..FLEET_ACTIVE, 10, 0);
    let idle = message(FLEET_ACTIVE..FLEET_BUCKETS, 0, 0);
    report.bucket_quota_usages.extend(idle.bucket_quota_usages);
    report
}

/// Prints the CPU of a service with a fleet of proxies, of whose buckets 1 % have requests, in
/// percent of a core.
async fn fleet_cpu(store: &str, redis: Option<u32>) {
    let measured = Measured::serve_with(store, &["--client-memory-max", "256MiB"], true);
    let usage = || (measured.usage(), redis.map(Usage::of).unwrap_or_default());
    let mut ticks = interval(REPORT_INTERVAL / FLEET);
    let mut fleet = Vec::new();
    for _ in 0..FLEET {
        ticks.tick().await;
        let Reporter { reports, mut responses } = measured.open().await;
        tokio::spawn(async move { while let Ok(Some(_)) = responses.message().await {} });
        reports.send(message(0..FLEET_BUCKETS, 0, 1)).await.unwrap();
        fleet.push(reports);
    }
    for reports in FLEET_PHASES {
        let before = usage();
        for _ in 0..reports {
            for proxy in &fleet {
                ticks.tick().await;
                // Fails if the stream was closed, which the number of buckets shows.
                let _ = proxy.send(fleet_message()).await;
            }
        }
        let after = usage();
        let time = REPORT_INTERVAL * reports;
        let percent = |cpu: Duration| 100.0 * cpu.as_secs_f64() / time.as_secs_f64();
        let service = percent(after.0.since(before.0).cpu);
        let of_redis = percent(after.1.since(before.1).cpu);
        let buckets = Web::new(measured.service.http).metric("tollgate_rlqs_buckets").await;
        eprintln!(
            "{store}: {buckets} buckets of a fleet, {reports} reports: {service:.1} % of a core, \
             Redis {of_redis:.1} %"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bucket_takes_no_more_memory_than_is_reserved_for_it() {
    let redis = Redis::start().await;
    let bucket = bucket_memory(&redis.url()).await;
    if std::env::var_os("TOLLGATE_RLQS_COST").is_some() {
        let with_counter = bucket_memory("memory").await;
        eprintln!("a bucket: {bucket} bytes, {with_counter} with its counter in memory");
        eprintln!("a stream: {} bytes", stream_memory().await);
        report_cpu("memory", None).await;
        report_cpu(&redis.url(), Some(redis.id())).await;
        fleet_cpu("memory", None).await;
        fleet_cpu(&redis.url(), Some(redis.id())).await;
    }
    assert!(bucket <= MAX_BUCKET, "{bucket} bytes");
}
