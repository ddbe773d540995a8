//! Replies of the scripts stay the same, byte for byte: during a rollout, processes of two releases
//! run the scripts of both.
//!
//! A proxy records the traffic of the requests of `golden`. With `TOLLGATE_GOLDEN=write` the file
//! is written instead of compared.
#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "replies are another crate's enum, of which two arms are meant"
)]

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use redis::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tollgate::limiter::Modes;

use super::golden::{PREFIX, compare, file, write_amendments, write_requests};
use crate::support::redis::Redis;
use crate::support::traces::sides::Sides;

/// The bytes of one direction of a connection.
type Bytes = Arc<Mutex<Vec<u8>>>;
/// The commands and the replies of each connection.
type Recording = Arc<Mutex<Vec<[Bytes; 2]>>>;

#[tokio::test]
async fn replies_of_the_scripts_do_not_change() {
    let redis = Redis::start().await;
    let recording = Recording::default();
    let proxy = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let url = format!("redis://{}", proxy.local_addr().unwrap());
    let accepting = tokio::spawn(accept(proxy, redis.address, Arc::clone(&recording)));
    let sides = Sides::new(&[url], PREFIX, Modes::default()).await;
    sides.install(&std::fs::read_to_string(file("policy.yaml")).unwrap());
    write_requests(&sides).await;
    write_amendments(&sides).await;
    accepting.abort();
    let mut text = String::new();
    for [commands, replies] in &*recording.lock().unwrap() {
        let replies = values(replies);
        for (command, reply) in values(commands).iter().zip(&replies) {
            if is_script(command) && is_of_decisions(reply) {
                writeln!(text, "{}", shown(reply)).unwrap();
            }
        }
    }
    compare("replies.txt", &text);
}

async fn accept(proxy: TcpListener, server: SocketAddr, recording: Recording) {
    loop {
        let (client, _) = proxy.accept().await.unwrap();
        let (client_reads, client_writes) = client.into_split();
        let (server_reads, server_writes) = TcpStream::connect(server).await.unwrap().into_split();
        let bytes = [Bytes::default(), Bytes::default()];
        recording.lock().unwrap().push(bytes.clone());
        let [commands, replies] = bytes;
        tokio::spawn(pass(client_reads, server_writes, commands));
        tokio::spawn(pass(server_reads, client_writes, replies));
    }
}

/// Copies until one side ends, and records the bytes.
async fn pass(mut source: OwnedReadHalf, mut sink: OwnedWriteHalf, recorded: Bytes) {
    let mut bytes = vec![0; 64 * 1024];
    while let Ok(count @ 1..) = source.read(&mut bytes).await {
        recorded.lock().unwrap().extend(&bytes[..count]);
        if sink.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}

/// Returns the values of one direction.
fn values(bytes: &Bytes) -> Vec<Value> {
    let bytes = bytes.lock().unwrap();
    let mut rest = bytes.as_slice();
    let mut parser = redis::Parser::new();
    // The parser reads ahead: it may have more values when all bytes are read.
    std::iter::from_fn(|| parser.parse_value(&mut rest).ok()).collect()
}

fn is_script(command: &Value) -> bool {
    let Value::Array(words) = command else { return false };
    matches!(words.first(), Some(Value::BulkString(name)) if name.starts_with(b"EVAL"))
}

/// Returns `false` for errors, after which the script is sent as text, and for the replies to the
/// scripts that prove the permissions of a connection, or are loaded without a request.
fn is_of_decisions(reply: &Value) -> bool {
    match reply {
        Value::BulkString(bytes) => !bytes.is_empty() && !bytes.starts_with(b"table: "),
        Value::Array(_) => true,
        _ => false,
    }
}

/// Returns a reply as text: the bytes in hexadecimal.
fn shown(reply: &Value) -> String {
    match reply {
        Value::BulkString(bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        Value::Array(values) => {
            let values: Vec<_> = values.iter().map(shown).collect();
            format!("[{}]", values.join(" "))
        }
        other => format!("{other:?}"),
    }
}
