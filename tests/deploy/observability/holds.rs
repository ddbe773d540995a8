//! Callers of limits with holds that make every alert about holds fire.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Scene, soon};
use crate::support::policy::Policies;
use crate::support::rls::{Client, descriptor, request};
use crate::support::tollgate::Tollgate;

const HOLDS: &str = "
domain: tokens
descriptors:
  - key: tenant
    rate_limit: { unit: day, requests_per_unit: 1000000, hold: { ttl: 1h } }
";

impl Scene {
    /// Tests a process with in-memory counters whose callers repeat IDs, reserve too little, forget
    /// to settle, and commit without a reserve.
    pub(super) async fn holds_without_care(&self) -> Vec<String> {
        let other = Tollgate::serve(Policies::of(HOLDS).path());
        self.scrape(&[("tollgate", other.http, "/metrics")]);
        let client = Client::connect(other.grpc).await;
        let number = AtomicUsize::new(0);
        let careless = async || {
            let number = number.fetch_add(1, Ordering::Relaxed).to_string();
            for (action, id) in [
                ("tollgate.reserve", number.as_str()),
                ("tollgate.reserve", &number),
                ("tollgate.reserve", &number),
                ("tollgate.commit", &number),
                ("tollgate.commit", "unknown"),
            ] {
                let hits = if action == "tollgate.commit" { 9 } else { 1 };
                let mut message = request(vec![descriptor(&[("tenant", "a"), (action, id)])]);
                message.domain = "tokens".to_owned();
                message.descriptors[0].hits_addend = Some(hits);
                // An ID that was committed lately is known, and its cost is not charged again.
                if id == "unknown" {
                    message.descriptors[0].entries[1].value = format!("unknown {number}").into();
                }
                client.decide(message).await.unwrap();
            }
            soon().await;
        };
        let holds = [
            "TollgateHoldsUnknown",
            "TollgateHoldsOverrun",
            "TollgateHoldIdsRepeated",
            "TollgateHoldsExpire",
        ];
        self.fire(&holds, careless).await
    }
}
