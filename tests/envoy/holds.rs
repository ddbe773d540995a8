//! `deploy/envoy/llm.yaml`, `llm-clamp.yaml` and `in-flight.yaml`, unchanged except for ports and
//! timeouts, before a model that counts its tokens: at the end of every kind of stream, tollgate
//! has charged the cost that the model has counted, or the estimate if the model reported no cost.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::task::JoinSet;
use tollgate::grpc::proto::{RateLimitDescriptor, RateLimitRequest};

use crate::support::envoy::{Envoy, on_free_ports};
use crate::support::model::{Model, Prompt};
use crate::support::policy::Policies;
use crate::support::rls::{Client, descriptor, request};
use crate::support::root;
use crate::support::tollgate::Tollgate;
use crate::support::web::Web;
use crate::support::{TEST_TIMEOUT, becomes};

/// The limit of `deploy/envoy/policies/llm.yaml`.
const BUDGET: u64 = 10_000;
const TENANT: &str = "x-tenant: ann";

#[tokio::test]
async fn committed_tokens_equal_those_that_the_model_counted() {
    let edge = Edge::start("llm").await;
    for (body, status) in [
        (json!({"max_tokens": 400, "cost": [20, 180]}), 200),
        (json!({"max_tokens": 400, "cost": [30, 270], "stream": true}), 200),
        (json!({"max_completion_tokens": 9, "cost": [1, 8]}), 200),
        // Without a maximum, the default of the configuration is reserved.
        (json!({"cost": [7, 33], "stream": true}), 200),
        // More than reserved: an overrun.
        (json!({"max_tokens": 5, "cost": [500, 5]}), 200),
        (json!({"max_tokens": 400, "end": "busy"}), 503),
        (json!({"max_tokens": 400, "end": "plain"}), 503),
    ] {
        assert_eq!(edge.status(&body).await, status, "{body}");
        let tokens = edge.model.tokens().await;
        edge.has_left(BUDGET - tokens, &body).await;
    }
    assert_eq!(edge.model.tokens().await, 200 + 300 + 9 + 40 + 505);
}

#[tokio::test]
async fn an_unknown_cost_stays_charged_as_estimated() {
    let edge = Edge::start("llm").await;
    let mut left = BUDGET;
    for (end, status) in [("reset", 200), ("silent", 200)] {
        let body = json!({"max_tokens": 400, "stream": true, "cost": [1, 2], "end": end});
        assert_eq!(edge.status(&body).await, status);
        left -= estimate(400, &body);
        edge.has_left(left, &body).await;
    }
    let body = json!({"max_tokens": 400, "stream": true, "end": "wait"});
    let client = edge.send(&body).await;
    edge.model.has_open(1).await;
    drop(client);
    edge.model.has_open(0).await;
    left -= estimate(400, &body);
    edge.has_left(left, &body).await;
    assert_eq!(edge.model.tokens().await, 0);
}

#[tokio::test]
async fn concurrent_streams_never_pass_the_budget() {
    let edge = Edge::start("llm").await;
    let body = json!({"max_tokens": 1000, "stream": true, "cost": [20, 80], "end": "wait"});
    let fitting = BUDGET / estimate(1000, &body);
    let mut clients = Vec::new();
    for _ in 0..20 {
        clients.push(tokio::spawn(edge.send(&body).await.status()));
    }
    edge.model.has_open(fitting).await;
    // A denial reserves no hits, so the remaining hits do not change.
    edge.has_left(BUDGET - fitting * estimate(1000, &body), &body).await;
    let denied = || async { clients.iter().filter(|client| client.is_finished()).count() };
    becomes("the others are denied", TEST_TIMEOUT, denied, |denied| *denied == 11).await;
    edge.model.go().await;
    let mut admitted = 0;
    for client in clients {
        admitted += u64::from(client.await.unwrap() == 200);
    }
    assert_eq!((admitted, edge.model.ledger().await["most"].as_u64()), (fitting, Some(fitting)));
    edge.has_left(BUDGET - fitting * 100, &body).await;
}

