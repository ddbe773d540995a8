//! Every method, read in every way that takes memory or time, beside a client that sends bursts of
//! large requests: none of its calls fails, and the process keeps within the memory of a pod.
//!
//! The methods are those of [`methods::paths`], which a test holds equal to the descriptors.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, join_all};
use prost::Message as _;
use tokio::runtime::Builder;
use tollgate::grpc::methods;
use tollgate::grpc::proto::RateLimitRequest;
use tollgate::grpc::proto::hold::{CancelRequest, CommitRequest, ExtendRequest, ReserveRequest};
use tollgate::grpc::proto::lease::{ExchangeRequest, LeaseWant};

use crate::raise_open_files;
use crate::support::http2::{
    DATA, END_HEADERS, END_STREAM, HEADERS, SETTINGS, frame, framed, headers,
};
use crate::support::load::alone;
use crate::support::policy::Policies;
use crate::support::rls::{Client, descriptor, request};
use crate::support::secure::{Secure, SecureFiles};
use crate::support::usage::Usage;
use crate::support::web::Web;

use super::client::{SENT, connect, flood, hold, hold_unread, run_clients};
use super::harness::{self, LIMITS, MEMORY, PROGRAM, Target, resident, serve_with};

/// Connections of an attacker, and calls of each.
const CONNECTIONS: usize = 4;
const CALLS: u32 = 200;
/// Size of the largest message of any method, in bytes.
const LARGEST: usize = 1 << 20;
/// Duration of the attack of a cell.
const DURATION: Duration = Duration::from_millis(600);
/// Calls of a burst, and descriptors of each: a request beyond the usual size.
const BURST: usize = 50;
const DESCRIPTORS: usize = 40;

/// A way to send the calls of a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    HalfMessage,
    AnnouncedMessage,
    TinyMessages,
    LargestMessage,
    SlowSender,
    SlowReader,
    IdleStream,
    KeptOpen,
    /// Whole calls by a client that may use other domains.
    WithoutRights,
}

fn streams() -> impl Iterator<Item = u32> + Clone {
    (0..CALLS).map(|number| 1 + 2 * number)
}

/// Returns a message of about this length that every method can decode or refuses: a domain, and
/// members of two bytes of a list.
fn message(length: usize) -> Vec<u8> {
    [b"\x0a\x04test", &b"\x12\x00".repeat(length / 2)[..]].concat()
}

/// Returns reports of buckets that are kept, or for other methods as many bytes.
fn kept(path: &str) -> Vec<u8> {
    if !path.contains("Quota") {
        return message(4_000);
    }
    let bucket = |number: u32| {
        let value = format!("user-{number:05}");
        let pair = [b"\x0a\x04user\x12\x0a", value.as_bytes()].concat();
        let id = [&[0x0a, 18][..], &pair].concat();
        let id = [&[0x0a, u8::try_from(id.len()).unwrap()][..], &id].concat();
        [&[0x12, u8::try_from(id.len()).unwrap()][..], &id].concat()
    };
    [b"\x0a\x04test", &(0..400).flat_map(bucket).collect::<Vec<_>>()[..]].concat()
}

/// Returns a valid message of a method, for a domain that exists.
fn valid(path: &str) -> Vec<u8> {
    let domain = "test".to_owned();
    let descriptors = vec![descriptor(&[("user", "ann")])];
    let id = "id".to_owned();
    match path.rsplit_once('/').unwrap().1 {
        "Reserve" => ReserveRequest { domain, descriptors, id, hits: 1, ttl: None }.encode_to_vec(),
        "Extend" => ExtendRequest { domain, descriptors, id, ttl: None }.encode_to_vec(),
        "Commit" => CommitRequest { domain, descriptors, id, hits: 1 }.encode_to_vec(),
        "Cancel" => CancelRequest { domain, descriptors, id }.encode_to_vec(),
        "Exchange" => {
            let want = LeaseWant { descriptor: descriptors.into_iter().next(), hits: 10 };
            ExchangeRequest { domain, wants: vec![want], returns: Vec::new() }.encode_to_vec()
        }
        "StreamRateLimitQuotas" => kept(path),
        _ => request(descriptors).encode_to_vec(),
    }
}

