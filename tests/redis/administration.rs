//! Admin API responses of a service with a Redis store.

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::support::policy::Policies;
use crate::support::redis::Redis;
use crate::support::redis::cluster::Cluster;
use crate::support::rls::{Client, descriptor, request};
use crate::support::tollgate::{Tollgate, output};
use crate::support::web::{Web, fetch};
use crate::support::{TEST_TIMEOUT, becomes};

const POLICY: &str = "domain: test\ndescriptors:\n  - key: tenant\n    rate_limit: { algorithm: sliding_window, requests_per_unit: 5, unit: year, record: [user] }\n  - key: free\n";

#[tokio::test]
async fn servers_are_listed_with_their_clients_and_reports() {
    let redis = Redis::start().await;
    let flags = ["--store", &redis.url(), "--store-timeout", "15s", "--workers", "2"];
    let policies = Policies::of(POLICY);
    let service = Tollgate::serve_with(policies.path(), &flags);
    let admin = Web::new(service.admin);
    let http = ready(&service).await;
    let client = Client::connect(service.grpc).await;
    client.hit("tenant", "acme").await;
    let servers = || async { fetch(&admin, "/api/v1/store").await["servers"].clone() };
    let is_known = |servers: &Value| servers[0]["connected"] == 3 && servers[0]["info"].is_object();
    let known = becomes("the server is described", TEST_TIMEOUT, servers, is_known).await;
    let server = &known[0];
    assert_eq!(
        (&server["workers"], &server["breakers_open"]),
        (&json!(3), &json!(0)),
        "two workers and HTTP"
    );
    assert_eq!(
        (&server["info"]["role"], &server["info"]["evicted_keys"]),
        (&json!("master"), &json!(0))
    );
    let address = server["address"].as_str().unwrap();
    assert_eq!(http.metric(&format!("tollgate_store_evicted_keys{{node=\"{address}\"}}")).await, 0);
    assert!(
        http.metric(&format!("tollgate_store_call_duration_seconds_count{{node=\"{address}\"}}"))
            .await
            > 0
    );
    assert_eq!(fetch(&admin, "/api/v1/status").await["degraded"], json!([]));
    redis.kill();
    let degraded = || async { fetch(&admin, "/api/v1/status").await["degraded"].clone() };
    let is_reported = |degraded: &Value| {
        degraded[0].as_str().is_some_and(|text| text.contains("0 of 3 workers are connected"))
    };
    becomes("the loss is reported", TEST_TIMEOUT, degraded, is_reported).await;
    let tried = json!({"domain": "test", "descriptors": [{"entries": [{"key": "tenant", "value": "acme"}]}]});
    let headers = [("content-type", "application/json")];
    assert_eq!(
        admin.send_with("POST", "/api/v1/try", &headers, tried.to_string()).await.status,
        503
    );
}

#[tokio::test]
async fn top_users_of_a_counter_are_listed_or_the_reason_why_not() {
    let redis = Redis::start().await;
    for store in [redis.url().as_str(), "memory"] {
        callers_are_listed_from(store).await;
    }
}

async fn callers_are_listed_from(store: &str) {
    let service = Tollgate::serve_with(
        Policies::of(POLICY).path(),
        &["--store", store, "--store-timeout", "15s"],
    );
    ready(&service).await;
    let admin = Web::new(service.admin);
    let client = Client::connect(service.grpc).await;
    let hit = async |user: &str| {
        let descriptors = vec![descriptor(&[("tenant", "acme")]), descriptor(&[("user", user)])];
        client.decide(request(descriptors)).await.unwrap();
    };
    for user in ["ann", "bob", "ann"] {
        hit(user).await;
    }
    let who = fetch(&admin, "/api/v1/who?domain=test&descriptor=tenant=acme").await;
    let tally = |who, charged| json!({"who": who, "charged": charged, "denied": 0});
    assert_eq!(
        who,
        json!({"rule": "tenant", "tallies": [tally("user=ann", 2), tally("user=bob", 1)]})
    );
    for (query, status, reason) in [
        ("domain=other&descriptor=tenant=acme", 404, "no policy for domain `other`"),
        ("domain=test&descriptor=nothing=here", 404, "no rule"),
        ("domain=test&descriptor=free=x", 404, "has no limit"),
        ("descriptor=free=x", 400, "domain"),
    ] {
        let reply = admin.get(&format!("/api/v1/who?{query}")).await;
        assert!(
            reply.status == status && reply.body.contains(reason),
            "{query}: {} {}",
            reply.status,
            reply.body
        );
    }
    for user in ["bob", "bob", "cy"] {
        hit(user).await;
    }
    let by_command = |command: &str| {
        let output = output([
            command,
            "--admin",
            &format!("http://{}", service.admin),
            "test",
            "tenant=acme",
        ]);
        String::from_utf8(output.stdout).unwrap()
    };
    let callers = "used by   user=bob: 3 charged, 0 denied\n\
                   used by   user=ann: 2 charged, 0 denied\n\
                   used by   user=cy: 0 charged, 1 denied\n";
    assert!(by_command("inspect").contains(callers), "{store}");
    by_command("reset");
    assert_eq!(
        fetch(&admin, "/api/v1/who?domain=test&descriptor=tenant=acme").await["tallies"],
        json!([])
    );
    if store == "memory" {
        assert_eq!(fetch(&admin, "/api/v1/store").await, json!({"servers": []}));
    }
}