#[tokio::test]
async fn a_client_does_not_choose_the_id_of_its_hold() {
    let edge = Edge::start("llm").await;
    let body = json!({"max_tokens": 4, "cost": [1, 2]}).to_string();
    for _ in 0..2 {
        let lines = [TENANT, "x-hold-id: mine", "X-Hold-ID: other", "accept-encoding: gzip"];
        assert_eq!(Prompt::send(edge.address(), &lines, &body).await.status().await, 200);
    }
    let ledger = edge.model.ledger().await;
    let ids: Vec<&Value> =
        ledger["requests"].as_array().unwrap().iter().map(|request| &request["ids"]).collect();
    for id in &ids {
        assert_eq!((id.as_array().unwrap().len(), id[0].as_str().unwrap().len()), (1, 36), "{id}");
    }
    assert!(ids[0] != ids[1], "{ids:?}");
    assert_eq!(ledger["requests"][0]["encoding"], Value::Null);
}

#[tokio::test]
async fn what_cannot_be_reserved_does_not_reach_the_model() {
    let edge = Edge::start("llm").await;
    for body in [
        r#"{"max_tokens": 10001}"#,
        r#"{"max_tokens": 400, "n": 50}"#,
        // Envoy would omit the descriptor of these.
        r#"{"max_tokens": -1}"#,
        r#"{"max_tokens": 2000000000}"#,
        r#"{"max_tokens": 0}"#,
        r#"{"max_tokens": 1, "n": -1}"#,
        // JSON that Envoy cannot read.
        r#"{"max_tokens": 1, "seed": 12345678901234567890}"#,
        "no JSON",
    ] {
        let status = Prompt::send(edge.address(), &[TENANT], body).await.status().await;
        assert_eq!(status, 429, "{body}");
    }
    assert_eq!(Prompt::send(edge.address(), &[], "{}").await.status().await, 401);
    assert_eq!(edge.model.ledger().await["requests"], json!([]));
    edge.has_left(BUDGET, &Value::Null).await;
}

#[tokio::test]
async fn the_clamp_shortens_a_request_to_what_is_left() {
    let edge = Edge::start("llm-clamp").await;
    let body = json!({"max_tokens": 9000, "cost": [20, 7980]});
    assert_eq!(edge.status(&body).await, 200);
    edge.has_left(2000, &body).await;
    for (limit, body) in [
        (9000, json!({"max_tokens": 9000, "cost": [0, 1000]})),
        (7, json!({"max_tokens": 7, "cost": [0, 7]})),
        // The default of the configuration.
        (1000, json!({"cost": [0, 990], "stream": true})),
    ] {
        let left = BUDGET - edge.model.tokens().await;
        assert_eq!(edge.status(&body).await, 200, "{body}");
        let ledger = edge.model.ledger().await;
        let sent = &ledger["requests"].as_array().unwrap().last().unwrap()["body"];
        assert_eq!(sent["max_tokens"], limit.min(left - estimate(0, &body)), "{left} were left");
        edge.has_left(BUDGET - edge.model.tokens().await, &body).await;
    }
    // 3 are left, fewer than the prompt is estimated at.
    assert_eq!(edge.status(&json!({"max_tokens": 9000})).await, 429);
}

#[tokio::test]
async fn a_permit_ends_however_its_stream_ends() {
    let edge = Edge::start("in-flight").await;
    let waiting = json!({"stream": true, "end": "wait"});
    let one = edge.send(&waiting).await;
    let other = edge.send(&waiting).await;
    edge.model.has_open(2).await;
    assert_eq!(edge.status(&json!({})).await, 429);
    edge.has_left(0, &waiting).await;
    drop(one);
    edge.has_left(1, &waiting).await;
    edge.model.has_open(1).await;
    edge.model.go().await;
    assert_eq!(other.status().await, 200);
    edge.has_left(2, &waiting).await;
    for end in ["usage", "busy", "reset"] {
        let body = json!({"end": end});
        edge.status(&body).await;
        edge.has_left(2, &body).await;
    }
    assert_eq!(edge.model.ledger().await["most"], 2);
}

