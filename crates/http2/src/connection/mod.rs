//! The server side of an HTTP/2 connection, without IO: bytes and the time in, bytes out.
//!
//! | file | holds |
//! |---|---|
//! | `receive` | received frames, in order; frames of the connection itself |
//! | `routes` | header blocks, decoded or recognized |
//! | `calls` | HEADERS: the start of calls |
//! | `data` | DATA: the bodies of calls |
//! | `answers` | answers, written as far as windows allow |
//! | `timers` | timers: keepalive, deadlines, age, shutdown |
//! | `closed_streams` | closed streams whose late frames are ignored |
//! | `check` | invariants, for tests and fuzz targets |

mod answers;
mod calls;
#[cfg(any(test, fuzzing))]
mod check;
mod closed_streams;
mod data;
mod receive;
mod routes;
#[cfg(test)]
mod tests;
mod timers;

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use futures_util::future::Either;

use self::closed_streams::ClosedStreams;
pub(super) use self::timers::ConnectionTimers;
use super::abuse::{Abuse, AbuseCounters};
use super::account::ConnectionAccount;
use super::call_slots::CallSlots;
use super::fields::HeaderFields;
use super::frame::{self, Reason, kind};
use super::hpack::{Decoder, Encoder};
use super::service::{Exchange, ResponseFuture, Route, Service};
use super::stream::{Arrival, Stream};

/// Receive window of each stream and of the connection, in bytes: larger than usual requests.
const WINDOW: u32 = 1 << 20;
/// Initial window of a connection (RFC 9113, 6.9.2).
const DEFAULT_WINDOW: u32 = 65_535;
/// Size of the dynamic table for the client's blocks, in bytes: the protocol's initial value.
const HEADER_TABLE: usize = 4096;
/// Bytes of pending output above which answers wait in their streams and reading pauses.
const MAX_UNSENT: usize = 256 << 10;
/// Bytes of pending output allowed when memory is exhausted.
const MAX_UNCHARGED: usize = 16 << 10;
/// Maximum number of buffers of finished calls kept for reuse.
const MAX_SPARE: usize = 64;
/// General calls begun in one turn: each costs as much as tens of unary calls.
const MAX_BEGUN: usize = 8;
/// Bytes of work of calls before other connections run: four times the largest read.
const MAX_WORK: usize = 64 << 10;
/// Maximum capacity of a buffer kept for reuse, in bytes.
const MAX_SPARE_BYTES: usize = 4 << 10;

/// Limits of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of concurrent calls.
    pub max_streams: u32,
    /// Maximum size of a header list, in bytes as RFC 9113, 6.5.2 counts.
    pub max_header_list: u32,
    /// Timeout for a request's message to arrive, and for an answer to be read.
    pub message_timeout: Duration,
    /// Time without bytes from the client after which it is pinged.
    pub keepalive_interval: Duration,
    /// Timeout for the answer to the ping, after which the connection is closed.
    pub keepalive_timeout: Duration,
}

/// The server side of a connection.
pub(super) struct Connection<S: Service> {
    service: S,
    limits: Limits,
    account: ConnectionAccount,
    decoder: Decoder,
    encoder: Encoder,
    fields: HeaderFields,
    /// The last header block that left the decoder's table unchanged, and its route.
    known: Option<KnownBlock<S::Head>>,
    /// An incomplete header block.
    block: Option<PartialBlock>,
    streams: HashMap<u32, Stream<S>, RandomState>,
    slots: CallSlots<CallFuture<S>>,
    /// Streams whose answers wait for the connection's window or for the socket.
    blocked: VecDeque<u32>,
    /// Streams closed by this side first.
    forgotten: ClosedStreams,
    /// The last stream that the client opened.
    last_stream: u32,
    /// The last stream named in the latest GOAWAY.
    goaway_stream: u32,
    peer: PeerSettings,
    /// Bytes that this side may send on all streams together.
    send_window: i64,
    /// Bytes received and not yet returned to the client's window, less than half of it.
    unacknowledged: usize,
    /// General calls begun by the latest bytes.
    begun: usize,
    /// Bytes of work done by calls since then.
    work: usize,
    abuse: AbuseCounters,
    spare: Vec<Exchange>,
    out: Vec<u8>,
    /// Bytes charged for a partial frame and for `out`.
    buffered: usize,
    /// `true` if they could not be charged.
    is_over_budget: bool,
    timers: ConnectionTimers,
    /// The abuse for which the connection is shutting down.
    abuse_found: Option<Abuse>,
    end: Option<ConnectionEnd>,
}

