//! Whole connections of h2's client with random schedules, through a socket that accepts few bytes
//! at a time.
#![allow(clippy::arithmetic_side_effects, reason = "a test that panics is a test that fails")]

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use h2::client::{Builder, SendRequest};
use h2::{Ping, Reason, RecvStream};
use proptest::prelude::*;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf, duplex};

use super::{Driver, READ_BYTES, READS_AT_ONCE, Usage};
use crate::budget::Budget;
use crate::connection::{Connection, Limits};
use crate::frame;
use crate::fuzz::service::{Behaviour, FILL, Gate, Scripted};
use crate::now;

const LIMITS: Limits = Limits {
    max_streams: 16,
    max_header_list: 16 << 10,
    message_timeout: Duration::from_secs(60),
    keepalive_interval: Duration::from_secs(60),
    keepalive_timeout: Duration::from_secs(20),
};
const TICK: Duration = Duration::from_millis(1);

/// A call, and the client's behaviour.
#[derive(Clone, Debug)]
struct Plan {
    behaviour: Behaviour,
    pieces: Vec<usize>,
    values: Vec<String>,
    /// Turns between pieces of either side, for which the client withholds window updates.
    lateness: u32,
    /// Set if the client resets the call: `false` before its body ends, `true` once its answer has
    /// begun.
    is_given_up: Option<bool>,
}

/// A connection and its calls.
#[derive(Clone, Debug)]
struct Schedule {
    plans: Vec<Plan>,
    window: u32,
    connection_window: u32,
    table: u32,
    socket: usize,
    pings: u32,
}

fn plan() -> impl Strategy<Value = Plan> {
    let behaviour = prop_oneof![
        4 => Just(Behaviour::Echo),
        1 => Just(Behaviour::Later),
        1 => (0usize..60_000).prop_map(Behaviour::Large),
        1 => Just(Behaviour::StreamEcho),
        1 => Just(Behaviour::Status),
        1 => (0usize..20_000).prop_map(Behaviour::Pieces),
    ];
    let pieces = prop::collection::vec(prop_oneof![0usize..100, 0usize..20_000], 0..5);
    let values = prop::collection::vec("[ -~&&[^ ]]{0,200}", 0..8);
    let is_given_up = prop_oneof![4 => Just(None), 1 => any::<bool>().prop_map(Some)];
    (behaviour, pieces, values, 0u32..4, is_given_up).prop_map(
        |(behaviour, pieces, values, lateness, is_given_up)| Plan {
            behaviour,
            pieces,
            values,
            lateness,
            is_given_up,
        },
    )
}

