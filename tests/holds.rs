//! `tollgate.v1.HoldService` over gRPC and JSON, and holds by the command line.

use serde_json::{Value, json};
use tollgate::grpc::proto::hold::hold_service_client::HoldServiceClient;
use tollgate::grpc::proto::hold::{CancelRequest, CommitRequest, ExtendRequest, ReserveRequest};
use tollgate::grpc::proto::rate_limit_response::Code;
use tollgate::grpc::proto::{RateLimitDescriptor, RateLimitResponse};
use tonic::transport::Channel;
use tonic::{Response, Status};

use crate::support::policy::Policies;
use crate::support::rls::{Client, channel, descriptor, request};
use crate::support::secure::SecureTollgate;
use crate::support::tollgate::{Tollgate, output};
use crate::support::web::Web;

const POLICY: &str = "
domain: test
descriptors:
  - key: tenant
    rate_limit: { unit: day, requests_per_unit: 1000, hold: { ttl: 10m } }
  - key: model
    rate_limit: { algorithm: sliding_log, unit: day, requests_per_unit: 500, hold: { ttl: 5m } }
  - key: permits
    rate_limit: { algorithm: concurrency, in_flight: 2, hold: { ttl: 1m } }
  - key: plain
    rate_limit: { unit: day, requests_per_unit: 10 }
";

/// A client of the service, with short constructors for its requests.
struct HoldClient(HoldServiceClient<Channel>);

/// The code and the remaining hits of each status, or the gRPC code of an error.
type Answered = Result<(Code, Vec<u32>), tonic::Code>;

fn answered(response: Result<Response<RateLimitResponse>, Status>) -> Answered {
    let response = response.map_err(|status| status.code())?.into_inner();
    let remaining = response.statuses.iter().map(|status| status.limit_remaining).collect();
    Ok((Code::try_from(response.overall_code).unwrap(), remaining))
}

fn descriptors(entries: &[&[(&str, &str)]]) -> Vec<RateLimitDescriptor> {
    entries.iter().map(|entries| descriptor(entries)).collect()
}

fn seconds(seconds: i64) -> Option<prost_types::Duration> {
    Some(prost_types::Duration { seconds, nanos: 0 })
}

impl HoldClient {
    async fn connect(service: &Tollgate) -> Self {
        Self(HoldServiceClient::new(channel(service.grpc).await))
    }

    async fn reserve_of(&mut self, request: ReserveRequest) -> Result<Answered, Status> {
        Ok(answered(self.0.reserve(request).await))
    }

    async fn reserve(&mut self, of: &[&[(&str, &str)]], id: &str, hits: u32) -> Answered {
        let request = reserve(of, id, hits);
        answered(self.0.reserve(request).await)
    }

    async fn commit(&mut self, of: &[&[(&str, &str)]], id: &str, hits: u32) -> Answered {
        let domain = "test".to_owned();
        let request = CommitRequest { domain, descriptors: descriptors(of), id: id.into(), hits };
        answered(self.0.commit(request).await)
    }

    async fn cancel(&mut self, of: &[&[(&str, &str)]], id: &str) -> Answered {
        let domain = "test".to_owned();
        let request = CancelRequest { domain, descriptors: descriptors(of), id: id.into() };
        answered(self.0.cancel(request).await)
    }

    async fn extend(&mut self, of: &[&[(&str, &str)]], id: &str, ttl: i64) -> Answered {
        let domain = "test".to_owned();
        let descriptors = descriptors(of);
        let request = ExtendRequest { domain, descriptors, id: id.into(), ttl: seconds(ttl) };
        answered(self.0.extend(request).await)
    }
}

fn reserve(of: &[&[(&str, &str)]], id: &str, hits: u32) -> ReserveRequest {
    let domain = "test".to_owned();
    ReserveRequest { domain, descriptors: descriptors(of), id: id.into(), hits, ttl: None }
}

fn serve() -> Tollgate {
    Tollgate::serve(Policies::of(POLICY).path())
}

const TENANT: &[&[(&str, &str)]] = &[&[("tenant", "a")]];
const BOTH: &[&[(&str, &str)]] = &[&[("tenant", "a")], &[("model", "m")]];

