//! gRPC health under the three names that callers ask for, all honest.

use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

/// `""` for Kubernetes, `ratelimit` for users of envoyproxy/ratelimit, and the service's own name.
const NAMES: [&str; 3] = ["", "ratelimit", "envoy.service.ratelimit.v3.RateLimitService"];

/// What the health service says, settable from one place.
#[derive(Clone, Debug)]
pub struct Health(HealthReporter);

impl Health {
    /// Not serving, until told otherwise.
    pub async fn new() -> Self {
        let health = Self(HealthReporter::new());
        health.set(false).await;
        health
    }

    /// Serving or not, under every name; open watches are told.
    pub async fn set(&self, serving: bool) {
        let status = if serving { ServingStatus::Serving } else { ServingStatus::NotServing };
        for name in NAMES {
            self.0.set_service_status(name, status).await;
        }
    }

    /// Ends every open watch, which would otherwise hold up the end of its connection.
    pub async fn end_watches(&self) {
        let mut reporter = self.0.clone();
        for name in NAMES {
            reporter.clear_service_status(name).await;
        }
    }

    pub(super) fn reporter(&self) -> HealthReporter {
        self.0.clone()
    }
}