fn schedule() -> impl Strategy<Value = Schedule> {
    let windows = (prop_oneof![500u32..5_000, 5_000u32..1_000_000], 65_535u32..1_000_000);
    let table = prop_oneof![Just(0u32), 0u32..200, Just(4096), Just(65_536)];
    (
        prop::collection::vec(plan(), 1..40),
        windows,
        table,
        prop_oneof![64usize..1_000, Just(100_000)],
        0u32..5,
    )
        .prop_map(|(plans, (window, connection_window), table, socket, pings)| Schedule {
            plans,
            window,
            connection_window,
            table,
            socket,
            pings,
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_call_of_an_h2_client_that_is_not_reset_has_its_answer(schedule in schedule()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let budget = Arc::new(Budget::new(64 << 20));
        let run = async { tokio::time::timeout(Duration::from_secs(50), run(schedule, Arc::clone(&budget))).await };
        runtime.block_on(run).expect("all calls are answered");
        drop(runtime);
        prop_assert_eq!(budget.used(), 0);
    }
}

/// A socket whose input has all arrived, and that accepts all output.
struct Arrived {
    bytes: Vec<u8>,
    taken: Arc<AtomicUsize>,
}

impl AsyncRead for Arrived {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let taken = self.taken.load(Ordering::Relaxed);
        let more = buffer.remaining().min(self.bytes.len() - taken);
        buffer.put_slice(&self.bytes[taken..taken + more]);
        self.taken.store(taken + more, Ordering::Relaxed);
        if more == 0 { Poll::Pending } else { Poll::Ready(Ok(())) }
    }
}

impl AsyncWrite for Arrived {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Creates a connection whose client has sent 5,000 pings. Returns it with the number of bytes
/// sent, and of those read.
fn busy() -> (Driver<Scripted, Arrived>, usize, Arc<AtomicUsize>) {
    const SETTINGS: u8 = 4;
    const PING: u8 = 6;
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    frame::write(&mut bytes, SETTINGS, 0, 0, &[]);
    (0..5_000).for_each(|_| frame::write(&mut bytes, PING, 0, 0, b"whatever"));
    let sent = bytes.len();
    let taken = Arc::<AtomicUsize>::default();
    let socket = Arrived { bytes, taken: Arc::clone(&taken) };
    let budget = Arc::new(Budget::new(64 << 20));
    let connection = Connection::new(Scripted(Gate::default()), LIMITS, &budget, now());
    (Driver::new(connection, Usage::unregistered(), socket), sent, taken)
}

#[tokio::test]
async fn a_turn_reads_a_bounded_number_of_bytes() {
    let (mut driver, sent, taken) = busy();
    for turn in 1..=3 {
        assert!(driver.run(pin!(std::future::pending::<()>())).now_or_never().is_none());
        assert_eq!(taken.load(Ordering::Relaxed), turn * READS_AT_ONCE * READ_BYTES, "of {sent}");
    }
}

#[tokio::test]
async fn other_sockets_are_polled_between_the_turns_of_a_busy_connection() {
    let (mut sender, mut receiver) = tokio::net::UnixStream::pair().unwrap();
    sender.write_all(b"x").await.unwrap();
    let (mut driver, sent, taken) = busy();
    let busy =
        tokio::spawn(async move { driver.run(pin!(std::future::pending::<()>())).await.map(drop) });
    receiver.read_exact(&mut [0]).await.unwrap();
    let taken = taken.load(Ordering::Relaxed);
    assert!(taken <= 2 * READS_AT_ONCE * READ_BYTES, "{taken} of {sent} bytes are read first");
    busy.abort();
}

async fn run(schedule: Schedule, budget: Arc<Budget>) {
    let (here, there) = duplex(schedule.socket);
    let gate = Gate::default();
    let mut driver = Driver::new(
        Connection::new(Scripted(gate.clone()), LIMITS, &budget, now()),
        Usage::unregistered(),
        there,
    );
    tokio::spawn(async move { driver.run(pin!(std::future::pending::<()>())).await.map(drop) });
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(TICK).await;
            gate.open();
        }
    });
    let mut builder = Builder::new();
    builder
        .initial_window_size(schedule.window)
        .initial_connection_window_size(schedule.connection_window);
    builder.header_table_size(schedule.table).initial_max_send_streams(8);
    let (requests, mut connection) = builder.handshake::<_, Bytes>(here).await.unwrap();
    let mut pings = connection.ping_pong().unwrap();
    let connection = tokio::spawn(connection);
    let calls: Vec<_> =
        schedule.plans.into_iter().map(|plan| tokio::spawn(call(requests.clone(), plan))).collect();
    for _ in 0..schedule.pings {
        pings.ping(Ping::opaque()).await.unwrap();
    }
    for call in calls {
        call.await.unwrap();
    }
    drop(requests);
    connection.abort();
}

async fn call(requests: SendRequest<Bytes>, plan: Plan) {
    let mut request = http::Request::post(format!("http://a{}", plan.behaviour.path()));
    for (number, value) in plan.values.iter().enumerate() {
        request = request.header(format!("x-{}", number % 3), value);
    }
    let mut requests = requests.ready().await.unwrap();
    let (response, mut sender) = requests.send_request(request.body(()).unwrap(), false).unwrap();
    drop(requests);
    let mut sent = Vec::new();
    for (number, length) in plan.pieces.iter().enumerate() {
        let piece = vec![u8::try_from(number).unwrap(); *length];
        // A call whose answer does not depend on its whole body may be over already.
        if sender.send_data(piece.clone().into(), false).is_err() {
            break;
        }
        sent.extend(piece);
        turns(plan.lateness).await;
    }
    if plan.is_given_up == Some(false) {
        return sender.send_reset(Reason::CANCEL);
    }
    let _ = sender.send_data(Bytes::new(), true);
    let response = response.await.unwrap_or_else(|error| panic!("{:?}: {error}", plan.behaviour));
    assert!(
        response.status() == 200 && response.headers().get("refused").is_none(),
        "{response:?}"
    );
    if plan.is_given_up == Some(true) {
        return sender.send_reset(Reason::CANCEL);
    }
    let expected = match plan.behaviour {
        Behaviour::Echo | Behaviour::Later | Behaviour::StreamEcho => sent,
        Behaviour::Large(bytes) | Behaviour::Pieces(bytes) => vec![FILL; bytes],
        Behaviour::Status | Behaviour::Never | Behaviour::Fail => Vec::new(),
    };
    let answer = read(response.into_body(), plan.lateness).await;
    assert!(
        answer == expected,
        "{:?}: {} bytes for {}",
        plan.behaviour,
        answer.len(),
        expected.len()
    );
}

/// Reads an answer, and returns its bytes to the windows late.
async fn read(mut body: RecvStream, lateness: u32) -> Vec<u8> {
    let mut answer = Vec::new();
    while let Some(piece) = body.data().await {
        let piece = piece.unwrap();
        answer.extend_from_slice(&piece);
        turns(lateness).await;
        body.flow_control().release_capacity(piece.len()).unwrap();
    }
    body.trailers().await.unwrap();
    answer
}

/// Yields to other tasks: for some turns, or for some time.
async fn turns(count: u32) {
    for _ in 0..count {
        tokio::task::yield_now().await;
    }
    if count == 3 {
        tokio::time::sleep(TICK).await;
    }
}
