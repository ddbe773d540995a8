//! Connections without IO: handwritten frames against a service that echoes.
#![allow(clippy::arithmetic_side_effects, reason = "a test that panics is a test that fails")]

mod delivery;
mod errors;
mod frames;
mod life;
mod memory;
mod messages;
mod windows;

use std::cell::Cell;
use std::future::{Pending, Ready, pending, ready};
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::Either;
use http::{Request, Response};
use http_body_util::Full;

use super::super::account::{CallAccount, ConnectionAccount};
use super::super::budget::Budget;
use super::super::fields::HeaderFields;
use super::super::frame::{FrameHead, HEAD, Reason, flag, kind, write, write_block};
use super::super::hpack::{Decoder, Encoder};
use super::super::refusal::Refusal;
use super::super::service::{
    Answer, Exchange, MessageCall, ResponseFuture, Route, Service, WholeCall,
};
use super::{Connection, ConnectionEnd, Limits, MAX_WORK};
use crate::body::RequestBody;

const LIMITS: Limits = Limits {
    max_streams: 10,
    max_header_list: 16 << 10,
    message_timeout: Duration::from_secs(5),
    keepalive_interval: Duration::from_secs(60),
    keepalive_timeout: Duration::from_secs(20),
};

/// Maximum size of a message to `/messages`, in bytes: more than fits a window.
const MAX_MESSAGE: usize = 2 << 20;

/// Answers `/echo` with its input, `/wait` and `/unread` never, `/big` with the length that the
/// body names, `/small` with its input of at most ten bytes, `/stream`, `/whole` and
/// `/messages` with a stream, `/early` with
/// a stream before its body has arrived, and `/work` with work of half a turn.
#[derive(Default)]
pub(super) struct Echo {
    /// Account for the work of `/work`.
    account: Option<CallAccount>,
    /// Body of refusals.
    refusal: Cell<&'static str>,
}

impl Service for Echo {
    type Head = Arc<[u8]>;
    type Unary = Either<Ready<Answer<Full<Bytes>>>, Pending<Answer<Full<Bytes>>>>;
    type Body = Full<Bytes>;

    fn route(&self, fields: &HeaderFields) -> Route<Arc<[u8]>> {
        match fields.path() {
            b"/stream" | b"/unread" | b"/early" => Route::Bytes { cost: 1_000 },
            b"/whole" => {
                Route::Whole(WholeCall { cost: 1_000, byte_cost: 10, max_message: 99_995 })
            }
            b"/messages" => Route::Messages(MessageCall { cost: 1_000, max_message: MAX_MESSAGE }),
            b"/small" => Route::Unary { head: b"/small"[..].into(), max_message: 5 },
            path => Route::Unary { head: path.into(), max_message: 99_995 },
        }
    }

    fn unary(&self, head: Arc<[u8]>, mut exchange: Exchange) -> Self::Unary {
        if &*head == b"/work" {
            self.account.iter().for_each(|account| account.add_work(MAX_WORK / 2));
        }
        match &*head {
            b"/wait" => Either::Right(pending()),
            b"/big" => {
                let length = std::str::from_utf8(&exchange.request).ok();
                let length = length.and_then(|digits| digits.parse().ok()).unwrap_or(0);
                exchange.answer.resize(length, b'x');
                Either::Left(ready(Answer::Message(exchange)))
            }
            _ => {
                exchange.answer.extend_from_slice(&exchange.request);
                Either::Left(ready(Answer::Message(exchange)))
            }
        }
    }

    fn general(&self, request: Request<RequestBody>) -> ResponseFuture<Full<Bytes>> {
        Box::pin(async move {
            use http_body_util::BodyExt as _;
            if request.uri().path() == "/unread" {
                let _body = request.into_body();
                return pending().await;
            }
            if request.uri().path() == "/early" {
                return Answer::Response(Box::new(Response::new(Full::default())));
            }
            let collected = request.into_body().collect().await;
            let body = collected
                .map_or_else(|error| Bytes::from(error.to_string()), |body| body.to_bytes());
            Answer::Response(Box::new(Response::new(Full::new(body))))
        })
    }

