//! A store that `src` does not know: the whole service runs over it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use serde_json::{Value, json};
use tollgate::algorithm::time::Timestamp;
use tollgate::grpc::{json, request as messages, response};
use tollgate::limiter::{InForce, Limiter, Modes};
use tollgate::policy::{self, CompileOptions, Source};
use tollgate::store::Store;
use tollgate::store::backend::BackendState;
use tollgate::store::clock::{Clock, ManualClock, SystemClock};
use tollgate::store::memory::{Bounds, MemoryStore};
use tollgate::store::servers::{AccessRefusal, RefusedAccess};
use tollgate::telemetry::metrics::Metrics;

use crate::support::rls::{descriptor, request};
use crate::support::tollgate::output;
use crate::support::toy::Toy;
use crate::support::toy_service::ToyService;
use crate::support::vectors::vectors;
use crate::support::web::fetch;
use crate::support::{TEST_TIMEOUT, becomes};

const POLICY: &str = "
domain: test
descriptors:
  - key: user
    rate_limit: { unit: day, requests_per_unit: 2, charge: admitted, record: [path], on_store_error: local }
  - key: tokens
    rate_limit: { unit: day, requests_per_unit: 10, hold: { ttl: 10m } }
  - key: permits
    rate_limit: { algorithm: concurrency, in_flight: 5, hold: { ttl: 10m } }
";

#[tokio::test]
async fn the_service_runs_over_a_store_of_another_crate() {
    ToyService::run(&Toy::new(SystemClock), POLICY, &[], async |service| {
        assert_eq!(service.web.get("/readyz").await.body, "ok\n");
        let hits = [service.client.hit("user", "ann").await, service.client.hit("user", "ann").await];
        assert_eq!(hits, [true, true]);
        assert!(!service.client.hit("user", "ann").await);
        let body = r#"{"domain": "test", "descriptors": [{"entries": [{"key": "user", "value": "ann"}]}]}"#;
        assert_eq!(service.web.send("POST", "/json", body).await.status, 429);
        let page = service.admin.get_with("/", &[("accept", b"text/html")]).await;
        assert!(page.status == 200 && page.body.contains("<!doctype html>"), "{page:?}");
        let ready = &fetch(&service.admin, "/api/v1/status").await["is_ready"];
        assert_eq!(*ready, json!(true));
        let reset = json!({"domain": "test", "descriptor": "user=ann"}).to_string();
        let json = [("content-type", "application/json")];
        let reset = service.admin.send_with("POST", "/api/v1/counter/reset", &json, reset).await;
        assert_eq!(reset.status, 200, "{}", reset.body);
        assert!(service.client.hit("user", "ann").await);
    })
    .await;
}

#[tokio::test]
async fn operators_see_what_a_store_does_not_support() {
    ToyService::run(&Toy::new(SystemClock), POLICY, &[], async |service| {
        let reason = "not supported by this store";
        let servers = fetch(&service.admin, "/api/v1/store").await;
        assert_eq!(servers, json!({"servers": [], "servers_unknown": reason}));
        let user = fetch(&service.admin, "/api/v1/counter?domain=test&descriptor=user=ann").await;
        assert_eq!(user["who_unknown"], format!("callers cannot be listed: {reason}"));
        let tokens = fetch(&service.admin, "/api/v1/counter?domain=test&descriptor=tokens=a").await;
        assert_eq!(tokens["held_unknown"], format!("open holds cannot be listed: {reason}"));
        let [inspected, _] = service.command(&["inspect", "test", "user=ann"]).await;
        assert!(
            inspected.contains(&format!("used by   callers cannot be listed: {reason}\n")),
            "{inspected}"
        );
        let [top, _] = service.command(&["top", "--once"]).await;
        let missing = format!("some denials of other replicas are missing: {reason}\n");
        assert!(top.contains(&missing), "{top}");
        let [_, error] = service.command(&["reset", "--ahead-of-clock"]).await;
        assert!(error.contains(reason), "{error}");
    })
    .await;
}

