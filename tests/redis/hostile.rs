//! A server that is not Redis: it redirects to any host, or sends replies without an end.

use std::net::{Ipv4Addr, SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::{policy, start};
use crate::support::policy::Policies;
use crate::support::rls::{Client, descriptor, request};
use crate::support::tollgate::Tollgate;
use crate::support::{TEST_TIMEOUT, becomes};

const LIMIT: &str = "requests_per_unit: 10, unit: year";
const CHUNK: usize = 64 * 1024;

/// A server that answers OK to all, except to the calls of scripts after the first on a connection,
/// which is one of the checks of a new connection.
struct Hostile {
    address: SocketAddr,
    /// Bytes that it sent after its answers.
    sent: Arc<AtomicU64>,
    /// Connections that were closed while it sent them.
    closed: Arc<AtomicU64>,
}

impl Hostile {
    /// Starts a server that answers decisions with `answer`; with `is_endless`, data without an end
    /// follow.
    async fn start(answer: String, is_endless: bool) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let sent = Arc::<AtomicU64>::default();
        let closed = Arc::<AtomicU64>::default();
        let counts = (Arc::clone(&sent), Arc::clone(&closed));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let answer = answer.clone();
                let (sent, closed) = counts.clone();
                tokio::spawn(async move {
                    let Some(mut stream) = serve(stream, &answer, is_endless).await else { return };
                    while stream.write_all(&[b'x'; CHUNK]).await.is_ok() {
                        sent.fetch_add(CHUNK as u64, Ordering::Relaxed);
                    }
                    closed.fetch_add(1, Ordering::Relaxed);
                });
            }
        });
        Self { address, sent, closed }
    }

    fn url(&self) -> String {
        format!("redis://{}", self.address)
    }
}

/// Answers commands until the connection ends, or until a decision if data without an end follow.
async fn serve(stream: TcpStream, answer: &str, is_endless: bool) -> Option<TcpStream> {
    let mut stream = BufReader::new(stream);
    let mut scripts = 0;
    loop {
        let is_script = next_command(&mut stream).await? == b"EVALSHA";
        scripts += usize::from(is_script);
        let is_decision = is_script && scripts > 1;
        let reply = if is_decision { answer } else { "+OK\r\n" };
        stream.write_all(reply.as_bytes()).await.ok()?;
        if is_decision && is_endless {
            return Some(stream.into_inner());
        }
    }
}

/// Returns the name of the next command.
async fn next_command(stream: &mut BufReader<TcpStream>) -> Option<Vec<u8>> {
    let mut words = Vec::new();
    for _ in 0..number(stream).await? {
        let mut word = vec![0; number(stream).await?];
        stream.read_exact(&mut word).await.ok()?;
        number_line(stream).await?;
        words.push(word);
    }
    words.into_iter().next()
}

async fn number(stream: &mut BufReader<TcpStream>) -> Option<usize> {
    number_line(stream).await?.get(1..)?.trim().parse().ok()
}

async fn number_line(stream: &mut BufReader<TcpStream>) -> Option<String> {
    let mut line = String::new();
    (stream.read_line(&mut line).await.ok()? > 0).then_some(line)
}

/// Waits for a line of the log that contains a text.
fn logs(service: &mut Tollgate, text: &str) -> String {
    service.process.wait_for_line(text, |line| line.contains(text).then(|| line.to_owned()))
}

fn hit() -> tollgate::grpc::proto::RateLimitRequest {
    request(vec![descriptor(&[("user", "a")])])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_single_server_cannot_redirect_to_another_host() {
    for kind in ["MOVED", "ASK"] {
        let other = StdListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        other.set_nonblocking(true).unwrap();
        let target = other.local_addr().unwrap();
        let hostile = Hostile::start(format!("-{kind} 7 {target}\r\n"), false).await;
        let policies = Policies::of(&policy(&[("user", LIMIT)]));
        let mut service = start(&policies, &hostile.url(), &[]);
        let client = Client::connect(service.grpc).await;
        let status = client.decide(hit()).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::Unavailable);
        logs(&mut service, "redis-cluster://");
        let accepted = other.accept().map(|_| ()).unwrap_err();
        assert_eq!(accepted.kind(), std::io::ErrorKind::WouldBlock);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_without_an_end_closes_its_connection() {
    for answer in ["$2000000000\r\n", "*2000000000\r\n$200\r\n"] {
        let hostile = Hostile::start(answer.to_owned(), true).await;
        let policies = Policies::of(&policy(&[("user", LIMIT)]));
        let service = start(&policies, &hostile.url(), &[]);
        let client = Client::connect(service.grpc).await;
        let status = client.decide(hit()).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::Unavailable, "{answer:?}");
        let closed = async || hostile.closed.load(Ordering::Relaxed);
        becomes("it is closed", TEST_TIMEOUT, closed, |closed| *closed > 0).await;
        let sent = hostile.sent.load(Ordering::Relaxed);
        assert!(sent < 64 << 20, "{answer:?}: {sent} bytes sent");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_text_of_an_error_is_one_line_of_bounded_length() {
    let text = format!("-ERR a\u{202e}b\u{1b}[2J {}\r\n", "x".repeat(100_000));
    let hostile = Hostile::start(text, false).await;
    let policies = Policies::of(&policy(&[("user", LIMIT)]));
    let mut service = start(&policies, &hostile.url(), &[]);
    let client = Client::connect(service.grpc).await;
    client.decide(hit()).await.unwrap_err();
    let line = logs(&mut service, r"u{202e}b");
    assert!(line.len() < 1_000 && !line.contains(['\u{202e}', '\u{1b}']), "{line:?}");
}