    fn refuse(&self, refusal: Refusal) -> Response<Full<Bytes>> {
        let body = Full::from(self.refusal.get());
        Response::builder().header("refused", format!("{refusal:?}")).body(body).unwrap()
    }
}

fn connection(limits: Limits, budget: Arc<Budget>, now: Instant) -> Connection<Echo> {
    let account = ConnectionAccount::new(budget);
    let service = Echo { account: Some(account.calls().clone()), ..Echo::default() };
    Connection::new(service, limits, account, now)
}

/// The client of one connection, with a clock of its own.
pub(super) struct TestPeer {
    pub(super) connection: Connection<Echo>,
    pub(super) now: Instant,
    encoder: Encoder,
    decoder: Decoder,
    unread: Vec<u8>,
}

/// A frame that the server sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SentFrame {
    /// Stream, fields, and whether the stream ends.
    Headers(u32, Vec<(String, String)>, bool),
    Data(u32, Vec<u8>, bool),
    Reset(u32, u32),
    GoAway(u32, u32),
    Ping(Vec<u8>, bool),
    WindowUpdate(u32, u32),
    SettingsAck,
    Other(u8),
}

impl TestPeer {
    /// Creates a client that has completed the handshake.
    pub(super) fn new() -> Self {
        Self::with(LIMITS, 1 << 20)
    }

    pub(super) fn with(limits: Limits, budget: usize) -> Self {
        Self::of(limits, Arc::new(Budget::new(budget)))
    }

    /// Creates a client of a server whose budget may be shared with other clients.
    pub(super) fn of(limits: Limits, budget: Arc<Budget>) -> Self {
        let now = Instant::now();
        let connection = connection(limits, budget, now);
        let encoder = Encoder::new();
        let decoder = Decoder::new(4096);
        let mut peer = Self { connection, now, encoder, decoder, unread: Vec::new() };
        peer.bytes(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        peer.frame(kind::SETTINGS, 0, 0, &[]);
        peer.sent();
        peer
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.unread.extend_from_slice(bytes);
        loop {
            let taken = self.connection.receive(&self.unread, self.now);
            self.unread.drain(..taken);
            if !self.connection.is_behind() {
                break;
            }
        }
        self.connection.poll_calls(&mut Context::from_waker(Waker::noop()), self.now);
    }

    pub(super) fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let mut bytes = Vec::new();
        write(&mut bytes, kind, flags, stream, payload);
        self.bytes(&bytes);
    }

