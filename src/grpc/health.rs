//! gRPC health under the three service names that clients query.

use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

/// `""` for Kubernetes, `ratelimit` for users of envoyproxy/ratelimit, and the service's full name.
const NAMES: [&str; 3] = ["", "ratelimit", "envoy.service.ratelimit.v3.RateLimitService"];

/// The status that the health service reports for all names.
#[derive(Clone, Debug)]
pub struct Health(HealthReporter);

impl Health {
    /// Creates a status of not serving.
    pub async fn new() -> Self {
        let health = Self(HealthReporter::new());
        health.set_serving(false).await;
        health
    }

    /// Sets the status of every name and notifies open watches.
    pub async fn set_serving(&self, serving: bool) {
        let status = if serving { ServingStatus::Serving } else { ServingStatus::NotServing };
        for name in NAMES {
            self.0.set_service_status(name, status).await;
        }
    }

    /// Ends all open watches, which would otherwise delay closing their connections.
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
