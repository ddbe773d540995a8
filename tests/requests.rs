//! Requests that no proxy sends are INVALID_ARGUMENT; requests that a proxy can forward get a
//! decision.

use tollgate::grpc::proto::rate_limit_response::Code;
use tollgate::grpc::proto::{RateLimitDescriptor, RateLimitRequest};
use tonic::Code as Grpc;

use crate::support::policy::{Policies, daily};
use crate::support::rls::{Client, descriptor, entry, limit, request};
use crate::support::tollgate::Tollgate;
use crate::support::web::Web;

#[tokio::test]
async fn a_request_without_a_domain_is_refused() {
    refused(
        RateLimitRequest { domain: String::new(), ..request(vec![descriptor(&[("user", "ann")])]) },
        "domain",
    )
    .await;
}

#[tokio::test]
async fn a_request_without_descriptors_is_refused() {
    refused(request(vec![]), "descriptors").await;
}

#[tokio::test]
async fn more_descriptors_than_the_bound_are_refused() {
    refused(
        request(vec![descriptor(&[("user", "ann")]); 1_025]),
        "1024 descriptors (--max-descriptors), found 1025",
    )
    .await;
}

#[tokio::test]
async fn more_entries_than_the_bound_are_refused() {
    refused(
        request(vec![descriptor(&[("user", "ann"); 1_025])]),
        "1024 entries (--max-entries), found 1025",
    )
    .await;
}

#[tokio::test]
async fn more_entries_together_than_the_bound_are_refused() {
    let full = vec![descriptor(&[("user", "ann"); 1_000]); 66];
    refused(
        request(full),
        "65536 entries in total (--max-request-entries), found 66000 up to descriptor 65",
    )
    .await;
}

#[tokio::test]
async fn bounds_follow_their_flags_and_a_refusal_is_counted_and_its_log_throttled() {
    let flags = ["--max-descriptors", "2", "--max-entries", "3", "--max-request-entries", "4"];
    let mut service = Tollgate::serve_with(Policies::of(&daily("user", 5)).path(), &flags);
    let client = Client::connect(service.grpc).await;
    let ann = descriptor(&[("user", "ann")]);
    assert_eq!(client.decide(request(vec![ann.clone(); 2])).await.unwrap().statuses.len(), 2);
    let wide = |entries| descriptor(&vec![("user", "ann"); entries]);
    for beyond in [vec![ann; 3], vec![wide(4)], vec![wide(2), wide(3)]] {
        assert_eq!(client.decide(request(beyond)).await.unwrap_err().code(), Grpc::InvalidArgument);
    }
    service.wait_for_message(
        "invalid requests rejected; most proxies admit a request after this error",
    );
    assert_eq!(Web::new(service.http).metric("tollgate_invalid_requests_total").await, 3);
    assert!(service.terminate().success());
    let lines = service.process.log();
    assert_eq!(
        lines.iter().filter(|line| line.contains("invalid requests rejected")).count(),
        1,
        "the next is 10 s later"
    );
}

#[tokio::test]
async fn an_unknown_unit_of_an_override_is_refused() {
    refused(overridden(0), "unit").await;
    refused(overridden(99), "found 99").await;
}

#[tokio::test]
async fn hits_above_32_bits_are_refused() {
    refused(request(vec![taking(1 << 32)]), "found 4294967296").await;
}

#[tokio::test]
async fn a_request_at_its_bounds_is_decided() {
    let widest = [taking(u32::MAX.into()), descriptor(&[("user", "ann"); 1_024])];
    let widest = widest.into_iter().chain(vec![descriptor(&[("user", "bob")]); 1_022]).collect();
    let answer = send(request(widest)).await.unwrap();
    assert_eq!(answer.statuses.len(), 1_024);
    assert_eq!(answer.overall_code(), Code::OverLimit, "2^32 - 1 hits do not fit into 5");
}

#[tokio::test]
async fn an_unknown_domain_is_admitted_with_a_status_for_each_descriptor() {
    let unknown = RateLimitRequest {
        domain: "absent".to_owned(),
        ..request(vec![descriptor(&[("user", "ann")]); 2])
    };
    let answer = send(unknown).await.unwrap();
    assert_eq!(answer.overall_code(), Code::Ok);
    assert_eq!(answer.statuses.len(), 2);
    assert!(
        answer
            .statuses
            .iter()
            .all(|status| status.code() == Code::Ok && status.current_limit.is_none())
    );
}

#[tokio::test]
async fn a_descriptor_without_entries_is_admitted() {
    let answer = send(request(vec![RateLimitDescriptor::default()])).await.unwrap();
    assert_eq!(answer.overall_code(), Code::Ok);
    assert_eq!(answer.statuses.len(), 1);
}

#[tokio::test]
async fn a_value_of_60_kib_is_limited_like_any_other() {
    is_limited(&[b'x'; 60 << 10]).await;
}

#[tokio::test]
async fn a_value_that_is_not_utf_8_is_limited_like_any_other() {
    is_limited(b"\xff\xfe\x00\x80").await;
}

#[tokio::test]
async fn an_empty_value_is_limited_like_any_other() {
    is_limited(b"").await;
}

#[tokio::test]
async fn hits_of_the_request_are_those_of_descriptors_without_any() {
    let (_service, client) = serve().await;
    let both = RateLimitRequest {
        hits_addend: 3,
        ..request(vec![descriptor(&[("user", "ann")]), taking(1)])
    };
    let answer = client.decide(both).await.unwrap();
    assert_eq!(answer.statuses[1].limit_remaining, 1, "3 and 1 of 5 are taken");
}

#[tokio::test]
async fn more_than_the_message_bound_is_refused() {
    let (service, client) = serve().await;
    let mut large = descriptor(&[]);
    large.entries.push(entry(b"user", &vec![b'x'; 4 << 20]));
    let error = client.decide(request(vec![large])).await.unwrap_err();
    assert_eq!(error.code(), Grpc::OutOfRange, "{error}");
    assert_eq!(Web::new(service.http).metric("tollgate_oversized_messages_total").await, 1);
}

async fn refused(request: RateLimitRequest, because: &str) {
    let error = send(request).await.unwrap_err();
    assert_eq!(error.code(), Grpc::InvalidArgument);
    assert!(
        error.message().contains(because),
        "`{}` does not contain `{because}`",
        error.message()
    );
}

async fn is_limited(value: &[u8]) {
    let (_service, client) = serve().await;
    let one = RateLimitDescriptor { entries: vec![entry(b"user", value)], ..Default::default() };
    for _ in 0..5 {
        assert_eq!(client.status(one.clone()).await.code(), Code::Ok);
    }
    assert_eq!(client.status(one).await.code(), Code::OverLimit);
}

async fn send(
    request: RateLimitRequest,
) -> Result<tollgate::grpc::proto::RateLimitResponse, tonic::Status> {
    let (_service, client) = serve().await;
    client.decide(request).await
}

/// Serves 5 per day for each user.
async fn serve() -> (Tollgate, Client) {
    let service = Tollgate::serve(Policies::of(&daily("user", 5)).path());
    let client = Client::connect(service.grpc).await;
    (service, client)
}

fn taking(hits: u64) -> RateLimitDescriptor {
    RateLimitDescriptor { hits_addend: Some(hits), ..descriptor(&[("user", "ann")]) }
}

fn overridden(unit: i32) -> RateLimitRequest {
    request(vec![RateLimitDescriptor { limit: limit(1, unit), ..descriptor(&[("user", "ann")]) }])
}
