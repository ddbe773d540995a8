//! A server's end of an HTTP/2 connection, without IO: bytes come in, bytes go out, time is given.
//!
//! | file | holds |
//! |---|---|
//! | `receive` | frames in, one after the other; frames of the connection itself |
//! | `routes` | header blocks read, or recognized |
//! | `calls` | HEADERS and DATA: calls begun, bodies collected |
//! | `answers` | answers written, as far as windows allow |
//! | `life` | time: keepalive, deadlines, age, shutdown |

mod answers;
mod calls;
mod life;
mod receive;
mod routes;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::task::Context;
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use futures_util::future::Either;

pub(super) use self::life::Life;
use super::budget::{Account, Budget};
use super::fields::Fields;
use super::frame::{self, Reason, kind};
use super::hpack::{Decoder, Encoder};
use super::service::{Exchange, ResponseFuture, Route, Service};
use super::slots::Slots;
use super::stream::Stream;
use super::strikes::{Abuse, Strikes};

/// Bytes that a client may send ahead, on one stream and on all together: far more than any request.
const WINDOW: u32 = 1 << 20;
/// The window of a connection before it is changed (RFC 9113, 6.9.2).
const DEFAULT_WINDOW: u32 = 65_535;
/// Bytes of a header list, as RFC 9113, 6.5.2 counts.
const MAX_HEADER_LIST: usize = 16 << 10;
/// Bytes of the dynamic table for what the client sends: the protocol's initial value.
const HEADER_TABLE: usize = 4096;
/// Bytes of frames that wait for the socket, above which answers wait in their streams and nothing more is read.
const MAX_UNSENT: usize = 256 << 10;
/// Bytes of them that may wait where memory is used up.
const MAX_UNCHARGED: usize = 16 << 10;
/// Buffers of finished calls that are kept for later ones.
const MAX_SPARE: usize = 64;
/// Bytes that a kept buffer may have.
const MAX_SPARE_BYTES: usize = 4 << 10;
/// Streams that this side ended first, of which frames may still be under way.
const MAX_FORGOTTEN: usize = 64;

/// Bounds of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Calls that may be under way at once.
    pub max_streams: u32,
    /// Time for a request's message to come, and for an answer to be taken.
    pub message_timeout: Duration,
    /// Time without a sign of life after which the client is asked for one.
    pub keepalive_interval: Duration,
    /// Time to give one, before the connection is closed.
    pub keepalive_timeout: Duration,
}

/// A server's end of a connection.
pub(super) struct Connection<S: Service> {
    service: S,
    limits: Limits,
    account: Account,
    decoder: Decoder,
    encoder: Encoder,
    fields: Fields,
    /// The last header block that left the decoder's table as it was, and the route that it led to.
    known: Option<KnownBlock<S::Head>>,
    /// A header block that is continued.
    block: Option<PartialBlock>,
    streams: HashMap<u32, Stream<S>, RandomState>,
    slots: Slots<Call<S>>,
    /// Streams whose answers wait for the window of the connection, or for the socket.
    blocked: VecDeque<u32>,
    /// Streams that this side ended first.
    forgotten: VecDeque<u32>,
    /// The last stream that the client opened.
    last_stream: u32,
    /// The last stream that the latest GOAWAY named.
    goaway_stream: u32,
    peer: Peer,
    /// Bytes that this side may send on all streams.
    send_window: i64,
    /// Bytes that the client may send on all streams.
    receive_window: i64,
    /// Bytes that were taken and not given back to the client's window.
    unacknowledged: usize,
    strikes: Strikes,
    spare: Vec<Exchange>,
    out: Vec<u8>,
    /// Bytes charged for the beginning of a frame and for `out`.
    buffered: usize,
    /// True if they could not be.
    is_over_budget: bool,
    life: Life,
    end: Option<End>,
}

/// A call's future.
type Call<S> = Either<<S as Service>::Unary, ResponseFuture<<S as Service>::Body>>;

/// A header block whose meaning is known.
struct KnownBlock<H> {
    block: Vec<u8>,
    head: H,
    max_body: usize,
    content_length: Option<u64>,
}

/// The beginning of a header block.
struct PartialBlock {
    stream: u32,
    is_end_of_stream: bool,
    depends_on_itself: bool,
    bytes: Vec<u8>,
}

/// The client's settings that matter here.
#[derive(Clone, Copy, Debug)]
struct Peer {
    initial_window: i64,
}

