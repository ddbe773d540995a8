//! Writes answers as far as windows and the socket allow (RFC 9113, sections 5.2 and 8.1).

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use http::{HeaderMap, Response};
use http_body::Body as _;

use super::calls::length;
use super::{Connection, ConnectionFailure, MAX_UNSENT, MAX_WORK};
use crate::frame::{self, MAX_PAYLOAD, Reason, flag, kind};
use crate::service::{Answer, Exchange, Service};
use crate::stream::{AnswerRest, Arrival, Output, RequestState, STREAM_COST, Stream};

const STATUS: &[u8] = b":status";
const OK: &[u8] = b"200";
const TOO_LARGE: &[u8] = b"431";
const CONTENT_TYPE: (&[u8], &[u8]) = (b"content-type", b"application/grpc");
const GRPC_OK: (&[u8], &[u8]) = (b"grpc-status", b"0");

impl<S: Service> Connection<S> {
    /// Polls the calls that were woken, and writes their answers.
    pub(crate) fn poll_calls(&mut self, cx: &mut Context<'_>, now: Instant) {
        let ready = self.slots.take_ready(cx.waker());
        let mut work = 0_usize;
        for slot in ready.iter().copied() {
            let Some(stream) = self.slots.stream(slot) else { continue };
            if work >= MAX_WORK {
                self.slots.wake(slot);
                continue;
            }
            if let Poll::Ready(answer) = self.slots.poll(slot) {
                self.answer(stream, answer, now);
            }
            self.give_back_read(stream);
            self.pump(stream, now);
            let done = self.account.calls().take_work();
            work = work.saturating_add(done);
            self.work = self.work.saturating_add(done);
        }
        self.slots.give_back(ready);
    }

    /// Answers a call, which has arrived completely if it has no entry in `streams`.
    pub(super) fn answer(&mut self, id: u32, answer: Answer<S::Body>, now: Instant) {
        let arrival = self.streams.get(&id).map_or(Arrival::Whole, Stream::arrival);
        self.answer_of(id, answer, arrival, now);
    }

    /// Answers a call whose request has arrived so far.
    pub(super) fn answer_of(
        &mut self,
        id: u32,
        answer: Answer<S::Body>,
        arrival: Arrival,
        now: Instant,
    ) {
        match answer {
            Answer::Message(exchange) => self.answer_message(id, exchange, arrival, now),
            Answer::Response(response) => self.answer_response(id, *response, arrival, now),
        }
    }

    fn answer_message(&mut self, id: u32, exchange: Exchange, arrival: Arrival, now: Instant) {
        let encoder = &mut self.encoder;
        frame::write_block(&mut self.out, 0, id, |out| {
            encoder.begin(out);
            encoder.field(STATUS, OK, out);
            encoder.repeated(CONTENT_TYPE.0, CONTENT_TYPE.1, out);
        });
        let bytes = exchange.answer.len();
        let is_whole = arrival == Arrival::Whole;
        if is_whole && bytes <= MAX_PAYLOAD && length(bytes) <= self.room(id) {
            frame::write(&mut self.out, kind::DATA, 0, id, &exchange.answer);
            self.spend(id, bytes);
            self.write_ok(id);
            self.finish(id, arrival);
            return self.recycle(exchange);
        }
        self.release_request(id);
        self.send(id, Bytes::from(exchange.answer), AnswerRest::Ok, arrival, now);
    }

    fn answer_response(
        &mut self,
        id: u32,
        response: Response<S::Body>,
        arrival: Arrival,
        now: Instant,
    ) {
        let (parts, body) = response.into_parts();
        let is_end = body.is_end_stream();
        let encoder = &mut self.encoder;
        frame::write_block(&mut self.out, if is_end { flag::END_STREAM } else { 0 }, id, |out| {
            encoder.begin(out);
            encoder.field(STATUS, parts.status.as_str().as_bytes(), out);
            for (name, value) in &parts.headers {
                encoder.field(name.as_str().as_bytes(), value.as_bytes(), out);
            }
        });
        if is_end {
            return self.finish(id, arrival);
        }
        self.send(id, Bytes::new(), AnswerRest::Body(body), arrival, now);
    }

