//! Candidates of limits count what they would have denied: in memory, in Redis and in a Cluster.

use serde_json::Value;

use crate::support::policy::Policies;
use crate::support::redis::Redis;
use crate::support::redis::cluster::Cluster;
use crate::support::rls::Client;
use crate::support::tollgate::Tollgate;
use crate::support::web::Web;

const POLICY: &str = "domain: test
descriptors:
  - key: user
    rate_limit: { requests_per_unit: 3, unit: day }
    candidate: { requests_per_unit: 1, unit: day, algorithm: gcra }
";

async fn counts(flags: &[&str]) {
    let policies = Policies::of(POLICY);
    let service = Tollgate::serve_with(policies.path(), flags);
    let web = Web::new(service.http);
    service.wait_until_ready().await;
    let client = Client::connect(service.grpc).await;
    for expected in [true, true, true, false, false] {
        assert_eq!(client.hit("user", "ann").await, expected);
    }
    for (outcome, expected) in
        [("allowed", 1), ("denied", 2), ("denied_already", 2), ("unknown", 0)]
    {
        let name = format!(
            "tollgate_candidate_decisions_total{{from=\"rule\",domain=\"test\",rule=\"user\",outcome=\"{outcome}\"}}"
        );
        assert_eq!(web.metric(&name).await, expected, "{outcome}");
    }
    let body = Web::new(service.admin).get("/api/v1/denials").await.body;
    let page: Value = serde_json::from_str(&body).unwrap();
    let of = |rule: &str| {
        page["denials"].as_array().unwrap().iter().find(|one| one["rule"] == rule).unwrap().clone()
    };
    let limit = of("user");
    let candidate = of("user (candidate)");
    assert_eq!(
        (&candidate["key"], &candidate["count"], &candidate["passed"]),
        (&"user=ann".into(), &2.into(), &2.into())
    );
    assert_eq!((&limit["count"], &limit["passed"]), (&2.into(), &0.into()));
}

#[tokio::test]
async fn a_candidate_counts_what_it_would_have_denied_in_memory() {
    counts(&[]).await;
}

#[tokio::test]
async fn a_candidate_counts_what_it_would_have_denied_in_redis() {
    let redis = Redis::start().await;
    let url = redis.url();
    counts(&["--store", &url, "--store-timeout", "15s", "--replicas", "1"]).await;
}

/// A candidate whose counter is in another slot than the limit's counts its would-be denials.
#[tokio::test]
async fn a_candidate_counts_what_it_would_have_denied_in_a_cluster() {
    let cluster = Cluster::start(3, 0).await;
    counts(&["--store", &cluster.url(), "--store-timeout", "15s", "--replicas", "1"]).await;
}
