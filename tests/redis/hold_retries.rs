//! A reserve of `HoldService` that is sent again with the same ID at the same time is charged once.
//! One that is denied leaves nothing, even if the counters are in several slots of a Cluster, whose
//! charges are taken back. Retries one after another are in the traces.

use futures_util::future::{join, join_all};
use tollgate::grpc::proto::hold::ReserveRequest;
use tollgate::grpc::proto::hold::hold_service_client::HoldServiceClient;
use tollgate::grpc::proto::rate_limit_response::Code;
use tonic::transport::Channel;

use super::{cluster, on_all_stores, policy, remaining, serve};
use crate::support::policy::Policies;
use crate::support::rls::{Client, channel, descriptor};
use crate::support::tollgate::Tollgate;

const LIMIT: u32 = 1_000_000;
const HITS: u32 = 75;
const CALLERS: usize = 24;
const CALLS: usize = 12;

/// Limits of all kinds of holds: records, with marks and without, and permits.
const KINDS: [(&str, &str); 4] = [
    ("fixed", "requests_per_unit: 300, unit: day, hold: { ttl: 10m }"),
    ("log", "algorithm: sliding_log, requests_per_unit: 300, unit: day, hold: { ttl: 10m }"),
    ("rate", "algorithm: gcra, requests_per_unit: 300, unit: day, hold: { ttl: 10m }"),
    ("permits", "algorithm: concurrency, in_flight: 300, hold: { ttl: 10m }"),
];

/// A service, its clients, and the values of its counters.
struct Bench {
    service: Tollgate,
    holds: HoldServiceClient<Channel>,
    client: Client,
}

impl Bench {
    async fn of(service: Tollgate, client: Client) -> Self {
        let holds = HoldServiceClient::new(channel(service.grpc).await);
        Self { service, holds, client }
    }

    async fn reserve(&self, keys: &[&str], value: &str, hits: u32) -> Result<Code, tonic::Code> {
        let reserve = reserve_of(keys, value, hits);
        match self.holds.clone().reserve(reserve).await {
            Ok(answer) => Ok(answer.into_inner().overall_code()),
            Err(status) => Err(status.code()),
        }
    }

    async fn left(&self, key: &str, value: &str) -> u32 {
        remaining(&self.client, key, value).await
    }
}

fn reserve_of(keys: &[&str], value: &str, hits: u32) -> ReserveRequest {
    ReserveRequest {
        domain: "test".to_owned(),
        descriptors: keys.iter().map(|key| descriptor(&[(*key, value)])).collect(),
        id: value.to_owned(),
        hits,
        ..ReserveRequest::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reserve_that_overlaps_its_retry_is_charged_once() {
    for (store, (service, client, _guard)) in (0..).zip(on_all_stores(&KINDS).await) {
        let bench = Bench::of(service, client).await;
        // Another connection, served by another worker.
        let other = HoldServiceClient::new(channel(bench.service.grpc).await);
        for call in 0..20 {
            for (key, _) in KINDS {
                let value = format!("v{call}");
                let keys = [key];
                let first = bench.reserve(&keys, &value, HITS);
                let mut other = other.clone();
                let retry = other.reserve(reserve_of(&keys, &value, HITS));
                let (first, retry) = join(first, retry).await;
                let retry = retry.unwrap().into_inner().overall_code();
                assert_eq!((first, retry), (Ok(Code::Ok), Code::Ok), "{store}: {key}");
                assert_eq!(bench.left(key, &value).await, 300 - HITS, "{store}: {key} {value}");
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_denied_reserve_leaves_nothing_that_a_retry_could_find() {
    let cluster = cluster().await;
    let hold = "unit: day, hold: { ttl: 10m }";
    let limits = [
        ("full", format!("requests_per_unit: 1, {hold}")),
        ("free", format!("requests_per_unit: {LIMIT}, {hold}")),
    ];
    let limits = limits.each_ref().map(|(key, limit)| (*key, limit.as_str()));
    let policies = Policies::of(&policy(&limits));
    let (service, client) = serve(&policies, &cluster.url(), &["--workers", "2"]).await;
    let caller = async |caller: usize| {
        // Often of different workers, each with connections of its own to the store.
        let mut channels =
            [channel(service.grpc).await, channel(service.grpc).await].map(HoldServiceClient::new);
        for call in 0..CALLS {
            let value = format!("{caller}-{call}");
            let mut reserve = async |number: usize, keys: &[&str]| {
                let reserve = reserve_of(keys, &value, HITS);
                channels[number].reserve(reserve).await.unwrap().into_inner().overall_code()
            };
            // More than `full` can ever admit.
            assert_eq!(reserve(0, &["full", "free"]).await, Code::OverLimit, "{value}");
            assert_eq!(reserve(1, &["free"]).await, Code::Ok, "{value}");
        }
    };
    join_all((0..CALLERS).map(caller)).await;
    let values = (0..CALLERS).flat_map(|caller| (0..CALLS).map(move |call| (caller, call)));
    let mut free = Vec::new();
    for (caller, call) in values {
        let value = format!("{caller}-{call}");
        let left = remaining(&client, "free", &value).await;
        if left != LIMIT - HITS {
            free.push(format!("{value}: {left}"));
        }
    }
    assert!(free.is_empty(), "admitted without a charge: {free:?}");
}
