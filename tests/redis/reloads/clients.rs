//! Processes whose policies change one by one, and their clients.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::join_all;
use tollgate::grpc::proto::RateLimitDescriptor;
use tollgate::grpc::proto::rate_limit_response::Code;

use super::super::serve_one_of;
use super::ledger::Ledger;
use super::rules::{Counts, RULES, Rule, policy};
use crate::support::policy::Policies;
use crate::support::random::Random;
use crate::support::rls::{Client, descriptor, request};
use crate::support::tollgate::Tollgate;
use crate::support::web::Web;
use crate::support::{TEST_TIMEOUT, becomes};

/// Number of clients of each process.
pub(super) const CLIENTS: usize = 64;
/// Connections that they share: a lease belongs to the worker that has the connection.
const CONNECTIONS: usize = 2;
/// Percentage of requests that refund hits; some of them also take hits.
const REFUNDS: usize = 20;

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
        let peek = |rule: &Rule| RateLimitDescriptor {
            hits_addend: Some(0),
            ..descriptor(&[(rule.key, "")])
        };
        let peeks: Vec<_> = RULES.iter().map(peek).collect();
        for client in &replica.clients {
            let _ = becomes(
                "it decides",
                TEST_TIMEOUT,
                || client.decide(request(peeks.clone())),
                Result::is_ok,
            )
            .await;
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
    pub(super) async fn hit(&self, key: &str, value: &str, hits: u32) -> bool {
        self.clients[0].status(of_hits(key, value, hits)).await.code() == Code::Ok
    }
}

/// Takes hits until `ended` is set, and refunds some of those admitted to this client, through any
/// process.
pub(super) async fn send_until(
    ended: Arc<AtomicBool>,
    replicas: Arc<Vec<Replica>>,
    number: usize,
    ledger: Arc<Ledger>,
    mut random: Random,
) {
    // Admitted, and not refunded.
    let mut own: Vec<(usize, u32)> = Vec::new();
    while !ended.load(Ordering::Relaxed) {
        let mut replica = &replicas[number % replicas.len()];
        let mut descriptors = Vec::new();
        let mut wanted = Vec::new();
        let gives_back = !own.is_empty() && random.percent(REFUNDS);
        if gives_back {
            let (rule, hits) = own.swap_remove(random.below(own.len()));
            ledger.give_back(rule, hits);
            let charge = of_hits(RULES[rule].key, ledger.value(), hits);
            descriptors.push(RateLimitDescriptor { is_negative_hits: true, ..charge });
            replica = &replicas[random.below(replicas.len())];
        }
        if !gives_back || random.percent(50) {
            wanted = some_hits(&mut random, &ledger);
            let charges =
                wanted.iter().map(|(rule, hits)| of_hits(RULES[*rule].key, ledger.value(), *hits));
            descriptors.extend(charges);
        }
        let client = &replica.clients[number / replicas.len() % CONNECTIONS];
        let hits: u64 = descriptors.iter().filter_map(|descriptor| descriptor.hits_addend).sum();
        let answer = client.decide(request(descriptors)).await;
        let Ok(answer) = answer else {
            // On a starved machine, a server may be silent for so long that it is considered dead.
            ledger.fail(hits);
            continue;
        };
        let is_admitted = answer.overall_code() == Code::Ok;
        ledger.answer(!is_admitted);
        if is_admitted {
            wanted.iter().for_each(|(rule, hits)| ledger.admit(*rule, *hits));
            own.extend(
                wanted.into_iter().filter(|(rule, _)| RULES[*rule].counts != Counts::Admitted),
            );
        }
    }
}

/// Returns hits of one rule in most cases, and of up to three in others.
fn some_hits(random: &mut Random, ledger: &Ledger) -> Vec<(usize, u32)> {
    let count = if random.percent(70) { 1 } else { 2 + random.below(2) };
    let first = if random.percent(75) { ledger.hot() } else { random.below(RULES.len()) };
    let most = ledger.most_hits();
    let hits = |random: &mut Random| {
        let most = if random.percent(60) { (most / 50).max(1) } else { most };
        1 + u32::try_from(random.below(most as usize)).unwrap()
    };
    // Usually different rules, since 5 and their number have no common divisor.
    let step = if random.percent(90) { 5 } else { 0 };
    (0..count).map(|next| ((first + step * next) % RULES.len(), hits(random))).collect()
}

fn of_hits(key: &str, value: &str, hits: u32) -> RateLimitDescriptor {
    RateLimitDescriptor { hits_addend: Some(hits.into()), ..descriptor(&[(key, value)]) }
}
