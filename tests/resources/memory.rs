//! Attacks on memory: the process takes no more than its budget for clients.

use std::time::Duration;

use prost::Message as _;
use tonic::Code;

use crate::support::http2::{
    CANCEL, CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, Http2, PATH, RESET, SETTINGS,
    WINDOW_UPDATE, fields, frame, framed, headers, opened,
};
use crate::support::policy::{Policies, daily};
use crate::support::redis::Redis;
use crate::support::rls::{Client, descriptor, request};
use crate::support::tollgate::Tollgate;

const MIB: usize = 1 << 20;
/// Memory in bytes that clients may make the process hold.
const BUDGET: usize = 64 * MIB;
const FLAGS: [&str; 4] = ["--client-memory-max", "64MiB", "--max-streams", "1024"];
/// Memory of an idle connection in bytes: its task, its service, HPACK tables, buffers kept for
/// later calls.
const CONNECTION: usize = 48 << 10;
/// Memory beyond the bound in bytes: kept by the allocator, answers to what each worker read in one
/// turn, first uses.
const HEAD_ROOM: usize = 48 * MIB;
/// Measured memory of reflection calls beyond their charge, in bytes: their tasks, and answers
/// while they are built.
const REFLECTION_ROOM: usize = 32 * MIB;
/// A path whose calls are streams; the service reads their bodies.
const WATCH: &str = "/grpc.health.v1.Health/Watch";
const REFLECTION: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
/// Time in which a server that reads accepts the written bytes.
const WRITE_TIME: Duration = Duration::from_secs(5);

/// A service, and its memory before the attack.
struct Measured {
    service: Tollgate,
    before: usize,
}

impl Measured {
    async fn serve(flags: &[&str]) -> Self {
        let policies = Policies::of(&daily("user", 5));
        let service = Tollgate::serve_with(policies.path(), &[&FLAGS[..], flags].concat());
        assert!(Client::connect(service.grpc).await.hit("user", "ann").await);
        let before = resident(&service);
        Self { service, before }
    }

    /// Asserts the bound while these connections are open, and that other clients are answered.
    async fn is_bounded(&self, connections: usize) {
        self.is_bounded_with(connections, 0).await;
    }

    /// Asserts the bound with additional head room.
    async fn is_bounded_with(&self, connections: usize, more: usize) {
        let other = Client::connect(self.service.grpc).await;
        // Refused while the budget is exhausted, if the call arrives in several pieces.
        let code = other
            .decide(request(vec![descriptor(&[("other", "ann")])]))
            .await
            .err()
            .map(|status| status.code());
        assert!(matches!(code, None | Some(Code::ResourceExhausted)), "{code:?}");
        self.assert_bound(connections, more);
    }

    fn assert_bound(&self, connections: usize, more: usize) {
        let taken = resident(&self.service).saturating_sub(self.before);
        let bound = BUDGET + connections * CONNECTION + HEAD_ROOM + more;
        println!("{} of {} MiB by {connections} connections", taken / MIB, bound / MIB);
        assert!(taken <= bound, "{} of {} MiB", taken / MIB, bound / MIB);
    }

    /// Opens connections and writes these bytes on each; gives up the write if the server stops
    /// reading.
    async fn connections(&self, count: usize, bytes: &[u8]) -> Vec<Http2> {
        let mut connections = Vec::new();
        for _ in 0..count {
            let mut connection = Http2::connect(self.service.grpc).await;
            let written = tokio::time::timeout(WRITE_TIME, connection.write(bytes));
            let _ = written.await;
            connections.push(connection);
        }
        connections
    }
}

/// Returns the resident memory of a service in bytes.
fn resident(service: &Tollgate) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", service.process.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
}

/// Returns the ids of the streams that a client may have open at once.
fn streams() -> impl Iterator<Item = u32> {
    (0..1_000).map(|number| 1 + 2 * number)
}

/// Returns complete calls with this message.
fn calls(path: &str, message: &[u8]) -> Vec<u8> {
    let headers = headers(path);
    let message = framed(message);
    let call = |stream| {
        [frame(HEADERS, END_HEADERS, stream, &headers), frame(DATA, END_STREAM, stream, &message)]
    };
    streams().flat_map(call).flatten().collect()
}

/// Returns a reflection request whose answer takes tens of kilobytes.
fn large_request() -> Vec<u8> {
    const SYMBOL: &[u8] = b"envoy.service.ratelimit.v3.RateLimitService";
    [&[0x22, u8::try_from(SYMBOL.len()).unwrap()], SYMBOL].concat()
}

/// Returns SETTINGS with the initial window of streams.
fn initial_window(bytes: u32) -> Vec<u8> {
    frame(SETTINGS, 0, 0, &[&[0, 4][..], &bytes.to_be_bytes()].concat())
}

