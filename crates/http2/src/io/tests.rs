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
use http::{HeaderMap, HeaderValue};
use proptest::prelude::*;
use tokio::io::{
    AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream, ReadBuf, duplex,
};

use super::{
    ConnectionEnd, Driver, DriverResult, LINGER, LINGER_BYTES, READ_BYTES, READS_AT_ONCE, Usage,
};
use crate::account::ConnectionAccount;
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
    // Most fit a table, some fill it; Huffman codes are short for some, and long for others.
    let value =
        prop_oneof![16 => "[!-~]{0,200}", 4 => "[\u{80}-\u{ff}]{0,20}", 1 => "[a-c]{1000,1800}"];
    let values = prop::collection::vec(value, 0..8);
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
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    frame::write(&mut bytes, 4, 0, 0, &[]);
    (0..5_000).for_each(|_| frame::write(&mut bytes, 6, 0, 0, b"whatever"));
    let sent = bytes.len();
    let taken = Arc::<AtomicUsize>::default();
    let socket = Arrived { bytes, taken: Arc::clone(&taken) };
    (Driver::new(idle(LIMITS), Usage::unregistered(), socket), sent, taken)
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

/// Opens a connection to a client that has sent nothing.
fn opened(limits: Limits) -> (DuplexStream, Driver<Scripted, DuplexStream>) {
    let (client, socket) = duplex(1 << 10);
    (client, Driver::new(idle(limits), Usage::unregistered(), socket))
}

#[tokio::test(start_paused = true)]
async fn a_connection_ends_when_its_client_has_closed_it() {
    let (mut client, mut driver) = opened(LIMITS);
    client.shutdown().await.unwrap();
    let ended = driver.run(pin!(std::future::pending::<()>())).await.unwrap();
    assert!(matches!(ended, DriverResult::Ended(ConnectionEnd::Finished)));
}

#[tokio::test(start_paused = true)]
async fn a_handshake_is_over_after_the_settings_or_when_it_is_interrupted() {
    let (mut client, mut driver) = opened(LIMITS);
    let end = driver.handshake(pin!(tokio::time::sleep(Duration::from_secs(1)))).await;
    assert_eq!(end.unwrap(), Some(ConnectionEnd::HandshakeTimeout));
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    frame::write(&mut bytes, 4, 0, 0, &[]);
    client.write_all(&bytes).await.unwrap();
    assert_eq!(driver.handshake(pin!(std::future::pending())).await.unwrap(), None);
}

#[tokio::test(start_paused = true)]
async fn a_connection_whose_socket_takes_nothing_waits() {
    let (_client, socket) = duplex(16);
    let mut driver = Driver::new(idle(LIMITS), Usage::unregistered(), socket);
    let never = pin!(std::future::pending::<()>());
    let mut run = pin!(driver.run(never));
    let mut polls = 0;
    let counted = std::future::poll_fn(|cx| {
        polls += 1;
        assert!(polls < 10, "it is polled again and again");
        run.as_mut().poll(cx).map(drop)
    });
    assert!(tokio::time::timeout(Duration::from_secs(5), counted).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn what_a_client_sends_after_the_end_is_read_within_bounds() {
    for (bytes, leaves, time) in [
        (LINGER_BYTES, false, Duration::ZERO),
        (LINGER_BYTES - 1, false, LINGER),
        (LINGER_BYTES - 1, true, Duration::ZERO),
        (0, false, LINGER),
    ] {
        let (mut client, driver) = opened(LIMITS);
        let closing = tokio::spawn(driver.close());
        let begun = tokio::time::Instant::now();
        client.write_all(&vec![0; bytes]).await.unwrap();
        // SETTINGS and WINDOW_UPDATE, and the end.
        let mut sent = Vec::new();
        assert_eq!(client.read_to_end(&mut sent).await.unwrap(), 2 * frame::HEAD + 18 + 4);
        let client = Some(client).filter(|_| !leaves);
        closing.await.unwrap().unwrap();
        assert_eq!(begun.elapsed(), time, "{bytes} {leaves}");
        drop(client);
    }
}

#[tokio::test(start_paused = true)]
async fn a_timer_that_is_set_moves_to_an_earlier_deadline() {
    let limits = Limits { message_timeout: Duration::from_secs(5), ..LIMITS };
    let (mut client, mut driver) = opened(limits);
    tokio::spawn(async move { driver.run(pin!(std::future::pending::<()>())).await.map(drop) });
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    frame::write(&mut bytes, 4, 0, 0, &[]);
    client.write_all(&bytes).await.unwrap();
    // The next deadline is now that of the keepalive.
    tokio::time::sleep(Duration::from_secs(2)).await;
    while client.read(&mut [0; 1024]).now_or_never().is_some() {}
    let begun = tokio::time::Instant::now();
    bytes.clear();
    // POST, http, and a path that is answered after the body, which does not come.
    frame::write(&mut bytes, 1, 4, 1, &[&[0x83, 0x86, 0x44, 5][..], b"/echo"].concat());
    client.write_all(&bytes).await.unwrap();
    assert!(client.read(&mut [0; 1024]).await.unwrap() > 0);
    assert_eq!(begun.elapsed(), limits.message_timeout);
}

fn idle(limits: Limits) -> Connection<Scripted> {
    let account = ConnectionAccount::new(Arc::new(Budget::new(64 << 20)));
    Connection::new(Scripted(Gate::default()), limits, account, now())
}

async fn run(schedule: Schedule, budget: Arc<Budget>) {
    let (here, there) = duplex(schedule.socket);
    let gate = Gate::default();
    let account = ConnectionAccount::new(budget);
    let connection = Connection::new(Scripted(gate.clone()), LIMITS, account, now());
    let mut driver = Driver::new(connection, Usage::unregistered(), there);
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
        let mut value = HeaderValue::from_bytes(value.as_bytes()).unwrap();
        value.set_sensitive(number == 4);
        request = request.header(format!("x-{}", number % 3), value);
    }
    let request = request.body(()).unwrap();
    let fields = request.headers().clone();
    let mut requests = requests.ready().await.unwrap();
    let (response, mut sender) = requests.send_request(request, false).unwrap();
    drop(requests);
    let mut sent = Vec::new();
    for (number, length) in plan.pieces.iter().enumerate() {
        let mut piece = vec![u8::try_from(number).unwrap(); *length];
        if plan.behaviour == Behaviour::StreamEcho {
            let prefix = u32::try_from(*length).unwrap().to_be_bytes();
            piece.splice(..0, [&[0][..], &prefix].concat());
        }
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
    let is_unary =
        matches!(plan.behaviour, Behaviour::Echo | Behaviour::Later | Behaviour::Large(_));
    let echoed = if is_unary { HeaderMap::new() } else { fields };
    assert_eq!(custom(response.headers()), custom(&echoed), "{:?}", plan.behaviour);
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

/// Returns the values of fields that the service sends back.
fn custom(fields: &HeaderMap) -> Vec<Vec<&HeaderValue>> {
    ["x-0", "x-1", "x-2"].map(|name| fields.get_all(name).iter().collect()).to_vec()
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
