//! Calls of holds whose caller is gone, and requests that a connection does not take.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail by them"
)]

mod service;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use prost::Message as _;
use service::generated::tollgate::v1::{CancelRequest, ReserveRequest};
use tokio::sync::mpsc;
use tollgate_client::{Client, Code, Descriptor, Error, FailureMode};
use tonic::Status;

const MINUTE: Duration = Duration::from_secs(60);

/// A service that does not answer `Reserve`, and reports the IDs of its calls.
async fn without_answers() -> (Client, mpsc::UnboundedReceiver<(String, String)>) {
    let (calls, received) = mpsc::unbounded_channel();
    let address = service::serve(move |path, message| {
        let calls = calls.clone();
        async move {
            let method = path.rsplit('/').next().unwrap_or_default().to_owned();
            if method == "Reserve" {
                let id = ReserveRequest::decode(message).unwrap().id;
                calls.send((method, id)).unwrap();
                std::future::pending::<()>().await;
            } else {
                let id = CancelRequest::decode(message).unwrap().id;
                calls.send((method, id)).unwrap();
            }
            Ok(service::admitted())
        }
    })
    .await;
    let client = Client::builder(address.to_string()).timeout(MINUTE).build().unwrap();
    (client, received)
}

fn tenant() -> [Descriptor; 1] {
    [Descriptor::new("tenant", "a")]
}

#[tokio::test]
async fn a_reserve_whose_caller_is_gone_is_given_back() {
    let (client, mut calls) = without_answers().await;
    let caller = client.clone();
    let reserve = tokio::spawn(async move { caller.reserve("llm", &tenant(), 1).await });
    let (_, reserved) = calls.recv().await.unwrap();
    reserve.abort();
    assert_eq!(calls.recv().await.unwrap(), ("Cancel".to_owned(), reserved));
    client.close().await;
}

#[tokio::test]
async fn a_reserve_that_is_not_sent_cancels_nothing() {
    let (client, mut calls) = without_answers().await;
    drop(client.reserve("llm", &tenant(), 1).id("one").into_future());
    let caller = client.clone();
    let reserve = tokio::spawn(async move { caller.reserve("llm", &tenant(), 1).id("two").await });
    // A cancel of the first would arrive before, or at the same time.
    let id = "two".to_owned();
    assert_eq!(calls.recv().await.unwrap(), ("Reserve".to_owned(), id.clone()));
    reserve.abort();
    assert_eq!(calls.recv().await.unwrap(), ("Cancel".to_owned(), id));
    client.close().await;
    assert!(calls.try_recv().is_err());
}

#[tokio::test]
async fn a_hold_that_is_dropped_outside_of_the_runtime_is_cancelled() {
    let (calls, mut received) = mpsc::unbounded_channel();
    let address = service::serve(move |path, _| {
        let calls = calls.clone();
        async move {
            calls.send(path).unwrap();
            Ok(service::admitted())
        }
    })
    .await;
    let client = Client::builder(address.to_string()).timeout(MINUTE).build().unwrap();
    let hold = client.reserve("llm", &tenant(), 1).await.unwrap();
    std::thread::spawn(move || drop(hold)).join().unwrap();
    client.close().await;
    assert_eq!(received.recv().await.unwrap(), "/tollgate.v1.HoldService/Reserve");
    assert_eq!(received.recv().await.unwrap(), "/tollgate.v1.HoldService/Cancel");
}

#[tokio::test]
async fn calls_of_holds_are_repeated_after_unavailable_and_others_are_not() {
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    let address = service::serve(move |_, _| {
        counted.fetch_add(1, Ordering::Relaxed);
        async { Err(Status::unavailable("away")) }
    })
    .await;
    let client = Client::builder(address.to_string()).timeout(MINUTE).build().unwrap();
    let tenant = tenant();
    let open = client.should_rate_limit("llm", &tenant).failure_mode(FailureMode::Open);
    let decision = open.await.unwrap();
    assert_eq!((decision.allowed, decision.code), (true, Code::Undecided));
    assert_eq!(count.swap(0, Ordering::Relaxed), 1);
    let reserve = client.reserve("llm", &tenant, 1).failure_mode(FailureMode::Open);
    let mut hold = reserve.await.unwrap();
    assert_eq!(count.swap(0, Ordering::Relaxed), 4);
    assert!(hold.commit(1).await.unwrap().allowed);
}

#[tokio::test]
async fn a_status_that_refuses_a_request_is_an_error_in_every_mode() {
    for (status, is_rejected) in [
        (Status::invalid_argument(""), true),
        (Status::permission_denied(""), true),
        (Status::unimplemented(""), true),
        (Status::internal(""), false),
        (Status::resource_exhausted(""), false),
    ] {
        let answer = status.clone();
        let address = service::serve(move |_, _| {
            let answer = answer.clone();
            async move { Err(answer) }
        })
        .await;
        let client = Client::builder(address.to_string()).timeout(MINUTE);
        let client = client.failure_mode(FailureMode::Closed).build().unwrap();
        let ann = [Descriptor::new("user", "ann")];
        let decision = client.should_rate_limit("shop", &ann).await;
        let refused =
            matches!(&decision, Err(Error::Rejected(found)) if found.code() == status.code());
        let denied = matches!(&decision, Ok(decision) if !decision.allowed);
        assert_eq!((refused, denied), (is_rejected, !is_rejected), "{status:?}: {decision:?}");
        let shadow = client.should_rate_limit("shop", &ann).shadow(true).await.unwrap();
        assert!(shadow.allowed && shadow.error.is_some(), "{shadow:?}");
    }
}