    /// Sends a body as the client's windows allow.
    fn send(
        &mut self,
        id: u32,
        data: Bytes,
        then: AnswerRest<S::Body>,
        arrival: Arrival,
        now: Instant,
    ) {
        if !self.streams.contains_key(&id) {
            let input = match arrival {
                Arrival::Whole => RequestState::Ended,
                Arrival::Partial => RequestState::Discarding,
            };
            if !self.open(id, input, None) {
                return self.reset(id, Reason::ENHANCE_YOUR_CALM);
            }
        }
        let waiting = data.len();
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.output = Output::Sending { data, then };
            if !matches!(stream.input, RequestState::Streaming(_)) {
                stream.message_deadline = None;
            }
        }
        if !self.charge_stream(id, waiting) {
            return self.reset(id, Reason::ENHANCE_YOUR_CALM);
        }
        self.pump(id, now);
    }

    /// Releases what the message of a unary call was charged: the call is answered.
    fn release_request(&mut self, id: u32) {
        if let Some(stream) = self.streams.get_mut(&id) {
            self.account.release(stream.charged.saturating_sub(STREAM_COST));
            stream.charged = STREAM_COST;
        }
    }

    /// Returns the number of bytes of DATA that may be sent on a stream now.
    fn room(&self, id: u32) -> i64 {
        let window =
            self.streams.get(&id).map_or(self.peer.initial_window, |stream| stream.send_window);
        window.min(self.send_window).min(length(MAX_UNSENT.saturating_sub(self.out.len())))
    }

    /// Subtracts sent bytes from both windows.
    fn spend(&mut self, id: u32, bytes: usize) {
        self.send_window = self.send_window.saturating_sub(length(bytes));
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.send_window = stream.send_window.saturating_sub(length(bytes));
        }
    }

    fn write_ok(&mut self, id: u32) {
        let encoder = &mut self.encoder;
        frame::write_block(&mut self.out, flag::END_STREAM, id, |out| {
            encoder.begin(out);
            encoder.repeated(GRPC_OK.0, GRPC_OK.1, out);
        });
    }

    fn write_trailers(&mut self, id: u32, trailers: &HeaderMap) {
        let encoder = &mut self.encoder;
        frame::write_block(&mut self.out, flag::END_STREAM, id, |out| {
            encoder.begin(out);
            for (name, value) in trailers {
                encoder.field(name.as_str().as_bytes(), value.as_bytes(), out);
            }
        });
    }

    /// Ends a stream whose answer is written in full. The rest of its request, if any, is not
    /// wanted.
    fn finish(&mut self, id: u32, arrival: Arrival) {
        match arrival {
            Arrival::Whole => {
                self.abuse.record_answer();
                self.remove(id);
            }
            // Not recorded as an answer, which would offset abuse: this costs the client less
            // than a call.
            Arrival::Partial => self.reset(id, Reason::NO_ERROR),
        }
    }

    /// Writes what a stream can send now.
    pub(super) fn pump(&mut self, id: u32, now: Instant) {
        loop {
            let room = self.room(id);
            let Some(stream) = self.streams.get_mut(&id) else { return };
            let Output::Sending { data, then } = &mut stream.output else { return };
            if !data.is_empty() {
                let bytes =
                    usize::try_from(room).unwrap_or_default().min(data.len()).min(MAX_PAYLOAD);
                if bytes == 0 {
                    return self.wait(id, now);
                }
                let piece = data.split_to(bytes);
                stream.answer_deadline = None;
                stream.charged = stream.charged.saturating_sub(bytes);
                self.account.release(bytes);
                frame::write(&mut self.out, kind::DATA, 0, id, &piece);
                self.spend(id, bytes);
                continue;
            }
            let rest = std::mem::replace(then, AnswerRest::End);
            let arrival = stream.arrival();
            match rest {
                AnswerRest::Body(body) => {
                    self.write_ping(id);
                    self.announce_room(id);
                    if !self.poll_body(id, body) {
                        return self.write_ping(id);
                    }
                    continue;
                }
                AnswerRest::Ok => self.write_ok(id),
                AnswerRest::Trailers(trailers) => self.write_trailers(id, &trailers),
                AnswerRest::End => {
                    frame::write(&mut self.out, kind::DATA, flag::END_STREAM, id, &[])
                }
            }
            return self.finish(id, arrival);
        }
    }

    /// Sends the PING that the service wants after its bytes so far.
    fn write_ping(&mut self, id: u32) {
        let delivery = self.streams.get(&id).and_then(|stream| stream.delivery.as_ref());
        if let Some(payload) = delivery.and_then(|delivery| delivery.take_ping(id)) {
            frame::write(&mut self.out, kind::PING, 0, 0, &payload);
        }
    }

    /// Shows the service the room for more bytes.
    fn announce_room(&mut self, id: u32) {
        let Some(delivery) = self.streams.get(&id).and_then(|stream| stream.delivery.as_ref())
        else {
            return;
        };
        let is_stalled = self.timers.is_unsent();
        delivery.set_room(if is_stalled { 0 } else { usize::try_from(self.room(id)).unwrap_or(0) });
    }

    /// Polls an answer's body for more. Returns `true` if there is something to send.
    fn poll_body(&mut self, id: u32, mut body: S::Body) -> bool {
        let Some(stream) = self.streams.get_mut(&id) else { return false };
        let slot = *stream.slot.get_or_insert_with(|| self.slots.take(id));
        let waker = self.slots.waker(slot);
        let polled = Pin::new(&mut body).poll_frame(&mut Context::from_waker(&waker));
        let (data, then) = match polled {
            Poll::Pending => {
                stream.output =
                    Output::Sending { data: Bytes::new(), then: AnswerRest::Body(body) };
                return false;
            }
            Poll::Ready(None) => (Bytes::new(), AnswerRest::End),
            Poll::Ready(Some(Err(_))) => {
                self.reset(id, Reason::INTERNAL_ERROR);
                return false;
            }
            Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) => (data, AnswerRest::Body(body)),
                Err(frame) => (
                    Bytes::new(),
                    frame.into_trailers().map_or(AnswerRest::End, AnswerRest::Trailers),
                ),
            },
        };
        let waiting = data.len();
        stream.output = Output::Sending { data, then };
        let is_charged = self.charge_stream(id, waiting);
        if !is_charged {
            self.reset(id, Reason::ENHANCE_YOUR_CALM);
        }
        is_charged
    }

    /// Marks an answer as waiting for its stream's window, or queues it for the connection's window
    /// or the socket.
    fn wait(&mut self, id: u32, now: Instant) {
        let is_shared = self.send_window <= 0 || self.out.len() >= MAX_UNSENT;
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if is_shared && !std::mem::replace(&mut stream.is_queued, true) {
            self.blocked.push_back(id);
        }
        if stream.answer_deadline.is_none() {
            self.set_answer_deadline(id, now);
        }
        // Streams that were reset leave entries behind.
        if self.blocked.len() > self.streams.len().saturating_mul(2).saturating_add(64) {
            let streams = &self.streams;
            self.blocked.retain(|id| streams.contains_key(id));
        }
    }

    /// Writes answers that waited for the connection's window or for the socket, in turn.
    pub(super) fn pump_blocked(&mut self, now: Instant) {
        for _ in 0..self.blocked.len() {
            if self.send_window <= 0 || self.out.len() >= MAX_UNSENT {
                return;
            }
            let Some(id) = self.blocked.pop_front() else { return };
            if let Some(stream) = self.streams.get_mut(&id) {
                stream.is_queued = false;
                self.pump(id, now);
            }
        }
    }

    /// Writes answers that waited for any window.
    pub(super) fn pump_all(&mut self, now: Instant) {
        let waiting = self.streams.iter().filter(|(_, stream)| stream.has_unsent());
        let waiting: Vec<u32> = waiting.map(|(id, _)| *id).collect();
        waiting.into_iter().for_each(|id| self.pump(id, now));
    }

    /// Refuses a call whose header list is too large with an HTTP status, before it reaches a
    /// service.
    pub(super) fn refuse_list(
        &mut self,
        id: u32,
        arrival: Arrival,
        now: Instant,
    ) -> Result<(), ConnectionFailure> {
        let encoder = &mut self.encoder;
        frame::write_block(&mut self.out, flag::END_STREAM, id, |out| {
            encoder.begin(out);
            encoder.field(STATUS, TOO_LARGE, out);
        });
        match arrival {
            Arrival::Whole => self.remove(id),
            Arrival::Partial => self.reset(id, Reason::NO_ERROR),
        }
        let recorded = self.abuse.record_error(now);
        self.tolerate(recorded, now)
    }
}
