//! A proxy that admits more than the hits that it holds by RLQS.

use super::{Scene, soon};
use crate::support::policy::Policies;
use crate::support::quotas::QuotaClient;
use crate::support::rls::channel;
use crate::support::tollgate::Tollgate;

const QUOTAS: &str = "
domain: test
descriptors:
  - key: tenant
    rate_limit: { unit: day, requests_per_unit: 1000000, lease: { size: 1%, ttl: 1s, rlqs: { ttl: 15s, size: 1% } } }
";
const BUCKET: [(&str, &str); 1] = [("tenant", "a")];

impl Scene {
    /// Tests a process whose proxy reports more requests than it was lent.
    pub(super) async fn proxy_beyond_its_quota(&self) -> Vec<String> {
        let other = Tollgate::serve(Policies::of(QUOTAS).path());
        self.scrape(&[("tollgate", other.http, "/metrics")]);
        let channel = channel(other.grpc).await;
        let proxy = QuotaClient::open(channel, "test", &BUCKET, 0, 1).await.unwrap();
        let careless = async || {
            proxy.report(&BUCKET, 20_000, 0).await;
            soon().await;
        };
        self.fire(&["TollgateQuotasOverrun"], careless).await
    }
}
