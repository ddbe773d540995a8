//! Concurrent reserves by several processes, of which exactly those that fit are admitted. See also
//! `hold_faults`: limits that stay exact while processes are killed.
//!
//! Amounts are per year, so that no hits become available meanwhile and no window ends except on
//! one night of the year.

use tokio::task::JoinSet;
use tollgate::grpc::proto::rate_limit_response::Code;

use super::{cluster, policy, serve_one_of};
use crate::support::policy::Policies;
use crate::support::redis::Redis;
use crate::support::rls::descriptor;

const PROCESSES: usize = 8;

const LIMITS: [(&str, &str); 6] = [
    ("fixed", "requests_per_unit: 500, unit: year"),
    (
        "windows",
        "windows: [{ requests_per_unit: 500, unit: year }, { requests_per_unit: 500, unit: 3650d }]",
    ),
    ("sliding", "algorithm: sliding_window, requests_per_unit: 500, unit: year"),
    ("log", "algorithm: sliding_log, requests_per_unit: 500, unit: year"),
    ("gcra", "algorithm: gcra, requests_per_unit: 500, unit: year"),
    ("bucket", "algorithm: token_bucket, requests_per_unit: 1, unit: 10d, burst: 500"),
];

#[tokio::test]
async fn of_20_concurrent_reserves_of_75_against_500_exactly_6_are_admitted() {
    let redis = Redis::start().await;
    exactly_six(&redis.url()).await;
    exactly_six(&cluster().await.url()).await;
}

/// Reserves 75 of 500 by 20 requests at once, from all processes.
async fn exactly_six(store: &str) {
    let limits = LIMITS.map(|(key, limit)| (key, format!("{limit}, hold: {{ ttl: 1h }}")));
    let limits: Vec<_> = limits.iter().map(|(key, limit)| (*key, limit.as_str())).collect();
    let policies = Policies::of(&policy(&limits));
    let mut services = Vec::new();
    for number in 0..PROCESSES {
        services.push(serve_one_of(number, &policies, store, &[]).await);
    }
    for (key, _) in limits {
        let mut reserves = JoinSet::new();
        for number in 0..20 {
            let id = number.to_string();
            let mut reserve = descriptor(&[(key, "a"), ("tollgate.reserve", &id)]);
            reserve.hits_addend = Some(75);
            let (_, client) = &services[number % PROCESSES];
            let client = client.clone();
            reserves.spawn(async move { client.status(reserve).await.code() == Code::Ok });
        }
        let admitted = reserves.join_all().await.into_iter().filter(|is_ok| *is_ok).count();
        assert_eq!(admitted, 6, "{key}");
        assert_eq!(super::remaining(&services[0].1, key, "a").await, 50, "{key}");
    }
}
