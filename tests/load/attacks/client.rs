//! Attacking clients: many concurrent ones, each of which starts again when it is cut off.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, join_all};
use tokio::io::{AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedReadHalf;

use crate::support::http2::{SETTINGS, frame};

/// Bytes that attackers have sent.
pub(super) static SENT: AtomicU64 = AtomicU64::new(0);

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Runs this many concurrent clients, each of which repeats the attack.
pub(super) async fn run_clients<F: Future<Output = io::Result<()>>>(
    count: usize,
    attack: impl Fn() -> F,
) {
    let one = || async {
        loop {
            // Attackers expect to be cut off.
            let _ = attack().await;
            tokio::task::yield_now().await;
        }
    };
    join_all((0..count).map(|_| one())).await;
}

/// Returns a connection on which the client has started HTTP/2.
pub(super) async fn connect(grpc: SocketAddr) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(grpc).await?;
    stream.write_all(&[PREFACE, &frame(SETTINGS, 0, 0, &[])].concat()).await?;
    Ok(stream)
}

/// Writes the results of `next` to a connection for ever, and reads all that arrives.
pub(super) async fn flood(
    stream: TcpStream,
    opening: &[u8],
    mut next: impl FnMut() -> Vec<u8>,
) -> io::Result<()> {
    let (read, mut write) = stream.into_split();
    let write = async {
        sent(&mut write, opening).await?;
        loop {
            sent(&mut write, &next()).await?;
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        ended = discard(read) => ended,
        ended = write => ended,
    }
}

/// Writes the results of `next` to a connection, each followed by a wait until its instant, and
/// reads all that arrives.
pub(super) async fn paced(
    stream: TcpStream,
    opening: &[u8],
    mut next: impl FnMut() -> (Vec<u8>, Instant),
) -> io::Result<()> {
    let (read, mut write) = stream.into_split();
    let write = async {
        sent(&mut write, opening).await?;
        loop {
            let (bytes, until) = next();
            sent(&mut write, &bytes).await?;
            tokio::time::sleep_until(until.into()).await;
        }
    };
    tokio::select! {
        ended = discard(read) => ended,
        ended = write => ended,
    }
}

/// Number of clients that connect concurrently. More would fill the kernel's queue, and clients
/// would wait a second for that alone.
pub(super) const CONNECTING: usize = 100;

/// Opens this many connections, and holds those that are not closed.
pub(super) fn held<F>(
    count: usize,
    connect: impl Fn() -> F + Send + Sync + 'static,
) -> BoxFuture<'static, ()>
where
    F: Future<Output = io::Result<TcpStream>> + Send,
{
    let connect = Arc::new(connect);
    let attack = move || {
        let connect = Arc::clone(&connect);
        async move {
            let mut held = Vec::new();
            for _ in 0..count / CONNECTING {
                held.push(connect().await?);
            }
            std::future::pending().await
        }
    };
    async move { run_clients(CONNECTING, attack).await }.boxed()
}

/// Writes once, then only reads, until it is cut off.
pub(super) async fn hold(stream: TcpStream, bytes: &[u8]) -> io::Result<()> {
    let (read, mut write) = stream.into_split();
    let write = async {
        sent(&mut write, bytes).await?;
        std::future::pending().await
    };
    tokio::select! {
        ended = discard(read) => ended,
        ended = write => ended,
    }
}

/// Writes once, and never reads.
pub(super) async fn hold_unread(mut stream: TcpStream, bytes: &[u8]) -> io::Result<()> {
    sent(&mut stream, bytes).await?;
    std::future::pending().await
}

/// Writes bytes, and counts them.
async fn sent(write: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<()> {
    write.write_all(bytes).await?;
    SENT.fetch_add(bytes.len() as u64, Ordering::Relaxed);
    Ok(())
}

async fn discard(mut read: OwnedReadHalf) -> io::Result<()> {
    let mut bytes = vec![0; 4 << 10];
    while read.read(&mut bytes).await? > 0 {}
    Ok(())
}