#[tokio::test]
async fn a_hold_is_reserved_and_committed_with_its_cost() {
    let service = serve();
    let mut client = HoldClient::connect(&service).await;
    assert_eq!(client.reserve(BOTH, "r1", 400).await, Ok((Code::Ok, vec![600, 100])));
    assert_eq!(client.reserve(BOTH, "r2", 400).await, Ok((Code::OverLimit, vec![600, 100])));
    assert_eq!(client.commit(BOTH, "r1", 150).await, Ok((Code::Ok, vec![850, 350])));
    assert_eq!(client.commit(BOTH, "r1", 150).await, Ok((Code::Ok, vec![850, 350])));
}

#[tokio::test]
async fn a_retried_reserve_is_free_and_another_one_of_the_id_is_refused() {
    let service = serve();
    let mut client = HoldClient::connect(&service).await;
    for _ in 0..3 {
        assert_eq!(client.reserve(BOTH, "r", 400).await, Ok((Code::Ok, vec![600, 100])));
    }
    assert_eq!(client.reserve(BOTH, "r", 300).await, Err(tonic::Code::AlreadyExists));
    let permits: &[&[(&str, &str)]] = &[&[("permits", "a")]];
    for _ in 0..3 {
        assert_eq!(client.reserve(permits, "r", 2).await, Ok((Code::Ok, vec![0])));
    }
    assert_eq!(client.reserve(permits, "s", 1).await, Ok((Code::OverLimit, vec![0])));
    assert_eq!(client.commit(permits, "r", 7).await, Ok((Code::Ok, vec![2])));
    // A descriptor that occurs twice is charged twice.
    let twice: &[&[(&str, &str)]] = &[&[("tenant", "b")], &[("tenant", "b")]];
    for _ in 0..2 {
        assert_eq!(client.reserve(twice, "r", 100).await, Ok((Code::Ok, vec![800, 800])));
    }
}

#[tokio::test]
async fn a_cancelled_hold_is_given_back_and_its_end_costs_nothing() {
    let service = serve();
    let mut client = HoldClient::connect(&service).await;
    assert_eq!(client.reserve(TENANT, "r", 400).await, Ok((Code::Ok, vec![600])));
    assert_eq!(client.cancel(TENANT, "r").await, Ok((Code::Ok, vec![1000])));
    assert_eq!(client.cancel(TENANT, "r").await, Ok((Code::Ok, vec![1000])));
    assert_eq!(client.commit(TENANT, "r", 400).await, Ok((Code::Ok, vec![1000])));
}

#[tokio::test]
async fn holds_are_extended_as_long_as_they_are_open() {
    let service = serve();
    let mut client = HoldClient::connect(&service).await;
    assert_eq!(client.extend(TENANT, "r", 60).await, Err(tonic::Code::NotFound));
    client.reserve(TENANT, "r", 400).await.unwrap();
    assert_eq!(client.extend(TENANT, "r", 60).await, Ok((Code::Ok, vec![600])));
    assert_eq!(client.extend(TENANT, "r", 601).await, Err(tonic::Code::InvalidArgument));
    client.commit(TENANT, "r", 1).await.unwrap();
    assert_eq!(client.extend(TENANT, "r", 60).await, Err(tonic::Code::NotFound));
}