#[tokio::test]
async fn readiness_follows_the_state_of_a_store() {
    let toy = Toy::new(SystemClock);
    toy.set(BackendState::NotConnected(None));
    ToyService::run(&toy, POLICY, &["--ready-while-store"], async |service| {
        let refused = |refusal| {
            let address = "toy".to_owned();
            let text = "run a command".to_owned();
            BackendState::Refused(RefusedAccess { address, refusal, text })
        };
        let states = [
            (BackendState::NotConnected(None), "store not reached yet\n"),
            (BackendState::Connected, "ok\n"),
            (BackendState::NotConnected(None), "store disconnected\n"),
            (BackendState::Replica("toy".to_owned()), "store is a read-only replica\n"),
            (refused(AccessRefusal::Login), "store refuses the login; "),
            (refused(AccessRefusal::Commands), "store user lacks permissions; "),
            (BackendState::Connected, "ok\n"),
        ];
        for (state, text) in states {
            toy.set(state);
            let reason = || async { service.web.get("/readyz").await.body };
            becomes("readiness follows", TEST_TIMEOUT, reason, |body| body.starts_with(text)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn local_decides_while_a_store_is_down() {
    let toy = Toy::new(SystemClock);
    ToyService::run(&toy, POLICY, &["--replicas", "1"], async |service| {
        assert!(service.client.hit("user", "ann").await);
        toy.set(BackendState::NotConnected(None));
        let mut hits = Vec::new();
        for _ in 0..3 {
            hits.push(service.client.hit("user", "ann").await);
        }
        assert_eq!(hits, [true, true, false], "the share is the whole limit");
        let status = fetch(&service.admin, "/api/v1/status").await;
        assert!(!status["undecided"].is_null(), "{status}");
        toy.set(BackendState::Connected);
        let hits =
            [service.client.hit("user", "ann").await, service.client.hit("user", "ann").await];
        assert_eq!(hits, [true, false], "the store has one hit of its own");
    })
    .await;
}

#[tokio::test]
async fn local_admits_no_request_of_which_a_store_judged_a_part() {
    let toy = Toy::new(SystemClock);
    ToyService::run(&toy, POLICY, &["--replicas", "1"], async |service| {
        for (key, value) in [("user", "ann"), ("user", "bob"), ("permits", "bob")] {
            assert!(service.client.hit(key, value).await);
        }
        toy.exchange("bob");
        let both = request(vec![descriptor(&[("user", "ann")]), descriptor(&[("user", "bob")])]);
        let answer = service.client.decide(both).await;
        assert_eq!(answer.unwrap_err().code(), tonic::Code::Unavailable);
        let hits =
            [service.client.hit("user", "ann").await, service.client.hit("user", "ann").await];
        assert_eq!(hits, [true, false], "the failed request charged nothing");
        assert!(service.client.hit("user", "bob").await, "by the share alone");
    })
    .await;
}

/// A clock that moves on by eight hours with each reading.
#[derive(Default)]
struct HastyClock(AtomicU64);

impl Clock for HastyClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.0.fetch_add(8 * 3_600_000_000, Ordering::Relaxed))
    }
}

#[tokio::test]
async fn hit_exits_1_if_a_request_was_denied_and_the_last_one_was_not() {
    let toy = Toy::new(HastyClock::default());
    ToyService::run(&toy, POLICY, &["--deny-cache-max", "0s"], async |service| {
        let grpc = service.grpc.to_string();
        let hit = move || output(["hit", &grpc, "test", "user=ann", "--count", "4"]);
        let ended = tokio::task::spawn_blocking(hit).await.unwrap();
        let counts = String::from_utf8(ended.stderr).unwrap();
        assert_eq!((ended.status.code(), &*counts), (Some(1), "4 requests: 3 OK, 1 OVER_LIMIT\n"));
    })
    .await;
}

#[tokio::test]
async fn a_store_decides_like_memory() {
    for name in ["1", "4"] {
        let folder = vectors(name);
        let read = |name| std::fs::read_to_string(folder.path().join(name)).unwrap();
        let source = Source { name: "policy.yaml".to_owned(), text: read("policy.yaml") };
        let loaded = policy::load(&[source], &CompileOptions::default());
        let in_force = InForce::new(Metrics::new());
        in_force.install(loaded.unwrap_or_else(|report| panic!("{report}")).policies);
        let clock = Arc::new(ManualClock::default());
        let bounds = Bounds { max_bytes: usize::MAX, domain_max_bytes: usize::MAX };
        let memory = MemoryStore::new(bounds, Arc::clone(&clock));
        let memory = Limiter::new(Arc::clone(&in_force), memory, Modes::default());
        let toy = Toy::new(Arc::clone(&clock));
        let toy = Limiter::new(in_force, toy, Modes::default());
        for line in read("trace.jsonl").lines() {
            let mut line: Value = serde_json::from_str(line).unwrap();
            clock.set(Timestamp::from_micros(line["at"].as_u64().unwrap()));
            let message = json::request(line["request"].take()).unwrap();
            assert_eq!(decide(&toy, &message).await, decide(&memory, &message).await, "{line}");
        }
    }
}

/// Returns the response to a message.
async fn decide(limiter: &Limiter<impl Store>, message: &[u8]) -> Result<Vec<u8>, String> {
    let bounds = messages::RequestBounds { descriptors: 64, entries: 32, all_entries: 2048 };
    let request = messages::read(message, &bounds).map_err(|error| error.to_string())?;
    let snapshot = limiter.snapshot();
    let decided = limiter.decide(&snapshot, &request, Instant::now() + TEST_TIMEOUT).await;
    let decision = decided.map_err(|undecided| undecided.to_string())?;
    let mut answer = Vec::new();
    response::write(
        &decision,
        &response::AnswerStyle::default(),
        response::Receiver::Proxy,
        &mut answer,
    );
    Ok(answer)
}