/// Asserts that two processes on one store share a journal. Without the store, known entries remain
/// and a warning reports that others may be missing.
async fn one_journal(url: &str, stop: impl FnOnce()) {
    let policy = "domain: test\ndescriptors:\n  - key: user\n    rate_limit: { requests_per_unit: 0, unit: day }\n";
    let policies = Policies::of(policy);
    let flags = ["--store", url, "--store-timeout", "15s"];
    let [one, other] = [(); 2].map(|()| Tollgate::serve_with(policies.path(), &flags));
    for (service, user) in [(&one, "ann"), (&other, "ann"), (&other, "bob")] {
        ready(service).await;
        Client::connect(service.grpc).await.hit("user", user).await;
    }
    for service in [&one, &other] {
        let admin = Web::new(service.admin);
        let top = || async { fetch(&admin, "/api/v1/top").await };
        let has_both = |top: &Value| top["denials"][0]["count"] == 2 && top["total"] == 2;
        let top = becomes("each reports the denials of both", TEST_TIMEOUT, top, has_both).await;
        assert_eq!(
            (&top["processes"], &top["missing"], &top["denials"][0]["key"]),
            (&json!(2), &Value::Null, &json!("user=ann"))
        );
        let bob = fetch(&admin, "/api/v1/denials?key=bob").await;
        assert_eq!((&bob["total"], &bob["denials"][0]["count"]), (&json!(1), &json!(1)));
    }
    let shown = output(["top", "--once", "--admin", &format!("http://{}", one.admin)]);
    let text = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(text.contains("from 2 replicas; "), "{text}");
    stop();
    let admin = Web::new(one.admin);
    let top = || async { fetch(&admin, "/api/v1/top").await };
    let alone =
        becomes("the cause is reported", TEST_TIMEOUT, top, |top| top["missing"].is_string()).await;
    assert_eq!(
        (&alone["total"], &alone["processes"]),
        (&json!(2), &json!(2)),
        "what was read before is known still"
    );
}

#[tokio::test]
async fn processes_on_one_store_have_one_journal() {
    let redis = Redis::start().await;
    let url = redis.url();
    one_journal(&url, move || redis.kill()).await;
}

#[tokio::test]
async fn processes_on_one_cluster_have_one_journal() {
    let cluster = Cluster::start(3, 0).await;
    let url = cluster.url();
    one_journal(&url, move || drop(cluster)).await;
}

#[tokio::test]
async fn denials_of_an_ended_process_are_shown_by_its_peers() {
    let redis = Redis::start().await;
    let policies = Policies::of(
        "domain: test\ndescriptors:\n  - key: user\n    rate_limit: { requests_per_unit: 0, unit: year }\n",
    );
    let url = redis.url();
    let [one, mut other] = [(); 2].map(|()| {
        Tollgate::serve_with(
            policies.path(),
            &["--store", &url, "--store-timeout", "15s", "--drain-delay", "0s"],
        )
    });
    ready(&one).await;
    ready(&other).await;
    Client::connect(other.grpc).await.hit("user", "ann").await;
    assert!(other.terminate().success());
    let top = fetch(&Web::new(one.admin), "/api/v1/top").await;
    assert_eq!((&top["total"], &top["denials"][0]["key"]), (&json!(1), &json!("user=ann")));
}

#[tokio::test]
async fn a_write_whose_client_disconnects_is_in_the_audit_log() {
    let redis = Redis::start().await;
    let mut service = Tollgate::serve_with(
        Policies::of(POLICY).path(),
        &["--store", &redis.url(), "--store-timeout", "5s"],
    );
    ready(&service).await;
    redis.pause();
    let body = json!({"domain": "test", "descriptor": "tenant=acme", "hits": 77, "for": "10m"})
        .to_string();
    let head =
        "POST /api/v1/counter/grant HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json";
    let mut socket = TcpStream::connect(service.admin).await.unwrap();
    socket
        .write_all(format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).as_bytes())
        .await
        .unwrap();
    // A request that arrives later is answered: this one was read before its client leaves.
    assert_eq!(Web::new(service.admin).get("/").await.status, 200);
    drop(socket);
    service.process.wait_for_line("the audit entry", |line| {
        let line: Value = serde_json::from_str(line).ok()?;
        let done = line["fields"]["done"].as_str()?;
        (line["target"] == "audit"
            && done.contains("tenant=acme")
            && done.contains("77 hits granted"))
        .then_some(())
    });
    redis.resume();
}

/// Waits until the service is connected to its store.
async fn ready(service: &Tollgate) -> Web {
    let http = Web::new(service.http);
    let status = || async { http.get("/readyz").await.status };
    becomes("the service is ready", TEST_TIMEOUT, status, |status| *status == 200).await;
    http
}