#[tokio::test]
async fn an_invalid_call_is_refused_with_the_reason() {
    let service = serve();
    let mut client = HoldClient::connect(&service).await;
    let valid = || reserve(BOTH, "r", 1);
    let with = |change: &dyn Fn(&mut RateLimitDescriptor)| {
        let mut request = valid();
        change(&mut request.descriptors[1]);
        request
    };
    let long = "x".repeat(129);
    let reserved = descriptor(&[("model", "m"), ("tollgate.settle", "x")]);
    for (request, expected) in [
        (ReserveRequest { id: String::new(), ..valid() }, "id must have 1 to 128 bytes, found 0"),
        (ReserveRequest { id: long, ..valid() }, "found 129"),
        (ReserveRequest { hits: 0, ..valid() }, "hits must be at least 1"),
        (ReserveRequest { ttl: seconds(0), ..valid() }, "ttl must be at least 1s"),
        (ReserveRequest { ttl: seconds(-5), ..valid() }, "ttl must have seconds of at least 0"),
        (
            ReserveRequest { ttl: seconds(301), ..valid() },
            "ttl must be at most that of the rule, 5m",
        ),
        (ReserveRequest { domain: String::new(), ..valid() }, "domain must not be empty"),
        (ReserveRequest { descriptors: vec![], ..valid() }, "descriptors must not be empty"),
        (with(&|one| one.hits_addend = Some(1)), "descriptor 1"),
        (with(&|one| one.is_negative_hits = true), "descriptor 1"),
        (with(&|one| *one = reserved.clone()), "an operation on a hold, found in descriptor 1"),
    ] {
        let status = client.0.reserve(request).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::InvalidArgument, "{status}");
        assert!(status.message().contains(expected), "{expected}: {status}");
    }
    assert_eq!(client.reserve(BOTH, "r", 500).await, Ok((Code::Ok, vec![500, 0])));
    let shared = |count| ReserveRequest {
        descriptors: vec![descriptor(&[("tenant", "shared")]); count],
        ..reserve(BOTH, "shared", 1)
    };
    let status = client.0.reserve(shared(5)).await.unwrap_err();
    assert!(status.message().contains("descriptor 4 is one more"), "{status}");
    let reserved = [(); 2].map(|()| shared(4));
    for reserve in reserved {
        let left = client.reserve_of(reserve).await.unwrap().unwrap();
        assert_eq!(left.1, [996; 4], "a retry is not charged");
    }
    let large = RateLimitDescriptor { ..descriptor(&[("tenant", &"x".repeat(20_000))]) };
    let large = ReserveRequest { descriptors: vec![large], ..valid() };
    let refused = client.reserve_of(large).await.unwrap();
    assert_eq!(refused, Err(tonic::Code::OutOfRange));
}

#[tokio::test]
async fn a_rule_without_holds_is_charged_and_its_ends_do_nothing() {
    let service = serve();
    let mut client = HoldClient::connect(&service).await;
    let plain: &[&[(&str, &str)]] = &[&[("plain", "a")]];
    assert_eq!(client.reserve(plain, "r", 4).await, Ok((Code::Ok, vec![6])));
    assert_eq!(client.commit(plain, "r", 1).await, Ok((Code::Ok, vec![6])));
    assert_eq!(client.cancel(plain, "r").await, Ok((Code::Ok, vec![6])));
    let web = Web::new(service.http);
    assert_eq!(web.metric("tollgate_hold_unsupported_total").await, 3);
}

#[tokio::test]
async fn envoys_entries_and_the_service_act_on_the_same_holds() {
    let service = serve();
    let mut client = HoldClient::connect(&service).await;
    client.reserve(TENANT, "r", 400).await.unwrap();
    let mut commit = request(vec![descriptor(&[("tenant", "a"), ("tollgate.commit", "r")])]);
    commit.descriptors[0].hits_addend = Some(10);
    let answer = Client::connect(service.grpc).await.decide(commit).await.unwrap();
    assert_eq!(answer.statuses[0].limit_remaining, 990);
}