/// The future of a call.
type CallFuture<S> = Either<<S as Service>::Unary, ResponseFuture<<S as Service>::Body>>;

/// A header block whose route is known.
struct KnownBlock<H> {
    block: Vec<u8>,
    head: H,
    max_message: usize,
    content_length: Option<u64>,
}

/// The properties of a header block, from its first frame.
struct BlockHead {
    stream: u32,
    arrival: Arrival,
    /// Set if the stream's priority depends on the stream itself.
    depends_on_itself: bool,
}

/// The received part of a header block.
struct PartialBlock {
    head: BlockHead,
    bytes: Vec<u8>,
}

/// The client's settings that this side uses.
#[derive(Clone, Copy, Debug)]
struct PeerSettings {
    initial_window: i64,
}

/// Load of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConnectionLoad {
    /// `true` if calls are under way.
    pub(super) is_busy: bool,
    /// The last stream that the client opened.
    pub(super) last_stream: u32,
    /// Bytes that calls and buffers hold.
    pub(super) held: usize,
}

/// Reason for the end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionEnd {
    /// All calls are finished, and no more will come.
    Finished,
    /// The client broke the protocol.
    Error(Reason),
    /// The client kept resetting calls before they were answered.
    ResetFlood,
    /// The client sent more frames of some kind than any client needs.
    Flood,
    /// The client did not read its answers.
    Unread,
    /// The client did not answer a ping in time.
    Silent,
    /// The client did not complete the HTTP/2 handshake in time.
    HandshakeTimeout,
    /// Calls were still under way when the grace period ended.
    GraceExceeded,
}

/// Failure of a connection: the reason sent to the client, and the end for this side.
struct ConnectionFailure {
    reason: Reason,
    end: ConnectionEnd,
}

impl From<Reason> for ConnectionFailure {
    fn from(reason: Reason) -> Self {
        Self { reason, end: ConnectionEnd::Error(reason) }
    }
}

impl From<Abuse> for ConnectionEnd {
    fn from(abuse: Abuse) -> Self {
        match abuse {
            Abuse::Resets => Self::ResetFlood,
            Abuse::Flood => Self::Flood,
        }
    }
}

impl<S: Service> Connection<S> {
    /// Creates a connection. Its first output is the server's preface.
    pub(super) fn new(
        service: S,
        limits: Limits,
        account: ConnectionAccount,
        now: Instant,
    ) -> Self {
        let mut connection = Self {
            service,
            limits,
            account,
            decoder: Decoder::new(HEADER_TABLE),
            encoder: Encoder::new(),
            fields: HeaderFields::default(),
            known: None,
            block: None,
            streams: HashMap::default(),
            slots: CallSlots::default(),
            blocked: VecDeque::new(),
            forgotten: ClosedStreams::default(),
            last_stream: 0,
            goaway_stream: frame::MAX_STREAM,
            peer: PeerSettings { initial_window: DEFAULT_WINDOW.into() },
            send_window: DEFAULT_WINDOW.into(),
            unacknowledged: 0,
            begun: 0,
            work: 0,
            abuse: AbuseCounters::new(now),
            spare: Vec::new(),
            out: Vec::new(),
            buffered: 0,
            is_over_budget: false,
            timers: ConnectionTimers::new(now),
            abuse_found: None,
            end: None,
        };
        connection.write_preface();
        connection
    }

    /// Writes SETTINGS and widens the window of the connection.
    fn write_preface(&mut self) {
        let Limits { max_streams, max_header_list, .. } = self.limits;
        let settings = [(3u16, max_streams), (4, WINDOW), (6, max_header_list)];
        let payload: Vec<u8> = settings
            .iter()
            .flat_map(|(name, value)| name.to_be_bytes().into_iter().chain(value.to_be_bytes()))
            .collect();
        frame::write(&mut self.out, kind::SETTINGS, 0, 0, &payload);
        let wider = WINDOW.saturating_sub(DEFAULT_WINDOW);
        frame::write(&mut self.out, kind::WINDOW_UPDATE, 0, 0, &wider.to_be_bytes());
    }

    /// Returns the bytes to send.
    pub(super) fn out(&self) -> &[u8] {
        &self.out
    }

