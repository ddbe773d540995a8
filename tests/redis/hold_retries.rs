//! A reserve that is denied, and sent again with the same ID: the second one is charged, even if
//! the counters are in several slots of a Cluster, whose charges are taken back.

use futures_util::future::join_all;
use tollgate::grpc::proto::hold::ReserveRequest;
use tollgate::grpc::proto::hold::hold_service_client::HoldServiceClient;
use tollgate::grpc::proto::rate_limit_response::Code;

use super::{cluster, policy, remaining, serve};
use crate::support::policy::Policies;
use crate::support::rls::{channel, descriptor};

const LIMIT: u32 = 1_000_000;
const HITS: u32 = 75;
const CALLERS: usize = 24;
const CALLS: usize = 12;

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
                let descriptors = keys.iter().map(|key| descriptor(&[(*key, &value)])).collect();
                let reserve = ReserveRequest {
                    domain: "test".to_owned(),
                    descriptors,
                    id: value.clone(),
                    hits: HITS,
                    ..ReserveRequest::default()
                };
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