    /// Returns the HEADERS of a call.
    pub(super) fn headers(&mut self, stream: u32, path: &str, is_end: bool) -> Vec<u8> {
        let usual =
            [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "a|b")];
        self.list(stream, &usual, is_end)
    }

    pub(super) fn list(&mut self, stream: u32, fields: &[(&str, &str)], is_end: bool) -> Vec<u8> {
        let mut bytes = Vec::new();
        let encoder = &mut self.encoder;
        write_block(&mut bytes, if is_end { flag::END_STREAM } else { 0 }, stream, |out| {
            encoder.begin(out);
            fields
                .iter()
                .for_each(|(name, value)| encoder.field(name.as_bytes(), value.as_bytes(), out));
        });
        bytes
    }

    /// Begins a call, or makes one without a body.
    pub(super) fn open(&mut self, stream: u32, path: &str, is_end: bool) {
        let headers = self.headers(stream, path, is_end);
        self.bytes(&headers);
    }

    /// Sends a list of fields: of a call, or of trailers.
    pub(super) fn open_with(&mut self, stream: u32, fields: &[(&str, &str)], is_end: bool) {
        let headers = self.list(stream, fields, is_end);
        self.bytes(&headers);
    }

    /// Makes a whole call.
    pub(super) fn call(&mut self, stream: u32, path: &str, body: &[u8]) {
        let mut bytes = self.headers(stream, path, false);
        write(&mut bytes, kind::DATA, flag::END_STREAM, stream, body);
        self.bytes(&bytes);
    }

    pub(super) fn pass(&mut self, time: Duration) {
        self.now += time;
        self.connection.on_time(self.now);
        self.connection.poll_calls(&mut Context::from_waker(Waker::noop()), self.now);
    }

    /// Checks that the connection ends after this time, and not a millisecond earlier.
    pub(super) fn ends_after(&mut self, time: Duration, end: ConnectionEnd) {
        let ms = Duration::from_millis(1);
        self.pass(time - ms);
        assert_eq!(self.connection.end(), None);
        self.pass(ms);
        assert_eq!(self.connection.end(), Some(end));
    }

    /// Takes everything that the server has to send.
    pub(super) fn sent(&mut self) -> Vec<SentFrame> {
        let mut sent = Vec::new();
        while !self.connection.out().is_empty() {
            let bytes = self.connection.out().to_vec();
            self.connection.on_written(bytes.len(), self.now);
            let mut rest = bytes.as_slice();
            while let Some(head) = rest.first_chunk().map(FrameHead::read) {
                let (payload, after) = rest[HEAD..].split_at(head.length);
                sent.push(self.read(head, payload));
                rest = after;
            }
            assert!(rest.is_empty());
        }
        sent
    }

    fn read(&mut self, head: FrameHead, payload: &[u8]) -> SentFrame {
        let number = |at: usize| u32::from_be_bytes(payload[at..at + 4].try_into().unwrap());
        match head.kind {
            kind::HEADERS => {
                let mut fields = Vec::new();
                let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
                self.decoder
                    .decode(payload, |name, value| fields.push((text(name), text(value))))
                    .unwrap();
                SentFrame::Headers(head.stream, fields, head.has(flag::END_STREAM))
            }
            kind::DATA => {
                SentFrame::Data(head.stream, payload.to_vec(), head.has(flag::END_STREAM))
            }
            kind::RST_STREAM => SentFrame::Reset(head.stream, number(0)),
            kind::GOAWAY => SentFrame::GoAway(number(0), number(4)),
            kind::PING => SentFrame::Ping(payload.to_vec(), head.has(flag::ACK)),
            kind::WINDOW_UPDATE => SentFrame::WindowUpdate(head.stream, number(0)),
            kind::SETTINGS if head.has(flag::ACK) => SentFrame::SettingsAck,
            other => SentFrame::Other(other),
        }
    }

    /// Returns the reason of the GOAWAY that ended the connection.
    pub(super) fn goaway(&mut self) -> Option<u32> {
        self.sent().into_iter().find_map(|sent| {
            if let SentFrame::GoAway(_, reason) = sent { Some(reason) } else { None }
        })
    }
}

/// Returns a connection whose client has sent nothing, and the time.
pub(super) fn fresh() -> (Connection<Echo>, Instant) {
    let now = Instant::now();
    let budget = Arc::new(Budget::new(1 << 20));
    (connection(LIMITS, budget, now), now)
}

/// Returns the three frames of an echo.
pub(super) fn echo(stream: u32, body: &[u8]) -> Vec<SentFrame> {
    vec![head(stream), SentFrame::Data(stream, body.to_vec(), false), trailers(stream)]
}

pub(super) fn head(stream: u32) -> SentFrame {
    let fields = [(":status", "200"), ("content-type", "application/grpc")];
    SentFrame::Headers(
        stream,
        fields.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
        false,
    )
}

pub(super) fn trailers(stream: u32) -> SentFrame {
    SentFrame::Headers(stream, vec![("grpc-status".to_owned(), "0".to_owned())], true)
}

pub(super) fn refusal(stream: u32, refusal: Refusal) -> SentFrame {
    let fields = vec![
        (":status".to_owned(), "200".to_owned()),
        ("refused".to_owned(), format!("{refusal:?}")),
    ];
    SentFrame::Headers(stream, fields, true)
}

pub(super) const fn code(reason: Reason) -> u32 {
    reason.0
}
