//! Requests by which a client tries to get past a limit: through each gateway, they count as what
//! an application reads, or are refused.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{Gateway, Hello, envoy_by, envoy_of};
use crate::support::envoy::Envoy;
use crate::support::policy::Policies;
use crate::support::root;
use crate::support::tollgate::Tollgate;
use crate::support::web::Web;

/// Attempts to log in, as an application reads at least one of: targets of a POST request, and
/// lines of its head.
const LOGINS: [(&str, &str); 27] = [
    ("/login", ""),
    ("/login/", ""),
    ("/login?next=/", ""),
    ("/login?", ""),
    ("/login;x", ""),
    ("/login;a=b", ""),
    ("/%6cogin", ""),
    ("/%6Cogin", ""),
    ("/./login", ""),
    ("/x/../login", ""),
    ("/x/%2e%2e/login", ""),
    ("/x/%2E./login", ""),
    ("/x/..%2flogin", ""),
    ("/x/..%5clogin", ""),
    ("/x/..;/login", ""),
    ("/login%00", ""),
    ("/login%0a", ""),
    ("/login%09", ""),
    ("/%u006cogin", ""),
    ("//login", ""),
    ("//x/login", ""),
    ("\\login", ""),
    ("/x\\..\\login", ""),
    ("http://elsewhere/login", ""),
    ("/login", "x-forwarded-uri: /elsewhere\r\nx-forwarded-method: GET\r\n"),
    ("/login", "x-forwarded-for: 198.51.100.1\r\nx-forwarded-for: 198.51.100.2\r\n"),
    ("/login", "x-http-method-override: GET\r\nx-original-url: /elsewhere\r\n"),
];

/// The end of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    /// The gateway refused it.
    Refused,
    /// A charged request, which reached the application.
    Charged,
    /// One that reached the application without a charge.
    Passed,
}

/// Sends a request as it is. Returns `true` if it reached the application.
async fn reaches(gateway: SocketAddr, request: &str) -> bool {
    let mut stream = TcpStream::connect(gateway).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut reply = String::new();
    // A gateway may reset the connection after its answer.
    let _ = stream.read_to_string(&mut reply).await;
    reply.starts_with("HTTP/1.1 200 ") && reply.contains("hello")
}

/// Returns the hits of a counter.
async fn used(admin: &Web, descriptor: &str) -> u64 {
    let descriptor =
        descriptor.replace('=', "%3D").replace(',', "%2C").replace(' ', "%20").replace('\\', "%5C");
    let path = format!("/api/v1/counter?domain=shop&descriptor={descriptor}");
    let counter: Value = serde_json::from_str(&admin.get(&path).await.body).unwrap();
    counter["state"]["windows"][0]["used"].as_u64().unwrap_or(0)
}

async fn outcome(gateway: SocketAddr, admin: &Web, request: &str, counter: &str) -> Outcome {
    let before = used(admin, counter).await;
    let is_admitted = reaches(gateway, &request.replace("HOST", &gateway.to_string())).await;
    match (is_admitted, used(admin, counter).await - before) {
        (true, 0) => Outcome::Passed,
        (true, 1) => Outcome::Charged,
        (false, 0 | 1) => Outcome::Refused,
        (_, charged) => panic!("{request}: {charged} hits"),
    }
}

/// Starts an Envoy whose rate limit filter sends a header.
async fn rate_limit_filter(tollgate: &Tollgate, hello: &Hello) -> Envoy {
    let action = "request_headers: { header_name: x-user, descriptor_key: user }";
    envoy_by("envoy/envoy.yaml", tollgate, hello, |text| {
        text.replace("remote_address: {}", action).replace("domain: gateway", "domain: shop")
    })
    .await
}

#[tokio::test]
async fn no_spelling_of_a_request_passes_a_limit_through_any_gateway() {
    let policy = std::fs::read_to_string(root().join("deploy/gateways/policy.yaml")).unwrap();
    let policy = policy.replace("unit: 5 }", "unit: 1000 }").replace("unit: 100 }", "unit: 1000 }");
    let policy =
        policy.replace("requests_per_unit: 60, burst: 10", "requests_per_unit: 60, burst: 10000");
    let tollgate = Tollgate::serve(Policies::of(&policy).path());
    let admin = Web::new(tollgate.admin);
    let hello = Hello::start().await;
    let (nginx, haproxy, caddy, envoy, filter) = tokio::join!(
        Gateway::nginx(tollgate.http),
        Gateway::haproxy(tollgate.http),
        Gateway::caddy(tollgate.http),
        envoy_of(&tollgate, &hello),
        rate_limit_filter(&tollgate, &hello),
    );
    let doors = [nginx.edge.server, haproxy.edge.server, caddy.edge.server, envoy.edge.server];
    let mut table = Vec::new();
    for (target, head) in LOGINS {
        let request = format!(
            "POST {target} HTTP/1.1\r\nhost: HOST\r\ncontent-length: 0\r\nconnection: close\r\n{head}\r\n"
        );
        let mut row = Vec::new();
        for door in doors {
            let counter = "route=login,remote_address=127.0.0.1";
            row.push(outcome(door, &admin, &request, counter).await);
        }
        table.push(format!("{target} {head:?}: {row:?}"));
        assert!(!row.contains(&Outcome::Passed), "{target} {head:?}: {row:?}");
    }
    let another = "GET /login HTTP/1.1\r\nhost: HOST\r\nconnection: close\r\n\r\n";
    for door in doors {
        let other = outcome(door, &admin, another, "route=login,remote_address=127.0.0.1").await;
        assert_eq!(other, Outcome::Passed, "another method");
    }
    // A header that a mapping reads, twice: neither line is a way to another counter.
    let request = "GET /api/x HTTP/1.1\r\nhost: HOST\r\nx-user: ann\r\nx-user: zoe\r\nconnection: close\r\n\r\n";
    for door in doors.into_iter().chain([filter.edge.server()]) {
        let zoe = outcome(door, &admin, request, "user=zoe").await;
        let joined = outcome(door, &admin, request, "user=ann\\, zoe").await;
        table.push(format!("x-user twice: {zoe:?}, {joined:?}"));
        assert!(zoe != Outcome::Charged && joined != Outcome::Charged, "{zoe:?}, {joined:?}");
    }
    // Envoy's own filter, whose routes tell paths apart, takes the first line.
    let first = outcome(filter.edge.server(), &admin, request, "user=ann").await;
    assert_eq!(first, Outcome::Charged);
    println!("nginx, HAProxy, Caddy, Envoy\n{}", table.join("\n"));
}
