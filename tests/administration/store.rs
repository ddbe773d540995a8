//! What administration tells of a store in Redis.

use serde_json::{Value, json};

use super::json as told;
use crate::support::policy::Policies;
use crate::support::redis::Redis;
use crate::support::rls::{Client, descriptor, request};
use crate::support::tollgate::Tollgate;
use crate::support::web::Web;
use crate::support::{PATIENCE, becomes};

const POLICY: &str = "domain: test\ndescriptors:\n  - key: tenant\n    rate_limit: { algorithm: sliding_window, requests_per_unit: 5, unit: year, record: [user] }\n  - key: free\n";

#[tokio::test]
async fn servers_are_told_with_who_is_connected_and_what_they_say() {
    let redis = Redis::start().await;
    let flags = ["--store", &redis.url(), "--store-timeout", "15s", "--workers", "2"];
    let policies = Policies::of(POLICY);
    let service = Tollgate::serve_with(policies.path(), &flags);
    let (admin, http) = (Web::new(service.admin), ready(&service).await);
    let client = Client::connect(service.grpc).await;
    client.hit("tenant", "acme").await;
    let servers = || async { told(&admin, "/api/v1/store").await["servers"].clone() };
    let is_known = |servers: &Value| servers[0]["connected"] == 3 && servers[0]["told"].is_object();
    let servers_told = becomes("the server has told of itself", PATIENCE, servers, is_known).await;
    let server = &servers_told[0];
    assert_eq!((&server["workers"], &server["breakers_open"]), (&json!(3), &json!(0)), "two workers and HTTP");
    assert_eq!((&server["told"]["role"], &server["told"]["evicted_keys"]), (&json!("master"), &json!(0)));
    let address = server["address"].as_str().unwrap();
    assert_eq!(http.metric(&format!("tollgate_store_evicted_keys{{node=\"{address}\"}}")).await, 0);
    assert!(http.metric(&format!("tollgate_store_call_duration_seconds_count{{node=\"{address}\"}}")).await > 0);
    assert_eq!(told(&admin, "/api/v1/status").await["degraded"], json!([]));
    redis.kill();
    let degraded = || async { told(&admin, "/api/v1/status").await["degraded"].clone() };
    let is_told =
        |degraded: &Value| degraded[0].as_str().is_some_and(|text| text.contains("0 of 3 workers are connected"));
    becomes("the loss is told", PATIENCE, degraded, is_told).await;
    let tried = json!({"domain": "test", "descriptors": [{"entries": [{"key": "tenant", "value": "acme"}]}]});
    let headers = [("content-type", "application/json")];
    assert_eq!(admin.send_with("POST", "/api/v1/try", &headers, tried.to_string()).await.status, 503);
}

#[tokio::test]
async fn who_used_a_counter_up_is_told_and_why_it_cannot_be() {
    let redis = Redis::start().await;
    let service =
        Tollgate::serve_with(Policies::of(POLICY).path(), &["--store", &redis.url(), "--store-timeout", "15s"]);
    ready(&service).await;
    let (admin, client) = (Web::new(service.admin), Client::connect(service.grpc).await);
    for user in ["ann", "bob", "ann"] {
        let descriptors = vec![descriptor(&[("tenant", "acme")]), descriptor(&[("user", user)])];
        client.ask(request(descriptors)).await.unwrap();
    }
    let who = told(&admin, "/api/v1/who?domain=test&descriptor=tenant=acme").await;
    let tally = |who, charged| json!({"who": who, "charged": charged, "denied": 0});
    assert_eq!(who, json!({"rule": "tenant", "tallies": [tally("user=ann", 2), tally("user=bob", 1)]}));
    for (query, status, reason) in [
        ("domain=other&descriptor=tenant=acme", 404, "no policy for domain `other`"),
        ("domain=test&descriptor=nothing=here", 404, "no rule"),
        ("domain=test&descriptor=free=x", 404, "has no limit"),
        ("descriptor=free=x", 400, "domain"),
    ] {
        let reply = admin.get(&format!("/api/v1/who?{query}")).await;
        assert!(reply.status == status && reply.body.contains(reason), "{query}: {} {}", reply.status, reply.body);
    }
    let alone = Tollgate::serve(Policies::of(POLICY).path());
    let reply = Web::new(alone.admin).get("/api/v1/who?domain=test&descriptor=tenant=acme").await;
    assert!(reply.status == 409 && reply.body.contains("kept in Redis"), "{}", reply.body);
    assert_eq!(told(&Web::new(alone.admin), "/api/v1/store").await, json!({"servers": []}));
}

/// Waits until the service is connected to its store.
async fn ready(service: &Tollgate) -> Web {
    let http = Web::new(service.http);
    let status = || async { http.get("/readyz").await.status };
    becomes("the service is ready", PATIENCE, status, |status| *status == 200).await;
    http
}
