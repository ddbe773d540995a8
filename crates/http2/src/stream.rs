//! A call in progress: the received part of its request, and the pending part of its answer.

use std::time::Instant;

use bytes::Bytes;
use http::HeaderMap;

use super::body::BodySender;
use super::delivery::Delivery;
use super::frame::{FrameHead, flag};
use super::service::Service;

/// Memory of a stream in bytes, except its future and its pending bytes: the stream, its slot, its
/// list entries.
pub(super) const STREAM_COST: usize = 1 << 10;

/// The stream of a call in progress.
pub(super) struct Stream<S: Service> {
    pub(super) input: RequestState<S::Head>,
    /// Announced bytes of the body that have not arrived.
    pub(super) expected: Option<u64>,
    /// Bytes that the client may send.
    pub(super) receive_window: i64,
    /// Bytes received and not yet returned to the client's window.
    pub(super) unacknowledged: usize,
    pub(super) output: Output<S::Body>,
    /// Bytes that this side may send; negative after the client lowered the window.
    pub(super) send_window: i64,
    /// Delivery of the answer, if the service reads the body.
    pub(super) delivery: Option<Delivery>,
    /// Slot of the call's future, once the call has begun.
    pub(super) slot: Option<usize>,
    /// Deadline for the client to send its message, or to read more of its answer.
    pub(super) deadline: Option<Instant>,
    /// Time of the latest entry in the queue of deadlines.
    pub(super) scheduled: Option<Instant>,
    /// Bytes charged to the connection's account.
    pub(super) charged: usize,
    /// `true` if it is queued for the connection's window or the socket.
    pub(super) is_queued: bool,
}

/// Arrival of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// More is to come.
    Partial,
    /// All of it has arrived.
    Whole,
}

/// The request's body.
pub(super) enum RequestState<H> {
    /// Collected for a unary call.
    Collecting { head: H, max: usize, body: Vec<u8> },
    /// Read by the service as it arrives.
    Streaming(BodySender),
    /// No longer wanted.
    Discarding,
    /// Received completely.
    Ended,
}

/// The answer.
pub(super) enum Output<B> {
    /// None yet.
    Awaited,
    /// In progress: its headers are sent.
    Sending {
        /// Bytes that wait for a window.
        data: Bytes,
        then: AnswerRest<B>,
    },
}

/// The rest of an answer, after the bytes in `data`.
pub(super) enum AnswerRest<B> {
    /// The trailers of a message with status 0.
    Ok,
    /// More data from a body.
    Body(B),
    /// Trailers.
    Trailers(HeaderMap),
    /// The end of the stream.
    End,
}

impl Arrival {
    /// Returns the arrival of a request with a frame of HEADERS or DATA.
    pub(super) fn with(head: FrameHead) -> Self {
        if head.has(flag::END_STREAM) { Self::Whole } else { Self::Partial }
    }
}

impl<S: Service> Stream<S> {
    pub(super) fn new(
        input: RequestState<S::Head>,
        expected: Option<u64>,
        receive_window: i64,
        send_window: i64,
    ) -> Self {
        Self {
            input,
            expected,
            receive_window,
            unacknowledged: 0,
            output: Output::Awaited,
            send_window,
            delivery: None,
            slot: None,
            deadline: None,
            scheduled: None,
            charged: 0,
            is_queued: false,
        }
    }

    /// Returns the arrival of the request.
    pub(super) fn arrival(&self) -> Arrival {
        if self.is_remote_closed() { Arrival::Whole } else { Arrival::Partial }
    }

    /// Returns `true` if the whole request has arrived.
    pub(super) fn is_remote_closed(&self) -> bool {
        matches!(self.input, RequestState::Ended)
    }

    /// Returns `true` if bytes of the answer wait for a window.
    pub(super) fn has_unsent(&self) -> bool {
        matches!(&self.output, Output::Sending { data, .. } if !data.is_empty())
    }
}
