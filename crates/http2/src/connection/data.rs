//! DATA: the bodies of calls, collected or read by the service (RFC 9113, section 6.1).

use std::time::Instant;

use super::calls::length;
use super::{Connection, ConnectionFailure};
use crate::frame::{self, FrameHead, Reason, flag};
use crate::service::{Refusal, Service};
use crate::stream::{Arrival, Output, RequestState};

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
        let Some(stream) = self.streams.get(&id) else { return };
        let is_answered = matches!(stream.output, Output::Sending { .. });
        let (refusal, is_streaming) = match &stream.input {
            RequestState::Collecting { body, max, .. }
                if body.len().saturating_add(data.len()) > *max =>
            {
                (Some(Refusal::BodyTooLarge), false)
            }
            RequestState::Collecting { .. } => (None, false),
            RequestState::Streaming(_) => (None, true),
            RequestState::Discarding | RequestState::Ended => {
                self.give_back(counted);
                return self.give_back_of(id, counted);
            }
        };
        let refusal = refusal
            .or_else(|| (!self.charge_stream(id, data.len())).then_some(Refusal::BudgetExceeded));
        if let Some(refusal) = refusal {
            self.give_back(counted);
            if is_answered {
                return self.reset(id, Reason::ENHANCE_YOUR_CALM);
            }
            return self.refuse(id, refusal, Arrival::Partial, now);
        }
        // The stream's window is replenished as its reader reads, the connection's at once: one
        // slow reader must not hold up other calls.
        self.give_back(counted);
        self.give_back_of(
            id,
            if is_streaming { counted.saturating_sub(data.len()) } else { counted },
        );
        let Some(stream) = self.streams.get_mut(&id) else { return };
        match &mut stream.input {
            RequestState::Collecting { body, .. } => body.extend_from_slice(data),
            RequestState::Streaming(sender) if !data.is_empty() => {
                // If the reader was dropped, all bytes count as read.
                sender.send(data);
                self.give_back_read(id);
            }
            RequestState::Streaming(_) | RequestState::Discarding | RequestState::Ended => {}
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
        stream.deadline = None;
        match std::mem::replace(&mut stream.input, RequestState::Ended) {
            RequestState::Collecting { head, body, .. } => {
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

    /// Releases what a reader took of a body, and returns it to the stream's window.
    pub(super) fn give_back_read(&mut self, id: u32) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let RequestState::Streaming(sender) = &stream.input else { return };
        let read = sender.take_read();
        stream.charged = stream.charged.saturating_sub(read);
        self.account.release(read);
        self.give_back_of(id, read);
    }
}
