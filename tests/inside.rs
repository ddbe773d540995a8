//! The module `envoy/` in a real Envoy, in front of its rate limit filter.

mod decisions;
mod faults;
mod reloads;
mod windows;

use std::net::SocketAddr;

use crate::support::envoy::{Envoy, module};
use crate::support::policy::Policies;
use crate::support::root;
use crate::support::tollgate::Tollgate;
use crate::support::web::Reply;
use crate::support::{TEST_TIMEOUT, becomes};

/// The descriptor of most tests.
const TENANT: &str = r#"[{"actions": [{"request_headers": {"header_name": "x-tenant", "descriptor_key": "tenant"}}]}]"#;

/// Returns a policy whose limit for each tenant is lent.
fn policy(limit: u32, unit: &str, ttl: &str) -> Policies {
    Policies::of(&format!(
        "domain: test\ndescriptors:\n  - key: tenant\n    rate_limit: {{ requests_per_unit: {limit}, unit: {unit}, charge: admitted, lease: {{ size: 10%, ttl: {ttl}, holders: [process, client] }} }}\n"
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

/// Starts a service and an Envoy.
async fn start(policies: &Policies) -> (Tollgate, InsideEnvoy) {
    let service = Tollgate::serve(policies.path());
    let envoy = InsideEnvoy::start(service.grpc, TENANT).await;
    (service, envoy)
}