#[tokio::test]
async fn permits_of_a_killed_envoy_end_after_their_ttl() {
    let edge = Edge::start_with("in-flight", "ttl: 60s", "ttl: 5s").await;
    let waiting = json!({"stream": true, "end": "wait"});
    let clients = [edge.send(&waiting).await, edge.send(&waiting).await];
    edge.model.has_open(2).await;
    let Edge { envoy, tollgate, model, .. } = edge;
    // SIGKILL: it sends no settle.
    drop(envoy);
    model.has_open(0).await;
    assert_eq!(left(&tollgate, "in-flight").await, 0);
    becomes("the permits end", TEST_TIMEOUT, || left(&tollgate, "in-flight"), |left| *left == 2)
        .await;
    drop(clients);
}

/// Sends 1,000 requests a second: for 2 s, or for `TOLLGATE_ENVOY_SECONDS`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_upstream_never_sees_more_requests_than_permits() {
    const CLIENTS: u32 = 100;
    let edge = Edge::start_with("in-flight", "in_flight: 2", "in_flight: 10").await;
    let seconds = std::env::var("TOLLGATE_ENVOY_SECONDS");
    let seconds: u32 = seconds.map_or(2, |seconds| seconds.parse().unwrap());
    let begun = tokio::time::Instant::now();
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        let web = Web::new(edge.address());
        clients.spawn(async move {
            let mut statuses = BTreeMap::<u16, u32>::new();
            for number in 0..1_000 / CLIENTS * seconds {
                // A late client sends at once, and waits for every response.
                let due = Duration::from_millis((number * CLIENTS + client).into());
                tokio::time::sleep_until(begun + due).await;
                let headers = [("x-tenant", "ann"), ("content-type", "application/json")];
                let reply = web.send_with("POST", "/", &headers, r#"{"end": "slow"}"#).await;
                *statuses.entry(reply.status).or_default() += 1;
            }
            statuses
        });
    }
    let mut statuses = BTreeMap::<u16, u32>::new();
    for (status, count) in clients.join_all().await.into_iter().flatten() {
        *statuses.entry(status).or_default() += count;
    }
    let ledger = edge.model.ledger().await;
    let reached = ledger["requests"].as_array().unwrap().len();
    let most = ledger["most"].as_u64().unwrap();
    eprintln!("{statuses:?} in {:?}, {most} at once at most", begun.elapsed());
    assert_eq!(statuses.values().sum::<u32>(), 1_000 * seconds);
    assert!(statuses.keys().all(|status| [200, 429].contains(status)), "{statuses:?}");
    assert_eq!(statuses.get(&200).map(|count| *count as usize), Some(reached));
    assert!(most <= 10, "{most} at once");
    assert!(statuses.contains_key(&429), "{statuses:?}");
    edge.has_left(10, &Value::Null).await;
}

#[test]
fn the_files_for_istio_and_envoy_gateway_have_the_filters_of_the_example() {
    let manager = manager_with_filters_in_both("llm", 4);
    let limits = &manager["route_config"]["virtual_hosts"][0]["typed_per_filter_config"];
    let istio = yaml("deploy/k8s/overlays/istio/llm.yaml");
    let of_istio = &istio["spec"]["configPatches"][5]["patch"]["value"];
    assert_eq!(of_istio["typed_per_filter_config"], *limits);
    let gateway = yaml("deploy/k8s/overlays/envoy-gateway/llm.yaml");
    assert_eq!(gateway["spec"]["jsonPatches"][5]["operation"]["value"], *limits);
}

