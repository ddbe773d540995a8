//! A reserve of `HoldService` that is sent again with the same ID: it is charged once, whether it
//! overlaps the first attempt, or completes one whose answer was lost. One that is denied leaves
//! nothing, even if the counters are in several slots of a Cluster, whose charges are taken back.

use futures_util::future::{join, join_all};
use tollgate::grpc::proto::hold::hold_service_client::HoldServiceClient;
use tollgate::grpc::proto::hold::{CancelRequest, CommitRequest, ReserveRequest};
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

#[tokio::test]
async fn a_retry_completes_or_reverses_what_an_earlier_attempt_left() {
    for (store, (service, client, _guard)) in (0..).zip(on_all_stores(&KINDS).await) {
        let bench = Bench::of(service, client).await;
        for (key, other) in
            [("fixed", "log"), ("log", "rate"), ("rate", "permits"), ("permits", "fixed")]
        {
            let of = |name: &str| format!("{name}-{key}");
            // A reply that is lost leaves one of the two charged, as a reserve of that one does.
            let completed = of("completed");
            assert_eq!(bench.reserve(&[key], &completed, HITS).await, Ok(Code::Ok));
            for _ in 0..2 {
                let retry = bench.reserve(&[key, other], &completed, HITS).await;
                assert_eq!(retry, Ok(Code::Ok), "{store}: {key}, {other}");
                let left = [bench.left(key, &completed).await, bench.left(other, &completed).await];
                assert_eq!(left, [300 - HITS; 2], "{store}: {key}, {other}");
            }
            let conflict = bench.reserve(&[other, key], &completed, HITS + 1).await;
            assert_eq!(conflict, Err(tonic::Code::AlreadyExists), "{store}: {key}, {other}");

            let reversed = of("reversed");
            let blocker = ReserveRequest { id: "b".into(), ..reserve_of(&[other], &reversed, 300) };
            bench.holds.clone().reserve(blocker).await.unwrap();
            for is_left in [false, true] {
                if is_left {
                    assert_eq!(bench.reserve(&[key], &reversed, HITS).await, Ok(Code::Ok));
                }
                let denied = bench.reserve(&[key, other], &reversed, HITS).await;
                assert_eq!(denied, Ok(Code::OverLimit), "{store}: {key}, {other}");
                assert_eq!(bench.left(key, &reversed).await, 300, "{store}: {key}, {other}");
            }

            // Nothing is charged if the hold has other hits.
            let conflicting = of("conflicting");
            assert_eq!(bench.reserve(&[key], &conflicting, HITS).await, Ok(Code::Ok));
            let conflict = bench.reserve(&[key, other], &conflicting, HITS + 1).await;
            assert_eq!(conflict, Err(tonic::Code::AlreadyExists), "{store}: {key}, {other}");
            let left = [bench.left(key, &conflicting).await, bench.left(other, &conflicting).await];
            assert_eq!(left, [300 - HITS, 300], "{store}: {key}, {other}");
        }
    }
}

#[tokio::test]
async fn as_many_holds_end_as_a_request_took_at_one_counter() {
    for (store, (service, client, _guard)) in (0..).zip(on_all_stores(&KINDS).await) {
        let bench = Bench::of(service, client).await;
        for (key, _) in KINDS {
            let twice = [key, key];
            for _ in 0..2 {
                assert_eq!(bench.reserve(&twice, "cancelled", HITS).await, Ok(Code::Ok));
                assert_eq!(bench.reserve(&twice, "committed", HITS).await, Ok(Code::Ok));
            }
            let ReserveRequest { domain, descriptors, id, .. } = reserve_of(&twice, "cancelled", 0);
            bench.holds.clone().cancel(CancelRequest { domain, descriptors, id }).await.unwrap();
            assert_eq!(bench.left(key, "cancelled").await, 300, "{store}: {key}");
            let ReserveRequest { domain, descriptors, id, .. } = reserve_of(&twice, "committed", 0);
            let commit = CommitRequest { domain, descriptors, id, hits: 70 };
            for _ in 0..2 {
                bench.holds.clone().commit(commit.clone()).await.unwrap();
                let left = bench.left(key, "committed").await;
                assert_eq!(left, if key == "permits" { 300 } else { 160 }, "{store}: {key}");
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
