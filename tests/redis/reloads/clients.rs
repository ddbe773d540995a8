//! Processes whose policies change one by one, and clients that charge and refund hits.

use futures_util::future::join_all;
use tollgate::grpc::proto::RateLimitDescriptor;
use tollgate::grpc::proto::rate_limit_response::Code;
use tollgate::verify::history::{CallAction, HoldEnd};
use tollgate::verify::service::{
    DescriptorDecision, ServiceDecision, VerifiedService, VerifyRequest,
};

use super::super::serve_one_of;
use super::rules::{RULES, policy};
use crate::support::policy::Policies;
use crate::support::rls::{Client, descriptor, request};
use crate::support::tollgate::Tollgate;
use crate::support::web::Web;
use crate::support::{TEST_TIMEOUT, becomes};

/// Connections of the clients of a process: a lease belongs to the worker that has the connection.
const CONNECTIONS: usize = 2;

/// A process with policy files of its own.
pub(super) struct Replica {
    policies: Policies,
    clients: Vec<Client>,
    http: Web,
    admin: Web,
    _service: Tollgate,
}

impl Replica {
    pub(super) async fn start(store: &str, number: usize) -> Self {
        let policies = Policies::of(&policy(100));
        let flags: &[&str] =
            if number.is_multiple_of(2) { &["--deny-cache-max", "0s"] } else { &[] };
        let (service, client) = serve_one_of(number, &policies, store, flags).await;
        let more = join_all((1..CONNECTIONS).map(|_| Client::connect(service.grpc))).await;
        let clients = std::iter::once(client).chain(more).collect();
        let http = Web::new(service.http);
        let admin = Web::new(service.admin);
        let replica = Self { policies, clients, http, admin, _service: service };
        // On a starved machine, a process may be ready before it is connected to all three masters.
        let peeks: Vec<_> = RULES.iter().map(|rule| of_hits(rule.key, "", 0)).collect();
        for client in &replica.clients {
            let decide = || client.decide(request(peeks.clone()));
            let _ = becomes("it decides", TEST_TIMEOUT, decide, Result::is_ok).await;
        }
        replica
    }

    /// Reloads the policy with this amount.
    pub(super) async fn reload(&self, amount: u32) {
        self.policies.write("policy.yaml", &policy(amount));
        let reply = self
            .admin
            .send_with("POST", "/api/v1/policies/reload", &[("x-tollgate", "reload")], "")
            .await;
        assert_eq!(reply.status, 200, "{}", reply.body);
    }

    pub(super) async fn metrics(&self) -> String {
        self.http.get("/metrics").await.body
    }

    pub(super) async fn remaining(&self, key: &str, value: &str) -> u32 {
        super::super::remaining(&self.clients[0], key, value).await
    }

    /// Takes hits. Returns `true` if they were admitted.
    pub(super) async fn hit(&self, key: &str, value: &str, hits: u64) -> bool {
        self.clients[0].status(of_hits(key, value, hits)).await.code() == Code::Ok
    }

    /// Returns a client of one of its connections.
    pub(super) fn client(&self, number: usize, hits: TakenHits) -> RefundingClient {
        RefundingClient { client: self.clients[number % CONNECTIONS].clone(), hits }
    }
}

fn of_hits(key: &str, value: &str, hits: u64) -> RateLimitDescriptor {
    RateLimitDescriptor { hits_addend: Some(hits), ..descriptor(&[(key, value)]) }
}

/// The hits of requests: up to a part of a limit, where `verify` takes one or two.
#[derive(Clone, Copy)]
pub(super) struct TakenHits {
    /// Most hits that a descriptor takes.
    pub(super) most: u64,
}

impl TakenHits {
    /// Returns the hits that a request of `verify` takes.
    pub(super) fn of(self, action: CallAction, hits: u64) -> u64 {
        if let CallAction::Reserve { hold } = action {
            self.of_hold(hold)
        } else if action.is_charge() {
            hits * self.most.div_ceil(2)
        } else {
            0
        }
    }

    /// Returns the hits that a request refunds: all those of a hold, unless it is settled.
    pub(super) fn refunded(self, action: CallAction) -> Option<u64> {
        let CallAction::End { hold, by } = action else { return None };
        (by != HoldEnd::Settle).then(|| self.of_hold(hold))
    }

    /// Returns the hits of a hold: few of most of them.
    fn of_hold(self, hold: usize) -> u64 {
        let hold = u64::try_from(hold).unwrap();
        let most = if hold % 5 < 3 { (self.most / 50).max(1) } else { self.most };
        1 + hold * 7_919 % most
    }
}

/// A client without holds: it charges the hits of a reserve, and refunds those that an end gives
/// back, through any process.
pub(super) struct RefundingClient {
    client: Client,
    hits: TakenHits,
}

impl VerifiedService for RefundingClient {
    type Error = tonic::Status;

    async fn decide(
        &mut self,
        of: VerifyRequest,
        _: std::time::Duration,
    ) -> Result<ServiceDecision, tonic::Status> {
        let refunded = self.hits.refunded(of.action);
        if refunded.is_none() && !of.action.is_charge() {
            let descriptors = vec![DescriptorDecision::default(); of.descriptors.len()];
            return Ok(ServiceDecision { is_denied: false, descriptors });
        }
        let hits = refunded.unwrap_or_else(|| self.hits.of(of.action, of.hits));
        let descriptors = of.descriptors.iter().map(|entries| RateLimitDescriptor {
            is_negative_hits: refunded.is_some(),
            ..of_hits(&entries[0].0, &entries[0].1, hits)
        });
        let answer = self.client.decide(request(descriptors.collect())).await?;
        Ok((&answer).into())
    }
}
