//! Concurrent requests never exceed the limit: several processes, with many requests in flight in
//! each.
//!
//! Amounts are per year, so that no hits become available meanwhile and no window ends except on
//! one night of the year.

use tokio::task::JoinSet;
use tollgate::grpc::proto::RateLimitDescriptor;
use tollgate::grpc::proto::rate_limit_response::Code;

use super::{cluster, policy, remaining, serve_one_of};
use crate::support::policy::Policies;
use crate::support::redis::Redis;
use crate::support::rls::{Client, descriptor, request};
use crate::support::tollgate::Tollgate;
use crate::support::{TEST_TIMEOUT, becomes};

const PROCESSES: usize = 8;
/// Requests in flight in each process.
const AT_ONCE: usize = 64;
const AMOUNT: u32 = 200;
/// Requests of each kind sent to each process: in total three times the amount.
const REQUESTS: usize = 75;

const LIMITS: [(&str, &str); 6] = [
    ("fixed", "requests_per_unit: 200, unit: year"),
    (
        "windows",
        "windows: [{ requests_per_unit: 300, unit: year }, { requests_per_unit: 200, unit: 3650d }]",
    ),
    ("sliding", "algorithm: sliding_window, requests_per_unit: 200, unit: year"),
    ("log", "algorithm: sliding_log, requests_per_unit: 200, unit: year"),
    ("gcra", "algorithm: gcra, requests_per_unit: 200, unit: year"),
    ("bucket", "algorithm: token_bucket, requests_per_unit: 1, unit: 100d, burst: 200"),
];

#[tokio::test]
async fn one_server_admits_exactly_the_limit_of_every_algorithm() {
    let redis = Redis::start().await;
    exactly_the_limits(&redis.url()).await;
}

#[tokio::test]
async fn a_cluster_admits_exactly_the_limit_of_every_algorithm() {
    let cluster = cluster().await;
    exactly_the_limits(&cluster.url()).await;
}

#[tokio::test]
async fn a_cluster_never_exceeds_any_limit_of_requests_with_three() {
    let cluster = cluster().await;
    let policies = Policies::of(&admitted_only(&LIMITS));
    let fleet = Fleet::start(&policies, &cluster.url()).await;
    // Most limits are in two kinds of requests, so that every denial has charges of others to take
    // back.
    let kinds =
        [["fixed", "sliding", "gcra"], ["fixed", "log", "bucket"], ["sliding", "log", "windows"]];
    let requests = (0..REQUESTS)
        .flat_map(|_| kinds.iter().map(|kind| kind.map(|key| descriptor(&[(key, "")])).to_vec()));
    let admitted = fleet.send(requests.collect()).await;
    for (key, _) in LIMITS {
        let of_key =
            |descriptors: &&Vec<RateLimitDescriptor>| descriptors.iter().any(|one| is(one, key));
        let taken = u32::try_from(admitted.iter().filter(of_key).count()).unwrap();
        assert!(taken <= AMOUNT, "{key}: {taken} of {AMOUNT}");
        // Taking back a charge of a rate leaves the time since that charge, which may be part of a
        // hit.
        let parts = u32::from(matches!(key, "gcra" | "bucket"));
        let is_right =
            |left: &u32| ((AMOUNT - taken).saturating_sub(parts)..=AMOUNT - taken).contains(left);
        becomes(
            &format!("{key}: the remaining hits match the admitted ones"),
            TEST_TIMEOUT,
            || fleet.remaining(key),
            is_right,
        )
        .await;
    }
}

async fn exactly_the_limits(store: &str) {
    let policies = Policies::of(&policy(&LIMITS));
    let fleet = Fleet::start(&policies, store).await;
    let requests =
        (0..REQUESTS).flat_map(|_| LIMITS.map(|(key, _)| vec![descriptor(&[(key, "")])]));
    let admitted = fleet.send(requests.collect()).await;
    for (key, _) in LIMITS {
        let taken = admitted.iter().filter(|descriptors| is(&descriptors[0], key)).count();
        assert_eq!(u32::try_from(taken).unwrap(), AMOUNT, "{key}");
        assert_eq!(fleet.remaining(key).await, 0, "{key}");
    }
}

fn peek(descriptor: RateLimitDescriptor) -> RateLimitDescriptor {
    RateLimitDescriptor { hits_addend: Some(0), ..descriptor }
}

fn is(descriptor: &RateLimitDescriptor, key: &str) -> bool {
    descriptor.entries[0].key == key.as_bytes()
}

fn admitted_only(rules: &[(&str, &str)]) -> String {
    format!("defaults: {{ charge: admitted }}\n{}", policy(rules))
}

/// Processes that share a store.
pub(super) struct Fleet {
    services: Vec<(Tollgate, Client)>,
}

impl Fleet {
    pub(super) async fn start(policies: &Policies, store: &str) -> Self {
        let mut services = Vec::new();
        for number in 0..PROCESSES {
            services.push(serve_one_of(number, policies, store, &[]).await);
        }
        Self { services }
    }

    /// Sends these requests to every process, many at once. Returns those that were admitted.
    pub(super) async fn send(
        &self,
        requests: Vec<Vec<RateLimitDescriptor>>,
    ) -> Vec<Vec<RateLimitDescriptor>> {
        // On a starved machine, a process may be ready before it is connected to all three masters.
        for (_, client) in &self.services {
            for descriptors in requests.iter().take(LIMITS.len()) {
                let peeks: Vec<_> = descriptors.iter().cloned().map(peek).collect();
                let _ = becomes(
                    "it decides",
                    TEST_TIMEOUT,
                    || client.decide(request(peeks.clone())),
                    Result::is_ok,
                )
                .await;
            }
        }
        let mut clients = JoinSet::new();
        for (_, client) in &self.services {
            for first in 0..AT_ONCE {
                let client = client.clone();
                let own = requests.iter().skip(first).step_by(AT_ONCE).cloned();
                let own: Vec<_> = own.collect();
                clients.spawn(async move {
                    let mut admitted = Vec::new();
                    for descriptors in own {
                        let answer = client.decide(request(descriptors.clone())).await.unwrap();
                        admitted.extend((answer.overall_code() == Code::Ok).then_some(descriptors));
                    }
                    admitted
                });
            }
        }
        clients.join_all().await.concat()
    }

    pub(super) async fn remaining(&self, key: &str) -> u32 {
        remaining(&self.services[0].1, key, "").await
    }
}
