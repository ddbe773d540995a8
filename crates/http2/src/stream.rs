//! A call in progress: the received part of its request, and the pending part of its answer.

use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, Request};

use super::body::BodySender;
use super::delivery::Delivery;
use super::frame::{FrameHead, flag};
use super::message::{self, PREFIX};
use super::refusal::Refusal;
use super::service::{MessageCall, Service, WholeCall};

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
    /// Bytes of messages that wait for their reader, to be returned afterwards.
    pub(super) unread: usize,
    pub(super) output: Output<S::Body>,
    /// Bytes that this side may send; negative after the client lowered the window.
    pub(super) send_window: i64,
    /// Delivery of the answer, if the service reads the body.
    pub(super) delivery: Option<Delivery>,
    /// Slot of the call's future, once the call has begun.
    pub(super) slot: Option<usize>,
    /// Deadline for the client to send its message, or the rest of one.
    pub(super) message_deadline: Option<Instant>,
    /// Deadline for the client to read more of its answer.
    pub(super) answer_deadline: Option<Instant>,
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
    /// Collected for a call that has not begun.
    Collecting { call: AwaitingCall<H>, body: Vec<u8> },
    /// Read by the service as it arrives.
    Streaming(BodySender),
    /// No longer wanted.
    Discarding,
    /// Received completely.
    Ended,
}

/// A call that waits for its body, or for the first message.
pub(super) enum AwaitingCall<H> {
    Unary { head: H, max_message: usize },
    General(Box<GeneralCall>),
}

/// A call that its service gets as a request.
pub(super) struct GeneralCall {
    /// Its header list.
    pub(super) request: Request<()>,
    pub(super) mode: GeneralMode,
}

/// Mode of reading a general call.
#[derive(Clone, Copy, Debug)]
pub(super) enum GeneralMode {
    Whole(WholeCall),
    Messages(MessageCall),
    Bytes { cost: usize },
}

impl GeneralMode {
    /// Returns the bytes that a call holds besides its header list and the first `length` bytes of
    /// its body.
    pub(super) fn cost(self, length: usize) -> usize {
        match self {
            Self::Whole(WholeCall { cost, byte_cost, .. }) => {
                cost.saturating_add(byte_cost.saturating_mul(length))
            }
            Self::Messages(MessageCall { cost, .. }) | Self::Bytes { cost } => cost,
        }
    }

    /// Returns the maximum size of the messages that the service reads one by one.
    pub(super) fn max_message(self) -> Option<usize> {
        match self {
            Self::Messages(MessageCall { max_message, .. }) => Some(max_message),
            Self::Whole(_) | Self::Bytes { .. } => None,
        }
    }
}

impl<H> AwaitingCall<H> {
    /// Returns `true` if the call begins with what has arrived of its body, before its end.
    ///
    /// # Errors
    /// The body, or its first message, is larger than is allowed.
    pub(super) fn is_ready(&self, body: &[u8]) -> Result<bool, Refusal> {
        let within = |max: usize| {
            if body.len() > max.saturating_add(PREFIX) {
                Err(Refusal::MessageTooLarge { max })
            } else {
                Ok(false)
            }
        };
        match self {
            Self::Unary { max_message, .. } => within(*max_message),
            Self::General(call) => match call.mode {
                GeneralMode::Whole(WholeCall { max_message, .. }) => within(max_message),
                GeneralMode::Messages(MessageCall { max_message, .. }) => {
                    message::whole_message(body, max_message).map(|message| message.is_some())
                }
                GeneralMode::Bytes { .. } => Ok(true),
            },
        }
    }
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
            unread: 0,
            output: Output::Awaited,
            send_window,
            delivery: None,
            slot: None,
            message_deadline: None,
            answer_deadline: None,
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

    /// Returns the deadlines of the message and of the answer.
    pub(super) fn deadlines(&self) -> [Option<Instant>; 2] {
        [self.message_deadline, self.answer_deadline]
    }

    /// Returns `true` if bytes of the answer wait for a window.
    pub(super) fn has_unsent(&self) -> bool {
        matches!(&self.output, Output::Sending { data, .. } if !data.is_empty())
    }
}