/// Asserts that the files of an example for Istio and Envoy Gateway insert its first filters, after
/// the cluster. Returns the example's connection manager.
pub(crate) fn manager_with_filters_in_both(name: &str, count: usize) -> Value {
    let example = yaml(&format!("deploy/envoy/{name}.yaml"));
    let manager = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config";
    let manager = example.pointer(manager).unwrap();
    let filters = &manager["http_filters"].as_array().unwrap()[..count];
    let istio = yaml(&format!("deploy/k8s/overlays/istio/{name}.yaml"));
    let patches = istio["spec"]["configPatches"].as_array().unwrap();
    let values: Vec<&Value> = patches.iter().map(|patch| &patch["patch"]["value"]).collect();
    assert_eq!(values[1..=count], filters.iter().collect::<Vec<_>>());
    let gateway = yaml(&format!("deploy/k8s/overlays/envoy-gateway/{name}.yaml"));
    let patches = gateway["spec"]["jsonPatches"].as_array().unwrap();
    let values: Vec<&Value> = patches.iter().map(|patch| &patch["operation"]["value"]).collect();
    // Each is inserted before those inserted earlier.
    assert_eq!(values[1..=count], filters.iter().rev().collect::<Vec<_>>());
    manager.clone()
}

/// A model behind Envoy with one of the examples, and tollgate with the policies of the example.
struct Edge {
    model: Model,
    envoy: Envoy,
    tollgate: Tollgate,
    domain: &'static str,
    _policies: Policies,
}

impl Edge {
    /// Starts an example with its policy. Its windows are years, so that none ends.
    async fn start(name: &str) -> Self {
        Self::start_with(name, "unit: day", "unit: year").await
    }

    /// Starts an example with its policy, in which `new` replaces `old`.
    async fn start_with(name: &str, old: &str, new: &str) -> Self {
        let domain = if name == "in-flight" { "in-flight" } else { "llm" };
        let folder = root().join("deploy/envoy");
        let read = |path: &str| std::fs::read_to_string(folder.join(path)).unwrap();
        let policies = Policies::of(&read(&format!("policies/{domain}.yaml")).replace(old, new));
        let tollgate = Tollgate::serve_with(policies.path(), &["--dynamic-metadata"]);
        let model = Model::start();
        // On a busy machine an answer is late.
        let text = on_free_ports(&read(&format!("{name}.yaml")))
            .replace("timeout: 1s", "timeout: 10s")
            .replace("max_interval: 1s", "max_interval: 10s");
        let grpc = tollgate.grpc.port().to_string();
        let upstream = model.address.port().to_string();
        let envoy = Envoy::start_by(&text, &[("TOLLGATE", &grpc), ("UPSTREAM", &upstream)]).await;
        Self { model, envoy, tollgate, domain, _policies: policies }
    }

    fn address(&self) -> SocketAddr {
        self.envoy.edge.server()
    }

    /// Sends a request of the tenant.
    async fn send(&self, body: &Value) -> Prompt {
        Prompt::send(self.address(), &[TENANT], &body.to_string()).await
    }

    /// Sends a request of the tenant, reads the response to its end and returns the status.
    async fn status(&self, body: &Value) -> u16 {
        self.send(body).await.status().await
    }

    /// Waits until the tenant has this number of hits left: Envoy's last call comes after the end
    /// of the stream.
    async fn has_left(&self, expected: u64, after: &Value) {
        let left = || left(&self.tollgate, self.domain);
        becomes(&format!("left after {after}"), TEST_TIMEOUT, left, |left| *left == expected).await;
    }
}

/// Returns the hits that the tenant has left, by a peek.
async fn left(tollgate: &Tollgate, domain: &str) -> u64 {
    let tenant = RateLimitDescriptor { hits_addend: Some(0), ..descriptor(&[("tenant", "ann")]) };
    let peek = RateLimitRequest { domain: domain.to_owned(), ..request(vec![tenant]) };
    let answer = Client::connect(tollgate.grpc).await.decide(peek).await.unwrap();
    answer.statuses[0].limit_remaining.into()
}

/// Returns the estimate that `llm.yaml` reserves for a request.
fn estimate(max_tokens: u64, body: &Value) -> u64 {
    max_tokens + body.to_string().len() as u64 / 2
}

/// Reads a YAML file of the repository.
fn yaml(path: &str) -> Value {
    serde_json::from_str(&crate::deploy::envoys::json_of(&root().join(path))).unwrap()
}
