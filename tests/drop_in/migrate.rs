//! `tollgate migrate`: the files that it writes are served, and `--live` compares the answers of
//! two services.

use std::sync::atomic::{AtomicU32, Ordering};

use ::tollgate::grpc::proto::rate_limit_response::rate_limit::Unit;
use ::tollgate::grpc::proto::rate_limit_response::{Code, DescriptorStatus, RateLimit};
use ::tollgate::grpc::proto::rate_limit_service_server::{
    RateLimitService, RateLimitServiceServer,
};
use ::tollgate::grpc::proto::{RateLimitRequest, RateLimitResponse};
use tonic::{Request, Response, Status};

use super::{Istio, Ratelimit};
use crate::support::policy::{Policies, yearly};
use crate::support::redis::Redis;
use crate::support::tollgate::{Tollgate, command, migrate, path};

const MANIFEST: &str = include_str!("../migrate/ratelimit.yaml");
const TRACE: &str = r#"{"domain": "test", "descriptors": [{"entries": [{"key": "user", "value": "ann"}]}]}
{"at": 1, "request": {"domain": "test", "descriptors": [{"entries": [{"key": "user", "value": "ann"}]}]}}
{"domain": "", "descriptors": []}
"#;

/// Compares two services of one policy each, the old and the new one.
async fn compare(istio: &Istio, there: &mut Ratelimit, other: &Istio, peek: bool) -> (i32, String) {
    let trace = istio.map.files.file("trace.jsonl");
    std::fs::write(&trace, TRACE).unwrap();
    let mut here = other.serve(&[]).await;
    let live = there.grpc().to_string();
    let against = here.grpc().to_string();
    let mut arguments = vec!["--live", &live, "--against", &against, path(&trace)];
    arguments.extend(peek.then_some("--peek"));
    let (status, text, complaints) = migrate(&arguments);
    (status, text.replace(path(istio.map.files.path()), "") + &complaints)
}

