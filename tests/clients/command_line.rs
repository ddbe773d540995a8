//! curl and h2load, which speak HTTP/2 but not gRPC.

use std::path::PathBuf;
use std::process::Command;

use prost::Message as _;
use tempfile::TempDir;
use tollgate::grpc::proto::RateLimitResponse;
use tollgate::grpc::proto::rate_limit_response::Code;

use crate::support::policy::{Policies, daily};
use crate::support::rls::{Client, descriptor, request};
use crate::support::tollgate::Tollgate;

const GRPC: [&str; 4] = ["--header", "content-type: application/grpc", "--header", "te: trailers"];

#[test]
fn curl_reads_decisions_and_their_status_in_trailers() {
    let service = serve(1);
    for expected in [Code::Ok, Code::OverLimit] {
        let (response, headers) = curl(&service);
        assert!(headers.starts_with("HTTP/2 200"), "{headers}");
        assert!(headers.lines().any(|line| line.trim() == "grpc-status: 0"), "{headers}");
        assert_eq!(response.overall_code(), expected);
    }
}

#[tokio::test]
async fn h2load_makes_ten_thousand_calls_on_one_connection_and_each_is_counted() {
    let service = serve(10_000);
    let (_folder, body) = body();
    let mut command = Command::new("h2load");
    command.args(["-n", "10000", "-c", "1", "-m", "32", "--connection-active-timeout", "120s"]);
    let load = command.arg("--data").arg(body).args(GRPC).arg(url(&service)).output().unwrap();
    let report = String::from_utf8_lossy(&load.stdout);
    assert!(report.contains("10000 succeeded, 0 failed, 0 errored, 0 timeout"), "{report}");
    let client = Client::connect(service.grpc).await;
    assert_eq!(client.status(descriptor(&[("user", "ann")])).await.code(), Code::OverLimit);
}

/// Sends one call with curl. Returns the response, and the headers with the trailers.
fn curl(service: &Tollgate) -> (RateLimitResponse, String) {
    let (folder, body) = body();
    let headers = folder.path().join("headers");
    let response = folder.path().join("response");
    let mut command = Command::new("curl");
    command
        .args(["--silent", "--show-error", "--http2-prior-knowledge", "--max-time", "60"])
        .args(GRPC);
    command.arg("--data-binary").arg(format!("@{}", body.display()));
    command.arg("--dump-header").arg(&headers).arg("--output").arg(&response);
    let called = command.arg(url(service)).output().unwrap();
    assert!(called.status.success(), "{}", String::from_utf8_lossy(&called.stderr));
    let response = std::fs::read(response).unwrap();
    let message = RateLimitResponse::decode(&response[5..]).unwrap();
    (message, std::fs::read_to_string(headers).unwrap())
}

/// Writes a gRPC-framed request of one hit to a file.
fn body() -> (TempDir, PathBuf) {
    let folder = TempDir::new().unwrap();
    let message = request(vec![descriptor(&[("user", "ann")])]).encode_to_vec();
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    let body = folder.path().join("body");
    std::fs::write(&body, [&[0], &length[..], &message].concat()).unwrap();
    (folder, body)
}

fn url(service: &Tollgate) -> String {
    format!("http://{}/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit", service.grpc)
}

fn serve(amount: u32) -> Tollgate {
    Tollgate::serve(Policies::of(&daily("user", amount)).path())
}
