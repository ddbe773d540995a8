//! `/auth/NAME` on the HTTP port.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{POLICY, serve};
use crate::support::tollgate::lasting_address;
use crate::support::web::{Reply, Web};

/// Headers of a request by a client.
const DESCRIBED: [(&str, &str); 4] = [
    ("x-forwarded-method", "GET"),
    ("x-forwarded-host", "shop.example"),
    ("x-forwarded-uri", "/api/orders?page=2"),
    ("x-forwarded-for", "203.0.113.7"),
];

/// Describes a request with some of the headers replaced.
async fn send(web: &Web, replaced: &[(&'static str, &str)]) -> Reply {
    let is_own = |name: &str| replaced.iter().any(|(other, _)| *other == name);
    let rest = DESCRIBED.iter().copied().filter(|(name, _)| !is_own(name));
    let headers: Vec<_> = rest.chain(replaced.iter().copied()).collect();
    web.send_with("GET", "/auth/shop", &headers, "").await
}

#[tokio::test]
async fn a_request_is_admitted_with_200_and_denied_with_429() {
    let (_service, web) = serve(POLICY, &["--response-headers", "ietf,legacy"]);
    for left in ["1", "0"] {
        let reply = send(&web, &[]).await;
        assert_eq!((reply.status, reply.body.as_str()), (200, ""));
        assert_eq!(reply.header("ratelimit-remaining"), left);
    }
    let denied = send(&web, &[]).await;
    assert_eq!((denied.status, denied.header("content-type")), (429, "application/problem+json"));
    let body: serde_json::Value = serde_json::from_str(&denied.body).unwrap();
    assert_eq!((&body["status"], &body["title"]), (&429.into(), &"Too Many Requests".into()));
    let seconds: u64 = denied.header("retry-after").parse().unwrap();
    assert!((1..=86_400).contains(&seconds), "{seconds}");
    assert_eq!(denied.header("ratelimit-reset"), denied.header("retry-after"));
    assert!(denied.header("ratelimit").contains(";r=0;t="), "{denied:?}");
    assert_eq!(send(&web, &[("x-forwarded-for", "203.0.113.8")]).await.status, 200);
}

/// Headers that Traefik 3 adds to a client's own, by its documentation of `forwardAuth`.
#[tokio::test]
async fn a_request_as_traefik_describes_it_is_decided() {
    let (_service, web) = serve(POLICY, &[]);
    let mut statuses = Vec::new();
    for _ in 0..3 {
        let more = [
            ("X-Forwarded-Proto", "https"),
            ("X-Forwarded-Port", "443"),
            ("X-Forwarded-Server", "traefik-0"),
            ("X-Real-Ip", "203.0.113.7"),
            ("Accept-Encoding", "gzip"),
        ];
        statuses.push(send(&web, &more).await.status);
    }
    assert_eq!(statuses, [200, 200, 429]);
}

#[tokio::test]
async fn a_gateway_describes_the_request_completely() {
    let (_service, web) = serve(POLICY, &[]);
    for name in ["x-forwarded-method", "x-forwarded-host", "x-forwarded-uri"] {
        let without: Vec<_> = DESCRIBED.into_iter().filter(|(own, _)| *own != name).collect();
        let twice: Vec<_> = DESCRIBED.into_iter().chain([(name, "x")]).collect();
        for headers in [without, twice] {
            let reply = web.send_with("GET", "/auth/shop", &headers, "").await;
            assert_eq!(reply.status, 400);
            assert!(reply.body.contains(name), "{}", reply.body);
        }
    }
    assert_eq!(send(&web, &[]).await.status, 200, "nothing was charged");
}

#[tokio::test]
async fn requests_of_browsers_and_any_method_are_decided() {
    let (_service, web) = serve(POLICY, &[]);
    let browser = [
        ("user-agent", "Mozilla/5.0"),
        ("origin", "https://shop.example"),
        ("sec-fetch-site", "cross-site"),
        ("host", "tollgate.internal:8080"),
    ];
    assert_eq!(send(&web, &browser).await.status, 200);
    let reply = web.send_with("POST", "/auth/shop", &DESCRIBED, "a body").await;
    assert_eq!(reply.status, 200);
    assert_eq!(web.send_with("HEAD", "/auth/shop", &DESCRIBED, "").await.status, 429);
}

#[tokio::test]
async fn a_body_is_not_waited_for() {
    let (service, _web) = serve(POLICY, &[]);
    let mut stream = TcpStream::connect(service.http).await.unwrap();
    let headers = DESCRIBED.map(|(name, value)| format!("{name}: {value}\r\n")).concat();
    let head = format!("POST /auth/shop HTTP/1.1\r\nhost: a\r\ncontent-length: 9\r\n{headers}\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut reply = [0; 15];
    stream.read_exact(&mut reply).await.unwrap();
    assert_eq!(&reply, b"HTTP/1.1 200 OK");
}

#[tokio::test]
async fn an_unknown_mapping_is_404_and_an_unknown_peer_403() {
    let (_service, web) = serve(POLICY, &[]);
    assert_eq!(web.send_with("GET", "/auth/other", &DESCRIBED, "").await.status, 404);
    let (_service, web) = serve(POLICY, &["--gateways", "192.0.2.1"]);
    let refused = send(&web, &[]).await;
    assert_eq!(refused.status, 403);
    assert!(refused.body.contains("--gateways"), "{}", refused.body);
}

#[tokio::test]
async fn what_a_client_writes_into_a_request_does_not_change_its_counters() {
    let (_service, web) = serve(POLICY, &[]);
    // Hops before the last are written by the client, and so is the case of a header's name.
    assert_eq!(send(&web, &[("x-forwarded-for", "1.1.1.1, 203.0.113.7")]).await.status, 200);
    assert_eq!(send(&web, &[("X-Forwarded-For", "2.2.2.2,203.0.113.7")]).await.status, 200);
    assert_eq!(send(&web, &[("x-forwarded-for", "3.3.3.3, 203.0.113.7")]).await.status, 429);
    let two = [("x-forwarded-for", "4.4.4.4"), ("x-forwarded-for", "203.0.113.7")];
    assert_eq!(send(&web, &two).await.status, 429);
}

#[tokio::test]
async fn each_spelling_of_a_path_has_the_same_limit() {
    let (_service, web) = serve(POLICY, &[]);
    // Each from an address of its own, whose limit is another.
    let mut number = 0;
    let mut login = |path: &'static str| {
        let web = web.clone();
        number += 1;
        let client = format!("198.51.100.{number}");
        async move {
            send(&web, &[("x-forwarded-uri", path), ("x-forwarded-for", &client)]).await.status
        }
    };
    assert_eq!(login("/login").await, 200);
    for path in [
        "/login",
        "/login?a=b",
        "/%6cogin",
        "/x/../login",
        "/x/%2e%2e/login",
        "http://shop.example/login",
        "/./login;x",
        "%2flogin",
        "\\login",
    ] {
        assert_eq!(login(path).await, 429, "{path}");
    }
    for path in ["//login", "/x/..%2flogin", "/x%2f..%2flogin", "/x/..;/login", "/x\\..\\login"] {
        assert_eq!(login(path).await, 400, "{path}");
    }
    assert_eq!(login("/other").await, 200);
}

#[tokio::test]
async fn a_mapping_decides_what_happens_without_a_decision() {
    for (undecided, status) in [("error", 503), ("allow", 200), ("deny", 503)] {
        let policy = POLICY.replace("undecided: error", &format!("undecided: {undecided}"));
        let store = format!("redis://{}", lasting_address());
        let (_service, web) = serve(&policy, &["--store", &store, "--ready-without-store"]);
        let reply = send(&web, &[]).await;
        assert_eq!(reply.status, status, "{undecided}");
        assert!(status == 200 || reply.body.contains("store"), "{}", reply.body);
    }
}
