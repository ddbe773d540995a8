//! Attacks of memory: what the process takes is what its budget for clients says.

use std::time::Duration;

use prost::Message as _;
use tonic::Code;

use crate::support::http2::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, HEADERS, Http2, RESET, SETTINGS, WINDOW_UPDATE,
    fields, frame, headers,
};
use crate::support::rls::{Client, descriptor, request};
use crate::support::tollgate::Tollgate;

use super::{CANCEL, PATH, framed, opened, serve};

const MIB: usize = 1 << 20;
/// Bytes that clients may make the process hold: `MAX_HELD` in `src/app/serving.rs`.
const BUDGET: usize = 64 * MIB;
/// Bytes of a connection that holds nothing: its task, its service, tables of HPACK, what is kept for later calls.
const CONNECTION: usize = 48 << 10;
/// Bytes beyond the bound: those that the allocator keeps, answers to what each worker has read at once, first uses.
const HEAD_ROOM: usize = 48 * MIB;
/// Bytes of reflection calls beyond their charge, as measured: their tasks, and answers while they are made.
const REFLECTION_ROOM: usize = 32 * MIB;
/// A path whose calls are streams, of which the service reads the body.
const WATCH: &str = "/grpc.health.v1.Health/Watch";
const REFLECTION: &str = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo";
/// Time in which a server that reads takes what is written.
const WRITE_TIME: Duration = Duration::from_secs(5);

/// A service, and the memory that it takes before anybody asks it.
struct Measured {
    service: Tollgate,
    before: usize,
}

impl Measured {
    async fn serve(flags: &[&str]) -> Self {
        let service = serve(flags);
        assert!(Client::connect(service.grpc).await.hit("user", "ann").await);
        let before = resident(&service);
        Self { service, before }
    }

    /// Asserts the bound while these connections are there, and that others are answered.
    async fn is_bounded(&self, connections: usize) {
        self.is_bounded_with(connections, 0).await;
    }

    /// The same with more head room.
    async fn is_bounded_with(&self, connections: usize, more: usize) {
        let other = Client::connect(self.service.grpc).await;
        // Refused while the budget is used up, if the call does not come in one piece.
        let code = other.ask(request(vec![descriptor(&[("other", "ann")])])).await.err().map(|status| status.code());
        assert!(matches!(code, None | Some(Code::ResourceExhausted)), "{code:?}");
        let taken = resident(&self.service).saturating_sub(self.before);
        let bound = BUDGET + connections * CONNECTION + HEAD_ROOM + more;
        println!("{} of {} MiB by {connections} connections", taken / MIB, bound / MIB);
        assert!(taken <= bound, "{} of {} MiB", taken / MIB, bound / MIB);
    }

    /// Connections on each of which this is written; a server that does not read on is left to that.
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

/// Resident bytes of a service.
fn resident(service: &Tollgate) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", service.process.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
}

/// Streams that a client may have at once.
fn streams() -> impl Iterator<Item = u32> {
    (0..1_000).map(|number| 1 + 2 * number)
}

/// Whole calls with this message.
fn calls(path: &str, message: &[u8]) -> Vec<u8> {
    let (headers, message) = (headers(path), framed(message));
    let call = |stream| [frame(HEADERS, END_HEADERS, stream, &headers), frame(DATA, END_STREAM, stream, &message)];
    streams().flat_map(call).flatten().collect()
}

/// A question that is answered by tens of kilobytes.
fn large_question() -> Vec<u8> {
    const SYMBOL: &[u8] = b"envoy.service.ratelimit.v3.RateLimitService";
    [&[0x22, u8::try_from(SYMBOL.len()).unwrap()], SYMBOL].concat()
}

/// SETTINGS with the window that streams begin with.
fn initial_window(bytes: u32) -> Vec<u8> {
    frame(SETTINGS, 0, 0, &[&[0, 4][..], &bytes.to_be_bytes()].concat())
}

#[tokio::test]
async fn answers_that_wait_for_a_window_are_within_the_budget() {
    let hit = request(vec![descriptor(&[("user", "ann")])]).encode_to_vec();
    for (path, message, count) in [(PATH, hit, 50), (REFLECTION, large_question(), 10)] {
        let measured = Measured::serve(&[]).await;
        let attack = [initial_window(0), calls(path, &message)].concat();
        let _held = measured.connections(count, &attack).await;
        measured.is_bounded_with(count, REFLECTION_ROOM).await;
    }
}

#[tokio::test]
async fn answers_that_wait_for_the_socket_are_within_the_budget() {
    let measured = Measured::serve(&[]).await;
    let window = frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0, 0, 0]);
    let attack = [initial_window(0x7fff_ffff), window, calls(REFLECTION, &large_question())].concat();
    let mut held = Vec::new();
    for _ in 0..10 {
        let one = async { tokio::time::timeout(WRITE_TIME, measured.connections(10, &attack)).await };
        held.extend(one.await);
    }
    measured.is_bounded_with(100, REFLECTION_ROOM).await;
}

#[tokio::test]
async fn calls_that_are_only_begun_are_within_the_budget() {
    let measured = Measured::serve(&[]).await;
    let begun = opened(&streams().collect::<Vec<_>>());
    let _held = measured.connections(100, &begun).await;
    measured.is_bounded(100).await;
}

#[tokio::test]
async fn resets_of_any_path_leave_nothing_behind() {
    for path in [WATCH, "/no.such.Service/Method"] {
        let measured = Measured::serve(&[]).await;
        let call =
            |stream| [frame(HEADERS, END_HEADERS, stream, &headers(path)), frame(RESET, 0, stream, &CANCEL)].concat();
        let flood: Vec<u8> = (0..30_000).flat_map(|number| call(1 + 2 * number)).collect();
        let mut held = measured.connections(10, &flood).await;
        // Calls of unknown methods are answered at once, before they are reset.
        if path == WATCH {
            assert_eq!(held[0].goaway().await, ENHANCE_YOUR_CALM);
        }
        measured.is_bounded(10).await;
    }
}

#[tokio::test]
async fn long_header_lists_are_within_the_budget() {
    // Few fields, and as many as a list may have.
    let one = vec![("x".to_owned(), vec![b'v'; 15 << 10])];
    let many: Vec<_> = (0..400).map(|number| (format!("x{number}"), vec![b'v'])).collect();
    for path in [PATH, WATCH] {
        for list in [&one, &many] {
            let measured = Measured::serve(&[]).await;
            let usual = [(":method", &b"POST"[..]), (":scheme", b"http"), (":path", path.as_bytes())];
            let more = list.iter().map(|(name, value)| (name.as_str(), value.as_slice()));
            let block = fields(&usual.into_iter().chain(more).collect::<Vec<_>>());
            let attack: Vec<u8> = streams().flat_map(|stream| frame(HEADERS, END_HEADERS, stream, &block)).collect();
            let _held = measured.connections(10, &attack).await;
            measured.is_bounded(10).await;
        }
    }
}

#[tokio::test]
async fn frames_and_header_blocks_that_are_not_whole_are_within_the_budget() {
    let partial = frame(DATA, 0, 1, &[0; 16_384]);
    let partial = [opened(&[1]), partial[..16_000].to_vec()].concat();
    let block = [frame(HEADERS, 0, 1, &headers(PATH)), frame(CONTINUATION, 0, 1, &[0; 16_384])].concat();
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
