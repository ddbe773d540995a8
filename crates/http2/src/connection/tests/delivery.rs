//! Answers in pieces: the room that their service sees, and PINGs that follow them.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::Poll;

use http_body::{Body, Frame};
use parking_lot::Mutex;

use super::*;
use crate::delivery::{self, Delivery};

/// A service that answers with the pieces of a queue, each of which is to be acknowledged.
#[derive(Clone, Default)]
struct Paced(Arc<Mutex<PacedState>>);

#[derive(Default)]
struct PacedState {
    pieces: VecDeque<Bytes>,
    /// Room before each piece.
    room_before: Vec<usize>,
    delivery: Option<Delivery>,
    waker: Option<Waker>,
}

impl Paced {
    fn push(&self, piece: &'static [u8]) {
        let mut state = self.0.lock();
        state.pieces.push_back(piece.into());
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }

    fn delivery(&self) -> Delivery {
        self.0.lock().delivery.clone().unwrap()
    }
}

impl Body for Paced {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let delivery = self.delivery();
        let mut state = self.0.lock();
        match state.pieces.pop_front() {
            Some(piece) => {
                state.room_before.push(delivery.room());
                delivery.request_acknowledgement();
                Poll::Ready(Some(Ok(Frame::data(piece))))
            }
            None => {
                state.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Service for Paced {
    type Head = ();
    type Unary = Pending<Answer<Self>>;
    type Body = Self;

    fn route(&self, _: &HeaderFields) -> Route<()> {
        Route::Bytes { cost: 0 }
    }

    fn unary(&self, (): (), _: Exchange) -> Self::Unary {
        pending()
    }

    fn general(&self, request: Request<RequestBody>) -> ResponseFuture<Self> {
        self.0.lock().delivery = request.extensions().get::<Delivery>().cloned();
        let body = self.clone();
        Box::pin(async move { Answer::Response(Box::new(Response::new(body))) })
    }

    fn refuse(&self, _: Refusal) -> Response<Self> {
        Response::new(self.clone())
    }
}

/// A connection with one open stream, whose initial window is 10 bytes.
fn opened() -> (Connection<Paced>, Paced, Instant) {
    let service = Paced::default();
    let now = Instant::now();
    let account = ConnectionAccount::new(Arc::new(Budget::new(1 << 20)));
    let mut connection = Connection::new(service.clone(), LIMITS, account, now);
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    write(&mut bytes, kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 10]);
    connection.receive(&bytes, now);
    open(&mut connection, 1, now);
    (connection, service, now)
}

/// Opens a stream, and takes what the connection has to send.
fn open(connection: &mut Connection<Paced>, stream: u32, now: Instant) {
    let mut bytes = Vec::new();
    let mut encoder = Encoder::new();
    write_block(&mut bytes, 0, stream, |out| {
        encoder.begin(out);
        for (name, value) in [(":method", "POST"), (":scheme", "http"), (":path", "/a")] {
            encoder.field(name.as_bytes(), value.as_bytes(), out);
        }
    });
    connection.receive(&bytes, now);
    poll(connection, now);
    let length = connection.out().len();
    connection.on_written(length, now);
}

fn poll(connection: &mut Connection<Paced>, now: Instant) {
    connection.poll_calls(&mut Context::from_waker(Waker::noop()), now);
}

#[test]
fn a_piece_is_followed_by_a_ping_whose_acknowledgement_reaches_the_service() {
    let (mut connection, service, now) = opened();
    service.push(b"abc");
    poll(&mut connection, now);
    let (data, ping) = connection.out().split_at(HEAD + 3);
    assert_eq!(&data[HEAD..], b"abc");
    let payload = ping[HEAD..].to_vec();
    assert_eq!(FrameHead::read(ping.first_chunk().unwrap()).kind, kind::PING);
    assert_eq!(delivery::acknowledged(&payload), Some((1, 1)));
    assert_eq!(service.delivery().acknowledged(), 0);
    let mut answer = Vec::new();
    write(&mut answer, kind::PING, flag::ACK, 0, &payload);
    let later = now + Duration::from_secs(1);
    connection.receive(&answer, later);
    assert_eq!(service.delivery().acknowledged(), 1);
    assert_eq!(service.delivery().take_acknowledgements(), [(1, later)]);
}

#[test]
fn a_ping_is_sent_without_a_piece_too() {
    let (mut connection, service, now) = opened();
    service.delivery().request_acknowledgement();
    service.0.lock().waker.take().unwrap().wake();
    poll(&mut connection, now);
    assert_eq!(FrameHead::read(connection.out().first_chunk().unwrap()).kind, kind::PING);
}

#[test]
fn the_room_is_that_of_the_windows_while_the_socket_accepts_bytes() {
    let (mut connection, service, now) = opened();
    service.push(b"abc");
    poll(&mut connection, now);
    let length = connection.out().len();
    connection.on_written(length, now);
    service.push(b"abcdefg");
    poll(&mut connection, now);
    // The socket takes only a part.
    connection.on_written(1, now);
    let mut wider = Vec::new();
    write(&mut wider, kind::WINDOW_UPDATE, 0, 1, &100u32.to_be_bytes());
    connection.receive(&wider, now);
    service.push(b"x");
    poll(&mut connection, now);
    assert_eq!(service.0.lock().room_before, [10, 7, 0]);
}

#[test]
fn a_change_of_windows_is_acknowledged_before_pieces_that_did_not_wait_for_one() {
    let (mut connection, service, now) = opened();
    service.push(b"abc");
    let mut settings = Vec::new();
    write(&mut settings, kind::SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 20]);
    connection.receive(&settings, now);
    let mut acknowledgement = Vec::new();
    write(&mut acknowledgement, kind::SETTINGS, flag::ACK, 0, &[]);
    assert_eq!(connection.out(), acknowledgement);
    poll(&mut connection, now);
    assert_eq!(service.0.lock().room_before, [20]);
}

#[test]
fn a_shutdown_reaches_the_service() {
    let (mut connection, service, now) = opened();
    assert!(!service.delivery().is_shutting_down());
    connection.shut_down(None, now);
    assert!(service.delivery().is_shutting_down());
}

#[test]
fn acknowledgements_of_pings_of_a_stream_are_no_abuse() {
    let (mut connection, service, now) = opened();
    let mut answer = Vec::new();
    for _ in 0..12_000 {
        service.delivery().request_acknowledgement();
        service.0.lock().waker.take().unwrap().wake();
        poll(&mut connection, now);
        answer.clear();
        write(&mut answer, kind::PING, flag::ACK, 0, &connection.out()[HEAD..]);
        let length = connection.out().len();
        connection.on_written(length, now);
        connection.receive(&answer, now);
        poll(&mut connection, now);
    }
    assert!(!service.delivery().is_shutting_down());
    // The same one again and again is a flood.
    for _ in 0..12_000 {
        connection.receive(&answer, now);
    }
    assert!(service.delivery().is_shutting_down());
}

#[test]
fn a_stream_that_is_opened_during_a_shutdown_learns_of_it() {
    let (mut connection, service, now) = opened();
    connection.shut_down(None, now);
    open(&mut connection, 3, now);
    assert!(service.delivery().is_shutting_down());
}

#[test]
fn an_answer_has_its_deadline_though_others_were_dropped_at_the_instant_at_which_it_waits() {
    let (mut connection, service, now) = opened();
    for stream in (3..).step_by(2).take(80) {
        open(&mut connection, stream, now);
        let mut reset = Vec::new();
        write(&mut reset, kind::RST_STREAM, 0, stream, &[0, 0, 0, 8]);
        connection.receive(&reset, now);
    }
    service.push(b"twelve bytes");
    let mut wider = Vec::new();
    write(&mut wider, kind::WINDOW_UPDATE, 0, 1, &1u32.to_be_bytes());
    connection.receive(&wider, now);
    connection.check();
    connection.on_written(usize::MAX, now);
    connection.on_time(now + LIMITS.message_timeout);
    let mut reset = Vec::new();
    write(&mut reset, kind::RST_STREAM, 0, 1, &code(Reason::CANCEL).to_be_bytes());
    assert_eq!(connection.out(), reset);
}