#[tokio::test]
async fn equal_responses_exit_0_and_differences_are_listed() {
    let istio = Istio::with(&yearly("user", 2)).await;
    let other = Istio::with(&yearly("user", 1)).await;
    let mut there = istio.serve(&[]).await;
    let (status, text) =
        compare(&istio, &mut there, &Istio::with(&yearly("user", 2)).await, false).await;
    assert_eq!((status, text.as_str()), (0, "3 requests: 3 equal, 0 different\n"));
    // The two hits are used up now, and 0 hits charge nothing.
    let (status, text) =
        compare(&istio, &mut there, &Istio::with(&yearly("user", 2)).await, true).await;
    assert_eq!((status, text.as_str()), (0, "3 requests: 3 equal, 0 different\n"));
    let (status, text) = compare(&istio, &mut there, &other, false).await;
    assert_eq!(status, 1);
    insta::assert_snapshot!(text, @r"
    /trace.jsonl:1: overall_code: OVER_LIMIT from --live, OK from --against
    /trace.jsonl:1: user=ann: current_limit: 2 per YEAR from --live, 1 per YEAR from --against
    /trace.jsonl:1: user=ann: code: OVER_LIMIT from --live, OK from --against
    /trace.jsonl:2: user=ann: current_limit: 2 per YEAR from --live, 1 per YEAR from --against
    3 requests: 1 equal, 2 different
      code 1, current_limit 2, overall_code 1
    ");
}

#[tokio::test]
async fn a_line_that_is_not_a_request_is_skipped_and_exits_2() {
    let files = Policies::of(&yearly("user", 2));
    let service = Tollgate::serve(&files.file("policy.yaml"));
    let request = TRACE.lines().next().unwrap();
    files.write("trace.jsonl", &format!("{request}\n{{\"domain\":\n\n{request}\n"));
    let address = service.grpc.to_string();
    let trace = files.file("trace.jsonl");
    let (status, text, _) =
        migrate(&["--live", &address, "--against", &address, "--peek", path(&trace)]);
    assert_eq!(status, 2, "{text}");
    assert!(text.contains("trace.jsonl:2: skipped: EOF while parsing"), "{text}");
    assert!(
        text.contains("2 requests: 2 equal, 0 different\n1 line of the trace is not a request"),
        "{text}"
    );
}

/// An envoyproxy/ratelimit that ignores the hits of a descriptor, as all did before the end of
/// 2024.
struct Old(AtomicU32);

#[tonic::async_trait]
impl RateLimitService for Old {
    async fn should_rate_limit(
        &self,
        _: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let limit =
            RateLimit { requests_per_unit: 10, unit: Unit::Year.into(), ..Default::default() };
        let limit_remaining = self.0.fetch_sub(1, Ordering::Relaxed);
        let code = Code::Ok.into();
        let status = DescriptorStatus {
            code,
            current_limit: Some(limit),
            limit_remaining,
            ..Default::default()
        };
        Ok(Response::new(RateLimitResponse {
            overall_code: code,
            statuses: vec![status],
            ..Default::default()
        }))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_charges_a_peek_is_reported() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let old = listener.local_addr().unwrap().to_string();
    let server = tonic::transport::Server::builder()
        .add_service(RateLimitServiceServer::new(Old(AtomicU32::new(9))));
    tokio::spawn(server.serve_with_incoming(tonic::transport::server::TcpIncoming::from(listener)));
    let files = Policies::of(&yearly("user", 10));
    files.write("trace.jsonl", &TRACE.lines().take(2).collect::<Vec<_>>().join("\n"));
    let service = Tollgate::serve(&files.file("policy.yaml"));
    let new = service.grpc.to_string();
    let trace = files.file("trace.jsonl");
    let (status, text, complaints) =
        migrate(&["--live", &old, "--against", &new, "--peek", path(&trace)]);
    assert_eq!((status, text.as_str()), (2, ""));
    assert!(complaints.contains("limit_remaining fell from 9 to 7 in 2 peeks"), "{complaints}");
}

#[test]
fn an_unreachable_service_exits_2() {
    let files = Policies::none();
    files.write("trace.jsonl", TRACE);
    let closed =
        std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let trace = files.file("trace.jsonl");
    let (status, _, complaints) = migrate(&["--live", &closed, "--against", &closed, path(&trace)]);
    assert!(
        status == 2 && complaints.contains(&format!("cannot connect to {closed}")),
        "{complaints}"
    );
    let service = Tollgate::serve(Policies::of(&yearly("user", 2)).path());
    let http = service.http.to_string();
    let (status, page, complaints) = migrate(&["--live", &http, "--against", &http, path(&trace)]);
    assert!(
        status == 2 && complaints.contains("no response"),
        "a port without gRPC: {page}{complaints}"
    );
}

/// Equivalent of `set -a; . tollgate.env; tollgate serve`.
#[tokio::test]
async fn written_files_are_served_and_decide_the_same() {
    let redis = Redis::start().await;
    let files = Policies::none();
    files.write("ratelimit.yaml", &MANIFEST.replace("redis:6379", &redis.address.to_string()));
    let output = files.file("own");
    let manifest = files.file("ratelimit.yaml");
    let (status, page, _) = migrate(&["--manifest", path(&manifest), "--output", path(&output)]);
    assert_eq!(status, 0, "{page}");
    let variables = std::fs::read_to_string(output.join("tollgate.env")).unwrap();
    insta::assert_snapshot!(variables.replace(path(files.path()), "").replace(&redis.address.to_string(), "REDIS"), @r"
    # Generated by `tollgate migrate` from container limiter of Deployment ratelimit in /ratelimit.yaml. Defaults are omitted.
    TOLLGATE_POLICY=/own/policies
    TOLLGATE_POLICY_DIALECT=envoyproxy
    TOLLGATE_ADMIN_LISTEN=0.0.0.0:6070
    TOLLGATE_ADMIN_OPEN_PAGES=true
    TOLLGATE_MAX_CONNECTION_AGE=86400s
    TOLLGATE_MAX_CONNECTION_AGE_GRACE=3600s
    TOLLGATE_LOG=warn
    TOLLGATE_START_WITHOUT_POLICY=true
    TOLLGATE_READY_WITHOUT_POLICY=true
    TOLLGATE_STATS_PAGE=true
    TOLLGATE_STORE=redis://REDIS
    TOLLGATE_STORE_TIMEOUT=1s
    TOLLGATE_DENY_CACHE_MAX=0s
    # TOLLGATE_REDIS_USER, TOLLGATE_REDIS_PASSWORD= from REDIS_AUTH: Secret redis, password; or TOLLGATE_REDIS_PASSWORD_FILE=PATH
    ");
    let folder =
        std::fs::read_dir(output.join("policies")).unwrap().map(|file| file.unwrap().file_name());
    assert_eq!(folder.collect::<Vec<_>>(), ["config.yaml"]);
    let (status, _, complaints) =
        migrate(&["--manifest", path(&manifest), "--output", path(&output)]);
    assert!(
        status == 2 && complaints.contains("already exists"),
        "no file is overwritten: {complaints}"
    );

    let lines = variables.lines().filter(|line| !line.starts_with('#'));
    let set: Vec<_> = lines.map(|line| line.split_once('=').unwrap()).collect();
    let service = Tollgate::serve_as(command(["serve"]).envs(set), &["--log", "info"]);
    let client = crate::support::rls::Client::connect(service.grpc).await;
    assert!(client.hit("user", "ann").await && client.hit("user", "ann").await);
    assert!(!client.hit("user", "ann").await);
    assert_eq!(client.limit("user", "bob").await, Some(2));
}
