//! DATA: the bodies of calls, collected or read by the service (RFC 9113, section 6.1).

use std::time::Instant;

use super::calls::length;
use super::{Connection, ConnectionFailure};
use crate::body::{BodyRead, MessageProgress};
use crate::frame::{self, FrameHead, Reason, flag};
use crate::refusal::Refusal;
use crate::service::Service;
use crate::stream::{AwaitingCall, RequestState};

impl<S: Service> Connection<S> {
    pub(super) fn data(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        now: Instant,
    ) -> Result<(), ConnectionFailure> {
        let id = head.stream;
        let is_end = head.has(flag::END_STREAM);
        if self.is_idle(id) {
            return Err(Reason::PROTOCOL_ERROR.into());
        }
        let data = frame::unpad(head, payload).ok_or(Reason::PROTOCOL_ERROR)?;
        let Some(stream) = self.streams.get_mut(&id) else {
            self.give_back(payload.len());
            return if self.forgotten.contains(id) {
                Ok(())
            } else {
                self.reset_for_error(id, Reason::STREAM_CLOSED, now)
            };
        };
        if stream.is_remote_closed() {
            self.give_back(payload.len());
            return self.reset_for_error(id, Reason::STREAM_CLOSED, now);
        }
        // Padding counts towards the windows (RFC 9113, 6.1), and is returned at once.
        stream.receive_window = stream.receive_window.saturating_sub(length(payload.len()));
        let expected = stream.expected.map(|left| left.checked_sub(data.len() as u64));
        stream.expected = expected.flatten();
        let is_wrong_length =
            expected.is_some_and(|left| left.is_none() || is_end && left != Some(0));
        if stream.receive_window < 0 || is_wrong_length {
            let is_within = stream.receive_window >= 0;
            self.give_back(payload.len());
            return self.reset_for_error(
                id,
                if is_within { Reason::PROTOCOL_ERROR } else { Reason::FLOW_CONTROL_ERROR },
                now,
            );
        }
        if data.is_empty() && !is_end {
            self.record_empty(now)?;
        }
        self.take_data(id, data, payload.len(), now);
        if is_end { self.end_input(id, None, now) } else { Ok(()) }
    }

    /// Passes on bytes of a body. `counted` is the number of bytes that they took from the windows.
    fn take_data(&mut self, id: u32, data: &[u8], counted: usize, now: Instant) {
        // The connection's window is replenished at once: one slow reader must not hold up other
        // calls. That of a stream is when no whole message waits for its reader.
        self.give_back(counted);
        let Some(stream) = self.streams.get(&id) else { return };
        let is_wanted = !matches!(stream.input, RequestState::Discarding | RequestState::Ended);
        if is_wanted && !self.charge_arriving(id, data.len()) {
            return self.refuse_message(id, Refusal::BudgetExceeded, now);
        }
        let Some(stream) = self.streams.get_mut(&id) else { return };
        match &mut stream.input {
            RequestState::Discarding | RequestState::Ended => self.give_back_of(id, counted),
            RequestState::Collecting { body, .. } => {
                body.extend_from_slice(data);
                self.give_back_of(id, counted);
                self.begin_if_ready(id, now);
            }
            RequestState::Streaming(sender) => {
                let sent = sender.send(data);
                stream.unread = stream.unread.saturating_add(data.len());
                self.give_back_of(id, counted.saturating_sub(data.len()));
                self.on_sent(id, sent, now);
                // If the reader was dropped, all bytes count as read.
                self.give_back_read(id);
            }
        }
    }

    /// Sets the deadline of a message that has begun to arrive, or refuses it.
    pub(super) fn on_sent(
        &mut self,
        id: u32,
        sent: Result<MessageProgress, Refusal>,
        now: Instant,
    ) {
        match sent {
            Ok(MessageProgress::Begun) => self.set_message_deadline(id, now),
            Ok(MessageProgress::Continued) => {}
            Ok(MessageProgress::Whole) => {
                if let Some(stream) = self.streams.get_mut(&id) {
                    stream.message_deadline = None;
                }
            }
            Err(refusal) => self.refuse_message(id, refusal, now),
        }
    }

    /// Ends the request: begins a collected call, or ends the body that a service reads.
    pub(super) fn end_input(
        &mut self,
        id: u32,
        trailers: Option<http::HeaderMap>,
        now: Instant,
    ) -> Result<(), ConnectionFailure> {
        let Some(stream) = self.streams.get_mut(&id) else { return Ok(()) };
        if stream.expected.is_some_and(|left| left != 0) {
            return self.reset_for_error(id, Reason::PROTOCOL_ERROR, now);
        }
        stream.message_deadline = None;
        match std::mem::replace(&mut stream.input, RequestState::Ended) {
            RequestState::Collecting { call: AwaitingCall::General(call), body } => {
                self.begin_general(id, *call, &body, Some(trailers), now);
            }
            RequestState::Collecting { call: AwaitingCall::Unary { head, .. }, body } => {
                let mut exchange = self.spare.pop().unwrap_or_default();
                exchange.request = body;
                exchange.answer.clear();
                self.begin_exchange(id, head, exchange, now);
            }
            RequestState::Streaming(sender) => sender.finish(trailers),
            RequestState::Discarding | RequestState::Ended => {}
        }
        Ok(())
    }

    /// Releases what a reader has done with of a body, and returns it to the stream's window once
    /// no whole message is left: a message that is larger than the window arrives too.
    pub(super) fn give_back_read(&mut self, id: u32) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let RequestState::Streaming(sender) = &stream.input else { return };
        let BodyRead { bytes, is_drained } = sender.take_read();
        stream.charged = stream.charged.saturating_sub(bytes);
        self.account.release(bytes);
        if is_drained {
            let unread = std::mem::take(&mut stream.unread);
            self.give_back_of(id, unread);
        }
    }
}