/// The way in which a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// All calls are over, and there will be no more.
    Finished,
    /// The client broke the protocol.
    Error(Reason),
    /// The client reset one call after the other before it was answered.
    ResetFlood,
    /// The client sent more of some frame than anybody needs.
    Flood,
    /// The client did not read what it was sent.
    Unread,
    /// The client gave no sign of life.
    Silent,
    /// The client did not speak HTTP/2 in time.
    HandshakeTimeout,
    /// Calls were under way when the time for them was over.
    GraceExceeded,
}

/// The failure of a connection: the reason for its peer, and the end for this side.
struct Failure {
    reason: Reason,
    end: End,
}

impl From<Reason> for Failure {
    fn from(reason: Reason) -> Self {
        Self { reason, end: End::Error(reason) }
    }
}

impl From<Abuse> for Failure {
    fn from(abuse: Abuse) -> Self {
        let end = match abuse {
            Abuse::Resets => End::ResetFlood,
            Abuse::Flood => End::Flood,
        };
        Self { reason: Reason::ENHANCE_YOUR_CALM, end }
    }
}

impl<S: Service> Connection<S> {
    /// Begins a connection. The server's preface is the first of what it sends.
    pub(super) fn new(service: S, limits: Limits, budget: &Arc<Budget>, now: Instant) -> Self {
        let mut connection = Self {
            service,
            limits,
            account: Account::new(Arc::clone(budget)),
            decoder: Decoder::new(HEADER_TABLE),
            encoder: Encoder::new(),
            fields: Fields::default(),
            known: None,
            block: None,
            streams: HashMap::default(),
            slots: Slots::default(),
            blocked: VecDeque::new(),
            forgotten: VecDeque::new(),
            last_stream: 0,
            goaway_stream: frame::MAX_STREAM,
            peer: Peer { initial_window: DEFAULT_WINDOW.into() },
            send_window: DEFAULT_WINDOW.into(),
            receive_window: WINDOW.into(),
            unacknowledged: 0,
            strikes: Strikes::new(now),
            spare: Vec::new(),
            out: Vec::new(),
            buffered: 0,
            is_over_budget: false,
            life: Life::new(now),
            end: None,
        };
        connection.write_preface();
        connection
    }

    /// Writes SETTINGS and widens the window of the connection.
    fn write_preface(&mut self) {
        let max_list = u32::try_from(MAX_HEADER_LIST).unwrap_or(u32::MAX);
        let settings = [(3u16, self.limits.max_streams), (4, WINDOW), (6, max_list)];
        let payload: Vec<u8> = settings
            .iter()
            .flat_map(|(name, value)| name.to_be_bytes().into_iter().chain(value.to_be_bytes()))
            .collect();
        frame::write(&mut self.out, kind::SETTINGS, 0, 0, &payload);
        let wider = WINDOW.saturating_sub(DEFAULT_WINDOW);
        frame::write(&mut self.out, kind::WINDOW_UPDATE, 0, 0, &wider.to_be_bytes());
    }

    /// Polls the calls that were woken, and writes what they answer.
    pub(super) fn poll_calls(&mut self, cx: &mut Context<'_>, now: Instant) {
        let ready = self.slots.take_ready(cx.waker());
        for slot in ready.iter().copied() {
            let Some(stream) = self.slots.stream(slot) else { continue };
            if let std::task::Poll::Ready(answer) = self.slots.poll(slot) {
                self.answer(stream, answer, now);
            }
            self.give_back_read(stream);
            self.pump(stream, now);
        }
        self.slots.give_back(ready);
    }

    /// Returns the bytes that are to be sent.
    pub(super) fn out(&self) -> &[u8] {
        &self.out
    }

    /// Charges the beginning of a frame that the caller of [`Self::receive`] keeps, and the bytes that wait for the socket, in the
    /// place of those before. Where memory is used up, nothing more is read until the socket has taken what waits; a client that
    /// lets much wait then is cut off. A frame that has come in part is small, and no reason for that.
    pub(super) fn charge_buffers(&mut self, partial: usize) {
        self.account.release(std::mem::take(&mut self.buffered));
        let buffered = partial.saturating_add(self.out.len());
        self.is_over_budget = self.account.charge(buffered).is_err();
        if !self.is_over_budget {
            self.buffered = buffered;
        } else if self.out.len() > MAX_UNCHARGED {
            self.end.get_or_insert(End::Unread);
        }
    }