#[tokio::test]
async fn the_service_is_offered_as_json_with_the_same_answers() {
    let service = serve();
    let web = Web::new(service.http);
    let send = async |path: &str, more: Value| {
        let entries = json!([{"entries": [{"key": "tenant", "value": "a"}]}]);
        let mut body = json!({"domain": "test", "descriptors": entries, "id": "r"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let reply = web.send("POST", &format!("/json/{path}"), body.to_string()).await;
        let answer: Value = serde_json::from_str(&reply.body).unwrap_or(json!(reply.body));
        (reply.status, answer)
    };
    let (status, answer) = send("reserve", json!({"hits": 400, "ttl": "60s"})).await;
    assert_eq!((status, &answer["statuses"][0]["limitRemaining"]), (200, &json!(600)));
    assert_eq!(send("reserve", json!({"hits": 400})).await.0, 200, "a retry is free");
    assert_eq!(send("reserve", json!({"hits": 300})).await.0, 409);
    assert_eq!(send("extend", json!({"ttl": "120s"})).await.0, 200);
    assert_eq!(send("extend", json!({"ttl": "601s"})).await.0, 400);
    let (status, answer) = send("commit", json!({"hits": 30})).await;
    assert_eq!((status, &answer["statuses"][0]["limitRemaining"]), (200, &json!(970)));
    assert_eq!(send("extend", json!({})).await.0, 404);
    assert_eq!(send("cancel", json!({})).await.0, 200);
    // The caller learns how many hits it can reserve instead.
    let (status, answer) = send("reserve", json!({"hits": 2000, "id": "s"})).await;
    assert_eq!((status, &answer["statuses"][0]["limitRemaining"]), (429, &json!(970)));
    let (status, why) = send("commit", json!({"hitz": 1})).await;
    assert_eq!(status, 400);
    assert!(why["detail"].as_str().unwrap().contains("hitz"), "{why}");
}

#[tokio::test]
async fn an_operation_that_is_only_tried_changes_nothing() {
    let service = serve();
    let mut client = HoldClient::connect(&service).await;
    client.reserve(TENANT, "r", 400).await.unwrap();
    let admin = Web::new(service.admin);
    for (key, hits) in [("tollgate.commit", 9), ("tollgate.settle", 1), ("tollgate.reserve", 600)] {
        let entries = json!([{"key": "tenant", "value": "a"}, {"key": key, "value": "r"}]);
        let body = json!({"domain": "test", "descriptors": [{"entries": entries, "hits": hits}]});
        let headers = [("content-type", "application/json")];
        let reply = admin.send_with("POST", "/api/v1/try", &headers, body.to_string()).await;
        let tried: Value = serde_json::from_str(&reply.body).unwrap();
        assert_eq!(
            (&tried["would_admit"], &tried["statuses"][0]["remaining"]),
            (&json!(true), &json!(600)),
            "{key}: {tried}"
        );
    }
    assert_eq!(client.commit(TENANT, "r", 400).await, Ok((Code::Ok, vec![600])));
}

#[test]
fn hit_reserves_commits_and_settles() {
    let service = serve();
    let hit = |arguments: &[&str]| {
        let address = service.grpc.to_string();
        let ended = output([&["hit", &address, "test", "tenant=a"], arguments].concat());
        let text = [ended.stdout, ended.stderr].concat();
        (ended.status.code(), String::from_utf8(text).unwrap())
    };
    for (arguments, expected) in [
        (&["--reserve", "r", "--hits", "900"][..], "100 of 1000"),
        (&["--commit", "r", "--hits", "0"], "1000 of 1000"),
        (&["--reserve", "s", "--hits", "10"], "990 of 1000"),
        (&["--settle", "s"], "990 of 1000"),
    ] {
        let (code, text) = hit(arguments);
        assert!(code == Some(0) && text.contains(expected), "{arguments:?}: {text}");
    }
    for (arguments, expected) in [
        (&["--commit", "r"][..], "--hits"),
        (&["--settle", "r", "--hits", "1"], "--hits"),
        (&["--reserve", "r", "--settle", "r"], "--settle"),
        (&["--reserve", ""], "expected 1 to 128 bytes, found 0"),
    ] {
        let (code, text) = hit(arguments);
        assert!(code == Some(2) && text.contains(expected), "{arguments:?}: {text}");
    }
}

#[tokio::test]
async fn a_client_may_hold_in_its_own_domains_only() {
    let secure = SecureTollgate::serve(&Policies::of(POLICY), &["billing=test"], &[]);
    for (name, expected) in
        [("billing", Ok((Code::Ok, vec![999]))), ("other", Err(tonic::Code::PermissionDenied))]
    {
        let mut client = HoldClient(HoldServiceClient::new(secure.connect(name).await));
        assert_eq!(client.reserve(TENANT, "r", 1).await, expected, "{name}");
    }
    let refused = Web::new(secure.service.http).send("POST", "/json/reserve", "{}").await;
    assert_eq!(refused.status, 403, "{refused:?}");
}

#[tokio::test]
async fn open_holds_are_shown_oldest_first_and_hashed_where_values_are() {
    let hashed = format!(
        "{POLICY}  - key: secret\n    rate_limit: {{ unit: day, requests_per_unit: 9, hash_values: true, hold: {{ ttl: 1m }} }}\n"
    );
    let folder = tempfile::TempDir::new().unwrap();
    let secret = folder.path().join("key");
    std::fs::write(&secret, "0123456789abcdef0123456789abcdef").unwrap();
    let flags = ["--hash-key-file", secret.to_str().unwrap()];
    let service = Tollgate::serve_with(Policies::of(&hashed).path(), &flags);
    let mut client = HoldClient::connect(&service).await;
    let permits: &[&[(&str, &str)]] = &[&[("permits", "a")]];
    for id in ["first", "second"] {
        client.reserve(permits, id, 1).await.unwrap();
    }
    client.reserve(TENANT, "r1", 400).await.unwrap();
    client.reserve(&[&[("secret", "s")]], "hidden", 2).await.unwrap();
    let admin = Web::new(service.admin);
    let held = async |descriptor: &str| {
        let path = format!("/api/v1/counter?domain=test&descriptor={descriptor}");
        serde_json::from_str::<Value>(&admin.get(&path).await.body).unwrap()
    };
    let view = held("permits=a").await;
    let [first, second] = view["held"]["holds"].as_array().unwrap().as_slice() else {
        panic!("{view}");
    };
    assert_eq!((&first["id"], &second["id"]), (&json!("first"), &json!("second")));
    assert!(first["since"].as_str() < first["until"].as_str(), "{first}");
    assert_eq!(view["state"]["windows"][0]["limit"], "2 in flight");
    assert_eq!((&view["held"]["hits"], &view["held"]["count"]), (&json!(2), &json!(2)));
    let view = held("tenant=a").await;
    assert_eq!(
        (&view["held"]["hits"], &view["held"]["holds"][0]["id"]),
        (&json!(400), &json!("r1"))
    );
    let view = held("secret=s").await;
    let id = view["held"]["holds"][0]["id"].as_str().unwrap();
    assert!(id.starts_with("hash-") && !view.to_string().contains("hidden"), "{view}");
    assert_eq!(held("plain=a").await["held"], Value::Null);
    let url = format!("http://{}", service.admin);
    let shown = output(["inspect", "--admin", &url, "test", "permits=a"]);
    let text = String::from_utf8(shown.stdout).unwrap();
    assert!(text.contains("held      2 hits in 2 holds"), "{text}");
    assert!(text.contains("held by   first: 1 hit for"), "{text}");
}

#[tokio::test]
async fn costs_far_from_their_estimates_are_shown_with_advice() {
    let service = serve();
    let mut client = HoldClient::connect(&service).await;
    for number in 0..100 {
        let id = number.to_string();
        client.reserve(TENANT, &id, 8).await.unwrap();
        client.commit(TENANT, &id, 2).await.unwrap();
    }
    client.reserve(&[&[("model", "m")]], "r", 8).await.unwrap();
    client.commit(&[&[("model", "m")]], "r", 8).await.unwrap();
    let rules = Web::new(service.admin).get("/api/v1/rules").await.body;
    let rules: Value = serde_json::from_str(&rules).unwrap();
    let estimate = |rule: &str| {
        let rules = rules["rules"].as_array().unwrap();
        rules.iter().find(|one| one["rule"] == rule).unwrap()["estimate"].clone()
    };
    let advice = "lower the estimate: it denies requests that would fit";
    let text = format!(
        "mean cost 0.25 of the reservation (95% of 100 commits at most 0.25; 0.0% above 1); {advice}"
    );
    assert_eq!(
        estimate("tenant"),
        json!({"commits": 100, "mean": 0.25, "most": 0.25, "overruns": 0.0, "advice": advice, "text": text})
    );
    assert_eq!(estimate("model")["advice"], Value::Null);
    assert_eq!((estimate("plain"), estimate("permits")), (Value::Null, Value::Null));
    let url = format!("http://{}", service.admin);
    let shown = String::from_utf8(output(["top", "--once", "--admin", &url]).stdout).unwrap();
    assert!(shown.contains(&format!("estimate of tenant in test: {text}\n")), "{shown}");
    assert!(!shown.contains("estimate of model"), "{shown}");
}
