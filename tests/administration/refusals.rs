//! Refused requests: counted by kind, and logged with their peers, at a bounded rate and length.

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{guarded, reload};
use crate::support::policy::{Policies, daily};
use crate::support::tollgate::Tollgate;
use crate::support::web::Web;

/// Returns the fields of the audit log's lines.
fn audit(service: &Tollgate) -> Vec<Value> {
    let log = service.process.log();
    let lines = log.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["target"] == "audit").map(|line| line["fields"].clone()).collect()
}

async fn refused(service: &Tollgate, kind: &str) -> u64 {
    let name = format!("tollgate_http_refused_requests_total{{port=\"admin\",kind=\"{kind}\"}}");
    Web::new(service.http).metric(&name).await
}

#[tokio::test]
async fn wrong_tokens_are_counted_and_logged_with_the_peer_but_not_the_token() {
    let folder = Policies::of(&daily("user", 2));
    let mut service = guarded(&folder, &[]);
    let admin = Web::new(service.admin);
    let wrong = ("authorization", "Bearer not-one-of-those");
    assert_eq!(
        admin.get_with("/api/v1/policies", &[(wrong.0, wrong.1.as_bytes())]).await.status,
        401
    );
    assert_eq!(reload(&admin, &[wrong]).await.status, 401);
    assert_eq!(admin.get("/api/v1/policies").await.status, 401);
    assert_eq!(reload(&admin, &[("authorization", "Bearer reader-0123456789")]).await.status, 403);
    assert_eq!(reload(&admin, &[("authorization", "Bearer writer-0123456789")]).await.status, 200);
    for (kind, count) in [("unknown_token", 2), ("no_token", 1), ("read_only", 1), ("host", 0)] {
        assert_eq!(refused(&service, kind).await, count, "{kind}");
    }
    service.process.wait_for_line("the write", |line| line.contains("ann").then_some(()));
    let lines = audit(&service);
    let is_of_peer =
        |fields: &Value| fields["peer"].as_str().is_some_and(|peer| peer.starts_with("127.0.0.1:"));
    assert!(lines.iter().all(is_of_peer), "{lines:?}");
    let is_logged = |message: &str, kind: &str| {
        lines.iter().any(|fields| fields["message"] == message && fields["kind"] == kind)
    };
    assert!(is_logged("audit: read refused", "unknown_token"), "{lines:?}");
    assert!(is_logged("audit: write refused", "unknown_token"), "{lines:?}");
    assert!(is_logged("audit: write refused", "read_only"), "{lines:?}");
    // Browsers send requests without a token before they have one.
    assert!(!is_logged("audit: read refused", "no_token"), "{lines:?}");
    assert!(!service.process.log().join("\n").contains("not-one-of-those"));
}

#[tokio::test]
async fn a_flood_of_refusals_is_counted_and_its_log_is_throttled() {
    let folder = Policies::of(&daily("user", 2));
    let service = guarded(&folder, &[]);
    let admin = Web::new(service.admin);
    for _ in 0..300 {
        assert_eq!(
            admin
                .get_with("/api/v1/me", &[("authorization", b"Bearer not-one-of-those")])
                .await
                .status,
            401
        );
    }
    assert_eq!(refused(&service, "unknown_token").await, 300);
    let lines = audit(&service).len();
    // A burst of ten, then one per second; on a busy machine the rest of this test takes several
    // seconds.
    assert!((10..50).contains(&lines), "{lines} lines");
}

#[tokio::test]
async fn logged_request_texts_have_a_bounded_length() {
    let mut service = Tollgate::serve(Policies::of(&daily("user", 2)).path());
    let host = "a".repeat(10_000);
    let path = "b".repeat(4_000);
    let request = format!(
        "POST /api/v1/counter/reset?{path} HTTP/1.1\r\nhost: {host}\r\ncontent-length: 0\r\n\r\n"
    );
    let mut stream = TcpStream::connect(service.admin).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = vec![0; 64 << 10];
    let read = stream.read(&mut answer).await.unwrap();
    let answer = String::from_utf8_lossy(&answer[..read]).into_owned();
    assert!(answer.starts_with("HTTP/1.1 421 ") && answer.len() < 2_000, "{answer}");
    assert_eq!(refused(&service, "host").await, 1);
    let line = service.process.wait_for_line("the refusal", |line| {
        line.contains("write refused").then(|| line.to_owned())
    });
    assert!(line.len() < 1_500 && line.contains("(10000 bytes)"), "{} bytes: {line}", line.len());
}