#[tokio::test]
async fn responses_that_wait_for_a_window_are_within_the_budget() {
    let hit = request(vec![descriptor(&[("user", "ann")])]).encode_to_vec();
    for (path, message, count) in [(PATH, hit, 50), (REFLECTION, large_request(), 10)] {
        let measured = Measured::serve(&[]).await;
        let attack = [initial_window(0), calls(path, &message)].concat();
        let _held = measured.connections(count, &attack).await;
        measured.is_bounded_with(count, REFLECTION_ROOM).await;
    }
}

#[tokio::test]
async fn responses_that_wait_for_the_socket_are_within_the_budget() {
    let measured = Measured::serve(&[]).await;
    let window = frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0, 0, 0]);
    let attack =
        [initial_window(0x7fff_ffff), window, calls(REFLECTION, &large_request())].concat();
    let mut held = Vec::new();
    for _ in 0..10 {
        let one =
            async { tokio::time::timeout(WRITE_TIME, measured.connections(10, &attack)).await };
        held.extend(one.await);
    }
    measured.is_bounded_with(100, REFLECTION_ROOM).await;
}

#[tokio::test]
async fn calls_that_wait_for_the_store_are_within_the_budget() {
    for descriptors in [1, 2, 16] {
        let redis = Redis::start().await;
        let store = format!("redis://{}", redis.address);
        let measured = Measured::serve(&["--store", &store, "--store-timeout", "60s"]).await;
        redis.pause();
        let users: Vec<_> = (0..descriptors).map(|user| user.to_string()).collect();
        let message = request(users.iter().map(|user| descriptor(&[("user", user)])).collect());
        let _held = measured.connections(50, &calls(PATH, &message.encode_to_vec())).await;
        measured.assert_bound(50, 0);
    }
}

#[tokio::test]
async fn calls_that_are_only_begun_are_within_the_budget() {
    let measured = Measured::serve(&[]).await;
    let begun = opened(&streams().collect::<Vec<_>>());
    let _held = measured.connections(100, &begun).await;
    measured.is_bounded(100).await;
}

#[tokio::test]
async fn resets_of_any_path_leak_nothing() {
    for path in [WATCH, "/no.such.Service/Method"] {
        let measured = Measured::serve(&[]).await;
        let call = |stream| {
            [frame(HEADERS, END_HEADERS, stream, &headers(path)), frame(RESET, 0, stream, &CANCEL)]
                .concat()
        };
        // In parts, each of which a busy machine reads in time.
        let part =
            |part: u32| (0..2_000).flat_map(move |number| call(1 + 4_000 * part + 2 * number));
        for mut connection in measured.connections(10, &part(0).collect::<Vec<_>>()).await {
            for number in 1..5 {
                let is_open = connection.is_seen().await;
                let calls: Vec<u8> = part(number).collect();
                if !is_open || connection.write(&calls).await.is_err() {
                    break;
                }
            }
            connection.is_seen().await;
        }
        measured.is_bounded(10).await;
    }
}

#[tokio::test]
async fn long_header_lists_are_within_the_budget() {
    // One long field, and the maximum number of fields of a list.
    let one = vec![("x".to_owned(), vec![b'v'; 15 << 10])];
    let many: Vec<_> = (0..1_600).map(|number| (format!("x{number}"), vec![b'v'])).collect();
    for path in [PATH, WATCH] {
        for list in [&one, &many] {
            let measured = Measured::serve(&[]).await;
            let usual =
                [(":method", &b"POST"[..]), (":scheme", b"http"), (":path", path.as_bytes())];
            let more = list.iter().map(|(name, value)| (name.as_str(), value.as_slice()));
            let block = fields(&usual.into_iter().chain(more).collect::<Vec<_>>());
            let attack: Vec<u8> =
                streams().flat_map(|stream| frame(HEADERS, END_HEADERS, stream, &block)).collect();
            let _held = measured.connections(10, &attack).await;
            measured.is_bounded(10).await;
        }
    }
}

#[tokio::test]
async fn incomplete_frames_and_header_blocks_are_within_the_budget() {
    let partial = frame(DATA, 0, 1, &[0; 16_384]);
    let partial = [opened(&[1]), partial[..16_000].to_vec()].concat();
    let block =
        [frame(HEADERS, 0, 1, &headers(PATH)), frame(CONTINUATION, 0, 1, &[0; 16_384])].concat();
    for attack in [partial, block] {
        let measured = Measured::serve(&[]).await;
        let _held = measured.connections(500, &attack).await;
        measured.is_bounded(500).await;
    }
}

#[tokio::test]
async fn bodies_in_frames_of_one_byte_are_within_the_budget() {
    let measured = Measured::serve(&[]).await;
    let body: Vec<u8> = (0..2_000).flat_map(|_| frame(DATA, 0, 1, &[0])).collect();
    let attack: Vec<u8> = [opened(&[1]), body].concat();
    let _held = measured.connections(100, &attack).await;
    measured.is_bounded(100).await;
}