    /// Returns whether more is to be read: not while the client does not take what waits for it.
    pub(super) fn wants_bytes(&self) -> bool {
        let is_affordable = self.out.is_empty() || !self.is_over_budget;
        self.end.is_none() && is_affordable && self.out.len() < MAX_UNSENT
    }

    /// Returns how the connection ended, if it has.
    pub(super) fn end(&self) -> Option<End> {
        self.end
    }

    /// The socket was closed.
    pub(super) fn on_closed(&mut self) {
        self.end.get_or_insert(End::Finished);
    }

    /// Ends the connection for what the client did, and tells it why.
    fn fail(&mut self, failure: &Failure) {
        if self.end.is_none() {
            self.write_goaway(self.last_stream, failure.reason);
            self.end = Some(failure.end);
            self.streams.clear();
            self.slots = Slots::default();
        }
    }

    /// Writes GOAWAY. No stream is named that an earlier one excluded (RFC 9113, 6.8): the client may have sent it elsewhere.
    fn write_goaway(&mut self, last_stream: u32, reason: Reason) {
        self.goaway_stream = self.goaway_stream.min(last_stream);
        let [a, b, c, d] = self.goaway_stream.to_be_bytes();
        let [e, f, g, h] = reason.0.to_be_bytes();
        frame::write(&mut self.out, kind::GOAWAY, 0, 0, &[a, b, c, d, e, f, g, h]);
    }

    /// Resets a stream, and remembers that frames of it may still come.
    fn reset(&mut self, stream: u32, reason: Reason) {
        frame::write(&mut self.out, kind::RST_STREAM, 0, stream, &reason.0.to_be_bytes());
        self.forget(stream);
        self.remove(stream);
    }

    /// Remembers that frames of a stream may still come, which are to be passed over.
    fn forget(&mut self, stream: u32) {
        if self.forgotten.len() >= MAX_FORGOTTEN {
            self.forgotten.pop_front();
        }
        self.forgotten.push_back(stream);
    }

    /// Resets a stream for an error of the client.
    fn reset_for_error(&mut self, stream: u32, reason: Reason) -> Result<(), Failure> {
        self.reset(stream, reason);
        Ok(self.strikes.record_error()?)
    }

    /// Removes a stream that is over, and ends its call.
    fn remove(&mut self, stream: u32) {
        if let Some(removed) = self.streams.remove(&stream) {
            self.account.release(removed.charged);
            if let Some(slot) = removed.slot {
                self.slots.free(slot);
            }
        }
    }

    /// Keeps the buffers of a finished call for a later one.
    fn recycle(&mut self, exchange: Exchange) {
        let is_small = exchange.request.capacity().max(exchange.answer.capacity()) <= MAX_SPARE_BYTES;
        if is_small && self.spare.len() < MAX_SPARE {
            self.spare.push(exchange);
        }
    }

    /// Gives back memory that a connection without calls does not need. A watch of health may be open for ever.
    fn shrink(&mut self) {
        self.spare = Vec::new();
        self.slots.shrink();
        self.fields = Fields::default();
        self.known = None;
        self.streams.shrink_to_fit();
        self.blocked.shrink_to_fit();
        if self.out.is_empty() {
            self.out = Vec::new();
        }
    }
}

#[cfg(any(test, fuzzing))]
#[allow(clippy::arithmetic_side_effects, clippy::panic, reason = "a check that panics has found something")]
impl<S: Service> Connection<S> {
    /// Asserts what holds between any two events: charges are those of what is held, and lists are bounded by the bound of streams.
    pub(super) fn check(&self) {
        if self.end.is_some() {
            return;
        }
        let streams: usize = self.streams.values().map(|stream| stream.charged).sum();
        let block = self.block.as_ref().map_or(0, |block| block.bytes.len());
        assert_eq!(self.account.used(), streams + block + self.buffered, "charges are those of what is held");
        let max_streams = usize::try_from(self.limits.max_streams).unwrap_or(usize::MAX);
        let max_list = max_streams * 4 + 200;
        assert!(self.blocked.len() <= max_list, "{} streams wait in turn", self.blocked.len());
        assert!(self.life.deadlines() <= max_list, "{} deadlines", self.life.deadlines());
        assert!(self.forgotten.len() <= MAX_FORGOTTEN && self.spare.len() <= MAX_SPARE);
        assert!(self.streams.len() <= max_streams);
    }
}

impl<H: Clone> KnownBlock<H> {
    fn route(&self) -> Route<H> {
        Route::Unary { head: self.head.clone(), max_body: self.max_body }
    }
}
