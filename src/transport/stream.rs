//! A call that is not over: its request as far as it has come, and its answer as far as it waits.

use std::time::Instant;

use bytes::Bytes;
use http::HeaderMap;

use super::body::BodySender;
use super::service::Service;

/// Memory of a stream besides its future and the bytes that it waits with: itself, its slot, its place in lists.
pub(super) const STREAM_COST: usize = 1 << 10;

/// A stream of a call that is not over.
pub(super) struct Stream<S: Service> {
    pub(super) input: Input<S::Head>,
    /// Bytes of the body that the client announced and that have not come.
    pub(super) expected: Option<u64>,
    /// Bytes that the client may send.
    pub(super) receive_window: i64,
    /// Bytes that were taken and not given back to the client's window.
    pub(super) unacknowledged: usize,
    pub(super) output: Output<S::Body>,
    /// Bytes that this side may send; below 0 after the client lowered it.
    pub(super) send_window: i64,
    /// Slot of the call's future, once it has begun.
    pub(super) slot: Option<usize>,
    /// End of the time that the client has for its message, or for taking more of its answer.
    pub(super) deadline: Option<Instant>,
    /// The latest instant at which the deadline is looked at.
    pub(super) scheduled: Option<Instant>,
    /// Bytes charged to the connection's account.
    pub(super) charged: usize,
    /// True if it waits in turn for the window of the connection or for the socket.
    pub(super) is_queued: bool,
}

/// The request's body.
pub(super) enum Input<H> {
    /// Collected for a unary call.
    Collecting { head: H, max: usize, body: Vec<u8> },
    /// Read by the service while it comes.
    Streaming(BodySender),
    /// Not wanted any more.
    Discarding,
    /// All of it has come.
    Ended,
}

/// The answer.
pub(super) enum Output<B> {
    /// None so far.
    Awaited,
    /// Its head is sent.
    Sending {
        /// Bytes that wait for a window.
        data: Bytes,
        then: Then<B>,
    },
}

/// The rest of an answer behind the bytes that are here.
pub(super) enum Then<B> {
    /// The trailers of a message with status 0.
    Ok,
    /// More, from a body.
    Body(B),
    /// Trailers.
    Trailers(HeaderMap),
    /// The end of the stream.
    End,
}

impl<S: Service> Stream<S> {
    pub(super) fn new(input: Input<S::Head>, expected: Option<u64>, receive_window: i64, send_window: i64) -> Self {
        Self {
            input,
            expected,
            receive_window,
            unacknowledged: 0,
            output: Output::Awaited,
            send_window,
            slot: None,
            deadline: None,
            scheduled: None,
            charged: 0,
            is_queued: false,
        }
    }

    /// Returns whether all of the request has come.
    pub(super) fn is_remote_closed(&self) -> bool {
        matches!(self.input, Input::Ended)
    }
}
