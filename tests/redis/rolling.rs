//! Replicas that are replaced one by one by another release and back, twice, while clients call: no
//! call fails, no counter starts anew, and holds that one release opened end by the other.
//!
//! `TOLLGATE_PREVIOUS` is the binary of the earlier release. Without it, both are this one, and the
//! replacement alone is tested.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::RwLock;
use tollgate::grpc::client::{ClientError, RateLimitClient};
use tollgate::verify::check::CheckedProperty;
use tollgate::verify::run::VerifyRun;
use tollgate::verify::service::{ServiceDecision, VerifiedService, VerifyRequest};

use super::verified::{answered, contradictions, drive, name_of, run_of, workload};
use super::{cluster, remaining, serve_one_of};
use crate::support::policy::Policies;
use crate::support::redis::Redis;
use crate::support::rls::Client;
use crate::support::tollgate::Tollgate;
use crate::support::web::Web;
use crate::support::{TEST_TIMEOUT, becomes};

/// Replicas at a time, and how often all are replaced by the other release.
const REPLICAS: usize = 2;
const ROLLOUTS: usize = 4;
const CLIENTS: usize = 8;
/// Requests per second of all clients together.
const RATE: u32 = 400;
/// Time for which clients call after each replacement.
const TIME: Duration = Duration::from_secs(1);
/// Answers of clients before a replacement.
const ANSWERS: usize = 100;

/// Numbers of [`serve_one_of`] for this release and the one before.
const THIS: usize = 0;
const PREVIOUS: usize = 2;

/// Limits for a year, of which clients use up the small ones. Buckets drain a hit in 27 hours.
const LIMITS: [(&str, &str); 8] = [
    ("fixed", "requests_per_unit: 2000, unit: year"),
    (LEASED, "requests_per_unit: 2000, unit: year, lease: { ttl: 1s, size: 10 }"),
    ("sliding", "algorithm: sliding_window, requests_per_unit: 2000, unit: year"),
    ("log", "algorithm: sliding_log, requests_per_unit: 2000, unit: year"),
    ("gcra", "algorithm: gcra, requests_per_unit: 316, unit: year, burst: 2000"),
    ("held", "requests_per_unit: 500, unit: year, hold: { ttl: 10m }"),
    (
        HELD_GCRA,
        "algorithm: gcra, requests_per_unit: 316, unit: year, burst: 500, hold: { ttl: 10m }",
    ),
    ("small", "requests_per_unit: 10, unit: year"),
];
const LEASED: &str = "leased";
const HELD_GCRA: &str = "held_gcra";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_server_is_served_by_two_releases_in_turn() {
    let redis = Redis::start().await;
    roll(&redis.url()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_is_served_by_two_releases_in_turn() {
    let cluster = cluster().await;
    roll(&cluster.url()).await;
}

/// A replica that clients call.
struct Replica {
    service: Tollgate,
    client: RateLimitClient,
}

impl Replica {
    async fn start(release: usize, policies: &Policies, store: &str) -> Arc<Self> {
        let (service, _) = serve_one_of(release, policies, store, &[]).await;
        let client = RateLimitClient::connect(&service.grpc.to_string(), None).await.unwrap();
        Arc::new(Self { service, client })
    }
}

/// The replicas that clients may call, as a list of endpoints has them.
type Endpoints = Arc<RwLock<Vec<Arc<Replica>>>>;

/// A client that calls one replica after the other.
struct BalancedClient {
    endpoints: Endpoints,
    calls: usize,
}

impl VerifiedService for BalancedClient {
    type Error = ClientError;

    async fn decide(
        &mut self,
        request: VerifyRequest,
        deadline: Duration,
    ) -> Result<ServiceDecision, ClientError> {
        self.calls += 1;
        let replica = {
            let replicas = self.endpoints.read();
            Arc::clone(&replicas[self.calls % replicas.len()])
        };
        let mut client = replica.client.clone();
        client.decide(request, deadline).await
    }
}

/// Replaces all replicas several times while clients call, and judges their history.
async fn roll(store: &str) {
    let limits = format!("defaults: {{ charge: admitted }}\n{}", super::policy(&LIMITS));
    let policies = Policies::of(&limits);
    let mut replicas = Vec::new();
    for _ in 0..REPLICAS {
        replicas.push(Replica::start(PREVIOUS, &policies, store).await);
    }
    let endpoints: Endpoints = Arc::new(RwLock::new(replicas));
    let mut run = run_of(&limits);
    for rollout in 0..ROLLOUTS * REPLICAS {
        let release = if (rollout / REPLICAS).is_multiple_of(2) { THIS } else { PREVIOUS };
        let clients =
            (0..CLIENTS).map(|calls| BalancedClient { endpoints: Arc::clone(&endpoints), calls });
        let started = Replica::start(release, &policies, store).await;
        let replace = async |run: &RefCell<VerifyRun>| {
            answered(run, ANSWERS, Instant::now() + TIME).await;
            let replaced = {
                let mut replicas = endpoints.write();
                replicas.push(started);
                replicas.remove(0)
            };
            end(replaced).await;
        };
        (run, ()) = drive(run, &workload(TIME, RATE, TEST_TIMEOUT), clients, replace).await;
    }
    judge(run, &endpoints.read()[0]).await;
    let replicas = std::mem::take(&mut *endpoints.write());
    for replica in replicas {
        end(replica).await;
    }
}

/// Ends a replica that clients do not call any more, once their last calls have ended.
async fn end(replica: Arc<Replica>) {
    let metrics = Web::new(replica.service.http).get("/metrics").await.body;
    let mut errors = metrics.lines().filter(|line| line.starts_with("tollgate_store_errors_total"));
    assert!(errors.all(|line| line.ends_with(" 0")), "checks failed in the store:\n{metrics}");
    let handles = || std::future::ready(Arc::strong_count(&replica));
    becomes("calls in progress end", TEST_TIMEOUT, handles, |handles| *handles == 1).await;
    let mut replica = Arc::into_inner(replica).unwrap();
    let status = tokio::task::spawn_blocking(move || replica.service.terminate()).await.unwrap();
    assert!(status.success(), "{status}");
}

/// Compares the answers, and what is left of a limit with leases, with what clients took.
async fn judge(mut run: VerifyRun, replica: &Replica) {
    let failed: Vec<_> = run.calls.iter().filter(|call| call.is_unknown()).collect();
    assert!(failed.is_empty(), "{failed:#?}");
    assert!(run.calls.iter().any(|call| call.is_denied()), "no limit is reached");
    let client = Client::connect(replica.service.grpc).await;
    for counter in 0..run.counters.len() {
        let (key, value) = name_of(&run, counter);
        if key == LEASED {
            let calls = run.calls.iter().filter(|call| call.counter == counter);
            let taken: u64 = calls.filter(|call| call.is_admitted()).map(|call| call.hits).sum();
            // Leased hits return when their lease ends.
            let left = || remaining(&client, &key, &value);
            becomes(&key, TEST_TIMEOUT, left, |left| u64::from(*left) + taken == 2_000).await;
        }
    }
    if std::env::var_os("TOLLGATE_PREVIOUS").is_some() {
        let over = contradictions(&run, &[CheckedProperty::NeverOver]);
        assert!(over.is_empty(), "{}", over.join("\n"));
        // 0.1.0 merges the marks of a bucket with many open holds: more than costs stay charged.
        let keys: Vec<_> = (0..run.counters.len()).map(|one| name_of(&run, one).0).collect();
        run.calls.retain(|call| keys[call.counter] != HELD_GCRA);
    }
    let wrong = contradictions(&run, &CheckedProperty::ALL);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
