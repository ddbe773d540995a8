//! A proxy that distributes keys over several servers: a real Envoy with `redis_proxy` in front of
//! three.

use std::sync::atomic::{AtomicU32, Ordering};

use tollgate::grpc::proto::rate_limit_response::Code;

use super::{metric, policy, serve};
use crate::support::envoy::Envoy;
use crate::support::policy::Policies;
use crate::support::redis::Redis;
use crate::support::rls::{descriptor, request};
use crate::support::{TEST_TIMEOUT, becomes};

const PROXY: &str = r#"
admin: { address: { socket_address: { address: 127.0.0.1, port_value: 0 } } }
static_resources:
  listeners:
    - name: edge
      address: { socket_address: { address: 127.0.0.1, port_value: 0 } }
      filter_chains:
        - filters:
            - name: envoy.filters.network.redis_proxy
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.redis_proxy.v3.RedisProxy
                stat_prefix: redis
                settings: { op_timeout: 5s }
                prefix_routes: { catch_all_route: { cluster: redis } }
  clusters:
    - name: redis
      type: STATIC
      lb_policy: MAGLEV
      load_assignment:
        cluster_name: redis
        endpoints:
          - lb_endpoints:
              - endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: ${FIRST} } } }
              - endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: ${SECOND} } } }
              - endpoint: { address: { socket_address: { address: 127.0.0.1, port_value: ${THIRD} } } }
"#;
const RUNS: usize = 20;

/// A proxy in front of three servers.
pub(super) struct Sharded {
    servers: [Redis; 3],
    proxy: Envoy,
}

impl Sharded {
    pub(super) async fn start() -> Self {
        let servers = [Redis::start().await, Redis::start().await, Redis::start().await];
        let ports = servers.each_ref().map(|server| server.address.port().to_string());
        let [first, second, third] = &ports;
        let proxy =
            Envoy::start_by(PROXY, &[("FIRST", first), ("SECOND", second), ("THIRD", third)]).await;
        Self { servers, proxy }
    }

    pub(super) fn url(&self) -> String {
        format!("redis://{}", self.proxy.edge.server)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_sharding_proxy_admits_no_request_more() {
    let sharded = Sharded::start().await;
    let limits = [
        ("path", "requests_per_unit: 1000, unit: day"),
        ("user", "requests_per_unit: 3, unit: day"),
        ("group", "algorithm: sliding_window, requests_per_unit: 1000, unit: day"),
    ];
    let policies = Policies::of(&policy(&limits));
    let (service, client) = serve(&policies, &sharded.url(), &[]).await;
    for run in 0..RUNS {
        let user = format!("ann{run}");
        let call = async |number: usize| {
            let path = format!("/{run}/{number}");
            let descriptors = vec![
                descriptor(&[("path", &path)]),
                descriptor(&[("user", &user)]),
                descriptor(&[("group", "all")]),
            ];
            client.clone().decide(request(descriptors)).await.unwrap().overall_code()
        };
        let codes = futures_util::future::join_all((0..12).map(call)).await;
        assert_eq!(
            codes.iter().filter(|code| **code == Code::Ok).count(),
            3,
            "run {run}: {codes:?}"
        );
    }
    // Charges of denied requests are taken back after their answers.
    let peeks = AtomicU32::new(0);
    let left = async || {
        let one = request(vec![descriptor(&[("group", "all")])]);
        let left = client.clone().decide(one).await.unwrap().statuses[0].limit_remaining;
        left + 1 + peeks.fetch_add(1, Ordering::Relaxed)
    };
    let admitted = u32::try_from(RUNS * 3).unwrap();
    becomes("denied hits are not counted", TEST_TIMEOUT, left, |left| *left == 1_000 - admitted)
        .await;
    for server in &sharded.servers {
        let redis::Value::Int(keys) = server.command(&["DBSIZE"]).await else { panic!("a number") };
        assert!(keys > 20, "{keys} keys at one of three");
    }
    drop(service);
}

#[tokio::test]
async fn denials_that_a_take_back_may_void_are_not_cached_behind_a_sharding_proxy() {
    let sharded = Sharded::start().await;
    let policies =
        Policies::of(&policy(&[("user", "requests_per_unit: 1, unit: day, charge: admitted")]));
    let (service, client) = serve(&policies, &sharded.url(), &[]).await;
    for wanted in [Code::Ok, Code::OverLimit, Code::OverLimit] {
        assert_eq!(client.status(descriptor(&[("user", "ann")])).await.code(), wanted);
    }
    assert_eq!(metric(&service, "tollgate_deny_cache_hits_total").await, 0);
}
