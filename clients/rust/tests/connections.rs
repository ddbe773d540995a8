//! Connections that a service ends, or does not answer.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests fail by them"
)]

mod service;

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tollgate_client::{Client, Descriptor, Error};
use tonic::Code;

const MINUTE: Duration = Duration::from_secs(60);
/// Bytes with which a client begins: its preface and SETTINGS follow.
const PREFACE: usize = 24;
const HEADERS: u8 = 1;
const SETTINGS: [u8; 9] = [0, 0, 0, 4, 0, 0, 0, 0, 0];
/// A GOAWAY without an error, after which no stream is processed.
const GOAWAY: [u8; 17] = [0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Reads frames up to the first request.
async fn read_request(stream: &mut TcpStream) {
    stream.read_exact(&mut [0; PREFACE]).await.unwrap();
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.unwrap();
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut body = vec![0; usize::try_from(length).unwrap()];
        stream.read_exact(&mut body).await.unwrap();
        if head[3] == HEADERS {
            return;
        }
    }
}

#[tokio::test]
async fn a_request_that_goaway_refuses_is_sent_again() {
    let admitting = service::serve(|_, _| async { Ok(service::admitted()) }).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = listener.local_addr().unwrap().to_string();
    tokio::spawn(async move {
        let (mut first, _) = listener.accept().await.unwrap();
        first.write_all(&SETTINGS).await.unwrap();
        read_request(&mut first).await;
        first.write_all(&GOAWAY).await.unwrap();
        let (mut second, _) = listener.accept().await.unwrap();
        let mut service = TcpStream::connect(admitting).await.unwrap();
        // It ends with the test.
        let _ = copy_bidirectional(&mut second, &mut service).await;
    });
    let client = Client::builder(target).timeout(MINUTE).build().unwrap();
    let decision = client.should_rate_limit("shop", &[Descriptor::new("user", "ann")]).await;
    assert!(decision.unwrap().allowed);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_accepts_connections_and_does_not_answer_is_not_connected() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = listener.local_addr().unwrap().to_string();
    let client = Client::builder(target).timeout(MINUTE).build().unwrap();
    let decision = client.should_rate_limit("shop", &[Descriptor::new("user", "ann")]).await;
    let Err(Error::NoDecision(status)) = decision else { panic!("{decision:?}") };
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
}

#[tokio::test]
async fn a_name_without_an_address_is_no_decision() {
    let client = Client::builder("tollgate.invalid:1").timeout(MINUTE).build().unwrap();
    let decision = client.should_rate_limit("shop", &[Descriptor::new("user", "ann")]).await;
    let Err(Error::NoDecision(status)) = decision else { panic!("{decision:?}") };
    assert!(status.message().starts_with("tollgate.invalid"), "{status:?}");
}
