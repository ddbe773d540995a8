//! The module `envoy/` in a real Envoy, in front of its rate limit filter.

mod actions;
mod decisions;
mod faults;
mod reloads;
mod windows;

use std::net::SocketAddr;

use crate::support::envoy::{Envoy, module};
use crate::support::policy::Policies;
use crate::support::root;
use crate::support::tollgate::{Tollgate, lasting_address};
use crate::support::web::{Reply, Web};
use crate::support::{TEST_TIMEOUT, becomes};

/// The descriptor of most tests.
const TENANT: &str = r#"[{"actions": [{"request_headers": {"header_name": "x-tenant", "descriptor_key": "tenant"}}]}]"#;

/// Returns a policy whose limit for each tenant is lent, to clients alone: blocks of the service's
/// own workers would be charged, too.
fn policy(limit: u32, unit: &str, ttl: &str) -> Policies {
    policy_by("fixed_window", limit.into(), unit, ttl)
}

/// Returns the same with another algorithm.
fn policy_by(algorithm: &str, limit: u64, unit: &str, ttl: &str) -> Policies {
    Policies::of(&format!(
        "domain: test\ndescriptors:\n  - key: tenant\n    rate_limit: {{ algorithm: {algorithm}, requests_per_unit: {limit}, unit: {unit}, charge: admitted, lease: {{ size: 10%, ttl: {ttl}, holders: [client] }} }}\n"
    ))
}

/// An Envoy with the module.
struct InsideEnvoy(Envoy);

impl InsideEnvoy {
    async fn start(service: SocketAddr, rate_limits: &str) -> Self {
        Self::start_by(&template(), service, rate_limits).await
    }

    async fn start_by(template: &str, service: SocketAddr, rate_limits: &str) -> Self {
        let port = service.port().to_string();
        let module = module();
        let values = [
            ("TOLLGATE", port.as_str()),
            ("MODULE", module.to_str().unwrap()),
            ("RATE_LIMITS", rate_limits),
            ("FAILURE_MODE_DENY", "true"),
        ];
        let flags = ["--concurrency", "2", "--drain-time-s", "1"];
        Self(Envoy::start_with_flags(&flags, template, &values).await)
    }

    async fn send(&self, tenant: &str) -> Reply {
        self.0.edge.get_with("/", &[("x-tenant", tenant.as_bytes())]).await
    }

    /// Sends a request that only the rate limit filter decides.
    async fn send_plain(&self, tenant: &str) -> Reply {
        self.0.edge.get_with("/plain", &[("x-tenant", tenant.as_bytes())]).await
    }

    /// Returns a statistic of the module.
    async fn stat(&self, name: &str) -> u64 {
        self.0.counter(&format!("tollgate.{name}")).await
    }

    /// Sends requests until the module decides them.
    async fn heat(&self, tenant: &str) {
        let sends = || async {
            self.send(tenant).await;
            self.stat("decided").await
        };
        becomes("the module decides", TEST_TIMEOUT, sends, |decided| *decided > 0).await;
    }
}

fn template() -> String {
    std::fs::read_to_string(root().join("tests/inside/envoy.yaml")).unwrap()
}

/// Waits until all lent hits have been returned, and returns how many of them were used.
async fn all_returned(service: &Web) -> u64 {
    let metric = |name: &str| {
        let name = format!(r#"tollgate_loan_hits_{name}_total{{domain="test",rule="tenant"}}"#);
        async move { service.metric(&name).await }
    };
    let hits = || async { [metric("used").await, metric("returned").await, metric("lent").await] };
    let are_back = |hits: &[u64; 3]| hits[0] + hits[1] == hits[2];
    becomes("all hits are returned", TEST_TIMEOUT, hits, are_back).await[0]
}

/// Starts a service and an Envoy.
async fn start(policies: &Policies) -> (Tollgate, InsideEnvoy) {
    let service = Tollgate::serve_with(policies.path(), &["--grpc-listen", &lasting_address()]);
    let envoy = InsideEnvoy::start(service.grpc, TENANT).await;
    (service, envoy)
}