/// Returns the frames of a call on a stream: its headers, and a body of these bytes.
pub(super) fn call(path: &str, stream: u32, body: &[u8], last: u8) -> Vec<u8> {
    call_by(&headers(path), stream, body, last)
}

/// Returns the frames of a call with a header block.
pub(super) fn call_by(block: &[u8], stream: u32, body: &[u8], last: u8) -> Vec<u8> {
    let mut frames = frame(HEADERS, END_HEADERS, stream, block);
    let mut chunks = body.chunks(16_000).peekable();
    while let Some(chunk) = chunks.next() {
        let flags = if chunks.peek().is_none() { last } else { 0 };
        frames.extend(frame(DATA, flags, stream, chunk));
    }
    frames
}

/// Returns the traffic of an attacker.
fn traffic(path: &'static str, way: Way, target: Target) -> BoxFuture<'static, ()> {
    let each = move |body: Vec<u8>, last: u8| -> Vec<u8> {
        streams().flat_map(|stream| call(path, stream, &body, last)).collect()
    };
    let whole = framed(&message(200));
    let opening = match way {
        Way::HalfMessage => each(framed(&message(4_000))[..2_000].to_vec(), 0),
        Way::AnnouncedMessage => each([&[0][..], &0xf_ffffu32.to_be_bytes()].concat(), 0),
        Way::TinyMessages | Way::SlowSender | Way::IdleStream => each(Vec::new(), 0),
        Way::LargestMessage | Way::WithoutRights => Vec::new(),
        Way::SlowReader => {
            let no_window = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
            [no_window, each(whole, END_STREAM)].concat()
        }
        Way::KeptOpen => each(framed(&kept(path)), 0),
    };
    let largest = framed(&message(LARGEST - 8));
    let forbidden = framed(&valid(path));
    async move {
        let client = || async {
            let socket = connect(target.grpc).await?;
            match way {
                Way::SlowReader => hold_unread(socket, &opening).await,
                Way::HalfMessage | Way::AnnouncedMessage | Way::IdleStream | Way::KeptOpen => {
                    hold(socket, &opening).await
                }
                Way::TinyMessages => {
                    let tiny: Vec<u8> = streams()
                        .flat_map(|stream| frame(DATA, 0, stream, &[0; 5].repeat(200)))
                        .collect();
                    flood(socket, &opening, || tiny.clone()).await
                }
                Way::SlowSender => {
                    let byte: Vec<u8> =
                        streams().flat_map(|stream| frame(DATA, 0, stream, &[0])).collect();
                    flood(socket, &opening, || byte.clone()).await
                }
                Way::LargestMessage | Way::WithoutRights => {
                    let body = if way == Way::WithoutRights { &forbidden } else { &largest };
                    let mut stream = 1;
                    flood(socket, &[], || {
                        stream += 2;
                        call(path, stream, body, END_STREAM)
                    })
                    .await
                }
            }
        };
        run_clients(CONNECTIONS, client).await;
    }
    .boxed()
}

/// Sends bursts of large requests on one connection for a while. Returns the times of the calls,
/// and the first error.
async fn bursts(client: &Client, time: Duration) -> (Vec<Duration>, Option<String>) {
    let names: Vec<String> = (0..DESCRIPTORS).map(|number| format!("user-{number}")).collect();
    let large = request(names.iter().map(|name| descriptor(&[("user", name)])).collect());
    let one = |message: RateLimitRequest| async {
        let begun = Instant::now();
        let decided = client.decide(message).await;
        (begun.elapsed(), decided.err().map(|status| status.to_string()))
    };
    let begun = Instant::now();
    let mut times = Vec::new();
    let mut error = None;
    while begun.elapsed() < time {
        for (took, failed) in join_all((0..BURST).map(|_| one(large.clone()))).await {
            times.push(took);
            error = error.or(failed);
        }
    }
    times.sort_unstable();
    (times, error)
}

/// Tests all methods in one way.
fn withstand(way: Way) {
    let program = &*PROGRAM;
    raise_open_files();
    let _alone = alone();
    let policies = Arc::new(Policies::of(&super::policy()));
    let secure = (way == Way::WithoutRights).then(SecureFiles::new);
    let flags = secure.as_ref().map(|files| files.flags(&["good=test", "bad=elsewhere"]));
    let flags: Vec<&str> = flags.iter().flatten().map(String::as_str).collect();
    let mut service = serve_with(program, LIMITS, &flags, &policies);
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let client = runtime.block_on(async {
        match &secure {
            Some(files) => files.client("good").client(service.grpc).await.unwrap(),
            None => Client::connect(service.grpc).await,
        }
    });
    // The attacker's bytes are the same with TLS and without.
    let attacked =
        secure.as_ref().map_or(service.grpc, |files| forwarder(files.client("bad"), service.grpc));
    let (calm, error) = runtime.block_on(bursts(&client, DURATION));
    assert_eq!(error, None, "without an attack");
    let p99 = |times: &[Duration]| times[times.len() * 99 / 100];
    println!("{way:?}, without an attack: {} calls, p99 {:.1?}", calm.len(), p99(&calm));
    for path in methods::paths() {
        let target = Target {
            grpc: attacked,
            http: service.http,
            admin: service.admin,
            policies: Arc::clone(&policies),
        };
        let forbidden = secure.as_ref().map(|_| runtime.block_on(forbidden_calls(service.http)));
        let sent = SENT.load(Ordering::Relaxed);
        let before = Usage::of(service.process.id());
        let attacker = std::thread::spawn(move || {
            harness::run(move |target| traffic(path, way, target), target, DURATION * 3 / 2);
        });
        let (times, error) = runtime.block_on(bursts(&client, DURATION));
        attacker.join().unwrap();
        let peak = resident(&service, "VmHWM:");
        let cpu = Usage::of(service.process.id()).since(before).cpu;
        let sent = SENT.load(Ordering::Relaxed) - sent;
        println!(
            "{way:?} | {path} | {} calls, p99 {:.1?} | {:.1?} of CPU, {} KB sent | peak {} MiB",
            times.len(),
            p99(&times),
            cpu,
            sent / 1_000,
            peak >> 20
        );
        let refused =
            forbidden.map(|before| runtime.block_on(forbidden_calls(service.http)) > before);
        // Health and reflection need no right, and there is no mapping for Check.
        let needs_right = !path.contains("grpc.") && !path.contains("auth");
        assert!(!needs_right || refused != Some(false), "{way:?} {path}: nothing was refused");
        assert_eq!(error, None, "{way:?} {path}");
        assert!(peak <= MEMORY, "{way:?} {path}: {} MiB", peak >> 20);
        assert!(service.process.is_running(), "{way:?} {path}: {}", service.process.final_log());
    }
}

/// Returns the number of calls that were refused for want of a right.
async fn forbidden_calls(http: SocketAddr) -> u64 {
    Web::new(http).metric("tollgate_forbidden_calls_total").await
}

/// Forwards connections to a service as a client with a certificate. Returns the address.
fn forwarder(client: Secure, service: SocketAddr) -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    listener.set_nonblocking(true).unwrap();
    std::thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            loop {
                let (mut plain, _) = listener.accept().await.unwrap();
                let client = client.clone();
                tokio::spawn(async move {
                    let mut secure = client.connect(service).await?;
                    tokio::io::copy_bidirectional(&mut plain, &mut secure).await
                });
            }
        });
    });
    address
}

macro_rules! ways {
    ($($name:ident: $way:ident;)*) => {
        $(
            #[test]
            fn $name() {
                withstand(Way::$way);
            }
        )*
    };
}

ways! {
    half_messages: HalfMessage;
    announced_messages: AnnouncedMessage;
    tiny_messages: TinyMessages;
    largest_messages: LargestMessage;
    slow_senders: SlowSender;
    slow_readers: SlowReader;
    idle_streams: IdleStream;
    streams_that_keep_much: KeptOpen;
    calls_without_rights: WithoutRights;
}
