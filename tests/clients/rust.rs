//! tonic, which most tests use: the cases that they do not cover.

use prost::Message as _;
use tokio::task::JoinSet;
use tollgate::grpc::proto::RateLimitRequest;
use tonic::Code;

use crate::support::policy::{Policies, daily};
use crate::support::redis::Redis;
use crate::support::rls::{Client, descriptor, request};
use crate::support::tollgate::Tollgate;

const ONE_CONNECTION: [&str; 2] = ["--max-connections", "1"];
/// Concurrent calls of tests that send many.
const CONCURRENCY: usize = 8;

#[tokio::test]
async fn a_call_cancelled_while_waiting_for_the_store_ends_and_its_connection_is_kept() {
    let redis = Redis::start().await;
    let store = format!("redis://{}", redis.address);
    let service =
        serve(&[&["--store", &store, "--store-timeout", "1h"], &ONE_CONNECTION[..]].concat());
    let client = Client::connect(service.grpc).await;
    redis.pause();
    let mut calls = JoinSet::new();
    let caller = client.clone();
    calls.spawn(async move { caller.hit("user", "ann").await });
    assert!(client.hit("free", "x").await);
    calls.shutdown().await;
    assert!(client.hit("free", "x").await);
}

#[tokio::test]
async fn a_message_of_maximum_size_is_answered_and_a_larger_one_is_refused() {
    const MAX_MESSAGE: usize = 4 << 20;
    let service = serve(&[]);
    let client = Client::connect(service.grpc).await;
    client.decide(sized(MAX_MESSAGE)).await.unwrap();
    assert_eq!(client.decide(sized(MAX_MESSAGE + 1)).await.unwrap_err().code(), Code::OutOfRange);
    assert!(client.hit("user", "ann").await);
}

#[tokio::test]
async fn ten_thousand_calls_on_one_connection_are_answered() {
    let service = serve(&ONE_CONNECTION);
    let client = Client::connect(service.grpc).await;
    let mut callers = JoinSet::new();
    for _ in 0..CONCURRENCY {
        let client = client.clone();
        callers.spawn(async move {
            for _ in 0..10_000 / CONCURRENCY {
                assert!(client.hit("free", "x").await);
            }
        });
    }
    callers.join_all().await;
}

/// Returns a request of exactly `size` bytes.
fn sized(size: usize) -> RateLimitRequest {
    let of = |length: usize| request(vec![descriptor(&[("user", &"v".repeat(length))])]);
    let lengths = (0..64).map(|less| size - less).map(of);
    lengths
        .into_iter()
        .find(|request| request.encoded_len() == size)
        .expect("a request of this size")
}

fn serve(flags: &[&str]) -> Tollgate {
    Tollgate::serve_with(Policies::of(&daily("user", 2)).path(), flags)
}
