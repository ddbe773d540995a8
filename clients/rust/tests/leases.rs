//! Exchanges of blocks with a service.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail by them"
)]

mod service;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use prost::Message as _;
use service::generated::tollgate::v1::ExchangeRequest;
use tokio::sync::mpsc;
use tollgate_client::{Client, Descriptor};
use tonic::Status;

/// Serves a lender of blocks of 10 hits, which reports exchanges, and fails those while `is_lost`.
async fn serve(is_lost: &Arc<AtomicBool>) -> (Client, mpsc::UnboundedReceiver<ExchangeRequest>) {
    let (exchanges, received) = mpsc::unbounded_channel();
    let is_lost = Arc::clone(is_lost);
    let address = service::serve(move |path, message| {
        let exchanges = exchanges.clone();
        let is_lost = Arc::clone(&is_lost);
        async move {
            if path != service::EXCHANGE {
                return Ok(service::admitted());
            }
            let request = ExchangeRequest::decode(message).unwrap();
            let answer = service::lend(&request, 10);
            // The test may have ended.
            let _ = exchanges.send(request);
            if is_lost.load(Ordering::Relaxed) {
                Err(Status::unavailable("lost"))
            } else {
                Ok(answer)
            }
        }
    })
    .await;
    let client = Client::builder(address.to_string()).timeout(Duration::from_secs(60)).leases();
    (client.build().unwrap(), received)
}

async fn hit(client: &Client, user: &str, hits: u32) {
    let descriptors = [Descriptor::new("user", user)];
    let decision = client.should_rate_limit("shop", &descriptors).hits(hits).await.unwrap();
    assert!(decision.allowed, "{decision:?}");
}

#[tokio::test]
async fn a_closed_client_returns_each_block_once_and_decides_by_the_service() {
    let (client, mut exchanges) = serve(&Arc::default()).await;
    while client.lease_stats().decided == 0 {
        hit(&client, "ann", 3).await;
    }
    client.close().await;
    client.close().await;
    let decided = client.lease_stats().decided;
    for _ in 0..20 {
        hit(&client, "ann", 1).await;
    }
    assert_eq!(client.lease_stats().decided, decided);
    drop(client);
    let mut returned = Vec::new();
    while let Ok(exchange) = exchanges.try_recv() {
        returned.extend(exchange.returns);
    }
    let counts: Vec<_> = returned.iter().map(|back| (back.unused, back.used)).collect();
    assert_eq!(counts, [(7, 3)]);
}

#[tokio::test]
async fn a_client_that_is_dropped_returns_its_blocks() {
    let (client, mut exchanges) = serve(&Arc::default()).await;
    while client.lease_stats().decided == 0 {
        hit(&client, "ann", 4).await;
    }
    drop(client);
    let returned = loop {
        let exchange = exchanges.recv().await.unwrap();
        if let Some(back) = exchange.returns.first() {
            break (back.unused, back.used);
        }
    };
    assert_eq!(returned, (6, 4));
}

#[tokio::test]
async fn a_lost_exchange_is_counted_and_its_key_is_wanted_again_later() {
    let is_lost = Arc::new(AtomicBool::new(true));
    let (client, mut exchanges) = serve(&is_lost).await;
    for _ in 0..8 {
        hit(&client, "ann", 1).await;
    }
    let lost = exchanges.recv().await.unwrap();
    assert_eq!((lost.wants.len(), lost.wants[0].hits), (1, 80), "a tenth of a window has passed");
    is_lost.store(false, Ordering::Relaxed);
    while client.lease_stats().decided == 0 {
        hit(&client, "ann", 1).await;
    }
    assert_eq!(client.lease_stats().lost, 1);
    let again = exchanges.recv().await.unwrap();
    assert_eq!((again.wants.len(), again.returns.len()), (1, 0));
}

#[tokio::test]
async fn exchanges_are_at_least_50_ms_apart_whatever_becomes_hot() {
    let (client, mut exchanges) = serve(&Arc::new(AtomicBool::new(true))).await;
    let begun = std::time::Instant::now();
    let mut users = 0;
    while users < 20 || begun.elapsed() < Duration::from_millis(200) {
        for _ in 0..8 {
            hit(&client, &users.to_string(), 1).await;
        }
        users += 1;
    }
    let most = begun.elapsed().as_millis() / 50 + 2;
    let count = std::iter::from_fn(|| exchanges.try_recv().ok()).count();
    assert!(count <= usize::try_from(most).unwrap(), "{count} of at most {most}, {users} users");
}
