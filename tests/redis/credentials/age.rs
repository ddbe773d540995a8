//! Connections that are replaced while in use: because of their age, or to authenticate.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::{
    Loaded, REAUTHENTICATIONS, RENEWED, add_password, clients, guarded, password, remove_password,
    replaced,
};
use crate::support::policy::Policies;
use crate::support::redis::Redis;

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn connections_of_a_maximum_age_are_replaced_without_a_failed_decision() {
    let redis = Redis::start().await;
    let flags = ["--redis-connection-max-age", "1s"];
    let loaded = Loaded::start(&redis.url(), &flags).await;
    let mut now = clients(&redis).await;
    for _ in 0..3 {
        now = replaced(&redis, &now).await;
    }
    let renewed = loaded.metric(RENEWED).await;
    assert!(renewed >= 3, "{renewed} of {now:?}");
    loaded.end("a maximum age of a second");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_connection_that_cannot_be_replaced_remains_in_use() {
    let redis = Redis::start().await;
    let flags = ["--redis-connection-max-age", "1s"];
    let loaded = Loaded::start(&redis.url(), &flags).await;
    redis.command(&["CONFIG", "SET", "maxclients", "1"]).await;
    loaded.each_counted(super::FAILURES, 0).await;
    loaded.wait_for_log("cannot renew a connection to Redis; it remains in use");
    // A connection that were closed now could not be replaced, and decisions would fail.
    loaded.load.go_on(500).await;
    loaded.end("a maximum age, and no more connections");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_server_that_authenticates_once_gets_another_connection_first() {
    let redis = Redis::start_as(guarded()).await;
    let proxy = authenticates_once(redis.address).await;
    let files = Policies::none();
    files.write("password", &password(0));
    let file = files.file("password");
    let flags = ["--redis-user", "app", "--redis-password-file", file.to_str().unwrap()];
    let loaded = Loaded::start(&format!("redis://{proxy}"), &flags).await;
    for number in 1..=3 {
        let renewed = loaded.metric(RENEWED).await;
        let before = clients(&redis).await;
        add_password(&redis, number).await;
        files.write("password", &password(number));
        loaded.each_counted(RENEWED, renewed).await;
        remove_password(&redis, number - 1).await;
        replaced(&redis, &before).await;
    }
    assert_eq!(loaded.metric(REAUTHENTICATIONS).await, 0);
    loaded.end("a server that refuses to authenticate again");
}

/// Starts a proxy that changes the password of all but the first `AUTH` on a connection.
async fn authenticates_once(server: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        loop {
            let (client, _) = listener.accept().await.unwrap();
            tokio::spawn(pass(client, server));
        }
    });
    address
}

async fn pass(client: TcpStream, server: SocketAddr) -> std::io::Result<()> {
    let server = TcpStream::connect(server).await?;
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let back = tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
    let mut has_authenticated = false;
    let mut bytes = vec![0; 64 * 1024];
    loop {
        let count = from_client.read(&mut bytes).await?;
        if count == 0 {
            // Both ways end together.
            back.abort();
            return Ok(());
        }
        let part = &mut bytes[..count];
        let found = part.windows(4).position(|word| word == b"AUTH");
        if let Some(at) = found {
            let secret = part[at..].windows(7).position(|word| word == b"secret-");
            if has_authenticated && let Some(secret) = secret {
                part[at + secret] = b'x';
            }
            has_authenticated = true;
        }
        to_server.write_all(part).await?;
    }
}
