//! The readiness of a service, which all its probes report alike: two paths over HTTP, three
//! service names over gRPC.

use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::rls::channel;
use super::tollgate::Tollgate;
use super::web::Web;
use super::{TEST_TIMEOUT, becomes};

/// The service names of health checks.
pub const NAMES: [&str; 3] = ["", "ratelimit", "envoy.service.ratelimit.v3.RateLimitService"];

/// All readiness probes of a service.
pub struct Probes {
    pub web: Web,
    health: HealthClient<Channel>,
}

impl Probes {
    /// Returns the probes of a service.
    pub async fn of(service: &Tollgate) -> Self {
        Self { web: Web::new(service.http), health: HealthClient::new(channel(service.grpc).await) }
    }

    /// Returns the readiness and the reason. The probes are queried in sequence, so this waits
    /// until they agree.
    pub async fn agree(&self) -> (bool, String) {
        let probes = becomes(
            "all probes agree",
            TEST_TIMEOUT,
            || self.query(),
            |(probes, _)| probes.iter().all(|one| *one == probes[0]),
        );
        let (probes, reason) = probes.await;
        (probes[0], reason)
    }

    async fn query(&self) -> (Vec<bool>, String) {
        let readyz = self.web.get("/readyz").await;
        let healthcheck = self.web.get("/healthcheck").await;
        assert!(
            [(200, "OK"), (500, "")].contains(&(healthcheck.status, healthcheck.body.as_str())),
            "{healthcheck:?}"
        );
        let mut probes = vec![readyz.status == 200, healthcheck.status == 200];
        for name in NAMES {
            let answer = self
                .health
                .clone()
                .check(HealthCheckRequest { service: name.to_owned() })
                .await
                .unwrap();
            probes.push(answer.into_inner().status() == ServingStatus::Serving);
        }
        (probes, readyz.body)
    }
}
