//! Envoy clusters without `authority`, for which Envoy sends the cluster's name as `:authority`.

use crate::support::envoy::Envoy;
use crate::support::root;
use crate::support::tollgate::Tollgate;

#[tokio::test]
async fn a_cluster_name_of_istio_is_accepted() {
    limits_by("outbound|8081||ratelimit.default.svc.cluster.local").await;
}

#[tokio::test]
async fn a_cluster_name_of_envoy_gateway_is_accepted() {
    limits_by("ratelimit/envoy-gateway-system/grpc").await;
}

#[tokio::test]
async fn a_cluster_name_of_other_bytes_is_accepted() {
    limits_by("rate limit @ 100 % [1").await;
}

/// Checks a limit of 2 with a cluster of this name. Envoy admits requests if its calls fail.
async fn limits_by(cluster: &str) {
    let tollgate = Tollgate::serve(&root().join("tests/envoy/policy.yaml"));
    let port = tollgate.grpc.port().to_string();
    let edge = std::fs::read_to_string(root().join("tests/envoy/edge.yaml")).unwrap();
    let named = edge.replace("name: tollgate\n", &format!("name: '{cluster}'\n"));
    let named = named.replace("cluster_name: tollgate }", &format!("cluster_name: '{cluster}' }}"));
    assert_eq!(
        named.matches(cluster).count(),
        3,
        "the filter, the cluster and its endpoints name it"
    );
    let envoy =
        Envoy::start_by(&named, &[("TOLLGATE", &port), ("FAILURE_MODE_DENY", "false")]).await;
    let mut statuses = Vec::new();
    for _ in 0..4 {
        statuses.push(envoy.edge.get_with("/agent", &[("x-agent", b"ann")]).await.status);
    }
    assert_eq!(statuses, [200, 200, 429, 429]);
}