    /// Charges the partial frame kept by the caller of [`Self::receive`], and the pending output,
    /// in place of the previous charge. If memory is exhausted, reading pauses until the socket has
    /// accepted the output; only much pending output cuts the client off.
    pub(super) fn charge_buffers(&mut self, partial: usize) {
        self.account.release(std::mem::take(&mut self.buffered));
        let buffered = partial.saturating_add(self.out.len());
        self.is_over_budget = self.account.charge(buffered).is_err();
        if !self.is_over_budget {
            self.buffered = buffered;
        } else if self.out.len() > MAX_UNCHARGED {
            self.end.get_or_insert(ConnectionEnd::Unread);
        }
    }

    /// Returns `true` if more is to be read: not while the client does not read its pending output.
    pub(super) fn wants_bytes(&self) -> bool {
        let is_affordable = self.out.is_empty() || !self.is_over_budget;
        self.end.is_none() && is_affordable && self.out.len() < MAX_UNSENT
    }

    /// Returns `true` if frames were left for the next turn.
    pub(super) fn is_behind(&self) -> bool {
        (self.begun >= MAX_BEGUN || self.work >= MAX_WORK) && self.end.is_none()
    }

    /// Returns the load of the connection.
    pub(super) fn load(&self) -> ConnectionLoad {
        ConnectionLoad {
            is_busy: !self.streams.is_empty(),
            last_stream: self.last_stream,
            held: self.account.used(),
        }
    }

    /// Returns the reason for the connection's end, if it has ended.
    pub(super) fn end(&self) -> Option<ConnectionEnd> {
        self.end
    }

    /// Records that the socket was closed.
    pub(super) fn on_closed(&mut self) {
        self.close(ConnectionEnd::Finished);
    }

    /// Ends the connection because of a client error, and sends the reason.
    fn fail(&mut self, failure: &ConnectionFailure) {
        if self.end.is_none() {
            self.write_goaway(self.last_stream, failure.reason);
            self.end = Some(failure.end);
            self.streams.clear();
            self.slots = CallSlots::default();
        }
    }

    /// Writes GOAWAY. Names no stream that an earlier one excluded (RFC 9113, 6.8): the client may
    /// have sent it elsewhere.
    fn write_goaway(&mut self, last_stream: u32, reason: Reason) {
        self.goaway_stream = self.goaway_stream.min(last_stream);
        let [a, b, c, d] = self.goaway_stream.to_be_bytes();
        let [e, f, g, h] = reason.0.to_be_bytes();
        frame::write(&mut self.out, kind::GOAWAY, 0, 0, &[a, b, c, d, e, f, g, h]);
    }

    /// Resets a stream, and remembers that frames on it may still arrive.
    fn reset(&mut self, stream: u32, reason: Reason) {
        frame::write(&mut self.out, kind::RST_STREAM, 0, stream, &reason.0.to_be_bytes());
        self.forgotten.push(stream);
        self.remove(stream);
    }

    /// Resets a stream because of a client error.
    fn reset_for_error(
        &mut self,
        stream: u32,
        reason: Reason,
        now: Instant,
    ) -> Result<(), ConnectionFailure> {
        self.reset(stream, reason);
        let recorded = self.abuse.record_error(now);
        self.tolerate(recorded, now)
    }

    /// Removes a closed stream, and drops its call.
    fn remove(&mut self, stream: u32) {
        if let Some(removed) = self.streams.remove(&stream) {
            self.account.release(removed.charged);
            if let Some(slot) = removed.slot {
                self.slots.free(slot);
            }
        }
    }

    /// Keeps the buffers of a finished call for reuse.
    fn recycle(&mut self, exchange: Exchange) {
        let is_small =
            exchange.request.capacity().max(exchange.answer.capacity()) <= MAX_SPARE_BYTES;
        if is_small && self.spare.len() < MAX_SPARE {
            self.spare.push(exchange);
        }
    }

    /// Releases memory that an idle connection does not need. A health watch may be open for ever.
    fn shrink(&mut self) {
        self.spare = Vec::new();
        self.slots.shrink();
        self.fields = HeaderFields::default();
        self.known = None;
        self.streams.shrink_to_fit();
        self.blocked.shrink_to_fit();
        if self.out.is_empty() {
            self.out = Vec::new();
        }
    }
}

impl<H: Clone> KnownBlock<H> {
    fn route(&self) -> Route<H> {
        Route::Unary { head: self.head.clone(), max_message: self.max_message }
    }
}
