//! HEADERS and DATA: begins calls, collects bodies (RFC 9113, sections 5.1, 6.1, 6.2 and 8.1).

use std::time::Instant;

use futures_util::future::Either;
use http::HeaderMap;

use super::routes::Routed;
use super::{BlockHead, CallFuture, Connection, ConnectionFailure, PartialBlock, WINDOW};
use crate::body::{BodyError, RequestBody};
use crate::delivery::Delivery;
use crate::fields::FieldsVerdict;
use crate::frame::{self, FrameHead, HEAD, MAX_PAYLOAD, Reason, flag, kind};
use crate::message::PREFIX;
use crate::refusal::Refusal;
use crate::service::{Answer, Exchange, Route, Service};
use crate::stream::{
    Arrival, AwaitingCall, GeneralCall, GeneralMode, Output, RequestState, STREAM_COST, Stream,
};

impl<S: Service> Connection<S> {
    /// Handles HEADERS, and the DATA that follows if that is the whole body of a unary call.
    /// Returns the number of bytes of `after` consumed.
    pub(super) fn headers(
        &mut self,
        head: FrameHead,
        payload: &[u8],
        after: &[u8],
        now: Instant,
    ) -> Result<usize, ConnectionFailure> {
        if head.stream.is_multiple_of(2) {
            return Err(Reason::PROTOCOL_ERROR.into());
        }
        let mut block = frame::unpad(head, payload).ok_or(Reason::PROTOCOL_ERROR)?;
        let arrival = Arrival::with(head);
        let mut begun = BlockHead { stream: head.stream, arrival, depends_on_itself: false };
        if head.has(flag::PRIORITY) {
            let (priority, rest) =
                block.split_first_chunk::<5>().ok_or(Reason::FRAME_SIZE_ERROR)?;
            let [d0, d1, d2, d3, _] = *priority;
            begun.depends_on_itself =
                u32::from_be_bytes([d0, d1, d2, d3]) & frame::MAX_STREAM == head.stream;
            block = rest;
        }
        if !head.has(flag::END_HEADERS) {
            self.begin_block(PartialBlock { head: begun, bytes: block.to_vec() })?;
            return Ok(0);
        }
        self.header_block(begun, block, after, now)
    }

    /// Handles a whole header block: the trailers of a call under way, or the start of a new call.
    pub(super) fn header_block(
        &mut self,
        head: BlockHead,
        block: &[u8],
        after: &[u8],
        now: Instant,
    ) -> Result<usize, ConnectionFailure> {
        let BlockHead { stream, arrival, depends_on_itself } = head;
        if stream <= self.last_stream {
            return self.trailers(stream, arrival, block, now).map(|()| 0);
        }
        self.last_stream = stream;
        let routed = self.route(block)?;
        if self.timers.refuses_streams() {
            // GOAWAY named the last stream that is processed.
            self.forgotten.push(stream);
            return self.record_control(now).map(|()| 0);
        }
        if depends_on_itself || matches!(routed, Routed::Malformed) {
            self.reset_for_error(stream, Reason::PROTOCOL_ERROR, now)?;
            return Ok(0);
        }
        if self.streams.len() >= self.limits.max_streams as usize {
            self.reset(stream, Reason::REFUSED_STREAM);
            self.forgotten.push_refused(stream);
            let recorded = self.abuse.record_refusal(now);
            return self.tolerate(recorded, now).map(|()| 0);
        }
        let Routed::To(route, length) = routed else {
            self.refuse_list(stream, arrival, now)?;
            return Ok(0);
        };
        let mode = match route {
            Route::Unary { head, max_message } => {
                if arrival == Arrival::Whole {
                    self.begin_unary(stream, head, length, &[], now)?;
                } else if let Some((data, taken)) = self.whole_body(stream, max_message, after) {
                    self.begin_unary(stream, head, length, data, now)?;
                    return Ok(taken);
                } else {
                    let call = AwaitingCall::Unary { head, max_message };
                    self.collect(stream, arrival, call, length, 0, now);
                }
                return Ok(0);
            }
            Route::Whole(call) => GeneralMode::Whole(call),
            Route::Messages(call) => GeneralMode::Messages(call),
            Route::Bytes { cost } => GeneralMode::Bytes { cost },
        };
        self.general(stream, arrival, mode, length, now).map(|()| 0)
    }

    /// Returns the whole body of a call if it directly follows the HEADERS, and the number of bytes
    /// that it takes there.
    fn whole_body<'a>(
        &mut self,
        stream: u32,
        max_message: usize,
        after: &'a [u8],
    ) -> Option<(&'a [u8], usize)> {
        let (head, rest) = after.split_first_chunk::<HEAD>()?;
        let head = FrameHead::read(head);
        let is_whole =
            head.kind == kind::DATA && head.stream == stream && head.flags == flag::END_STREAM;
        if !is_whole || head.length > max_message.saturating_add(PREFIX).min(MAX_PAYLOAD) {
            return None;
        }
        let data = rest.get(..head.length)?;
        self.give_back(data.len());
        Some((data, HEAD.saturating_add(data.len())))
    }

    /// Begins a unary call, and answers it if it completes at once.
    fn begin_unary(
        &mut self,
        stream: u32,
        head: S::Head,
        announced: Option<u64>,
        body: &[u8],
        now: Instant,
    ) -> Result<(), ConnectionFailure> {
        if announced.is_some_and(|announced| usize::try_from(announced) != Ok(body.len())) {
            return self.reset_for_error(stream, Reason::PROTOCOL_ERROR, now);
        }
        let mut exchange = self.spare.pop().unwrap_or_default();
        exchange.request.clear();
        exchange.request.extend_from_slice(body);
        exchange.answer.clear();
        self.begin_exchange(stream, head, exchange, now);
        Ok(())
    }

    /// Begins a unary call. Charges what it holds while pending up front, and releases that if the
    /// call completes at once.
    pub(super) fn begin_exchange(
        &mut self,
        stream: u32,
        head: S::Head,
        exchange: Exchange,
        now: Instant,
    ) {
        let is_known = self.streams.contains_key(&stream);
        let of_stream =
            if is_known { 0 } else { STREAM_COST.saturating_add(exchange.request.len()) };
        let heap = self.service.unary_heap(&exchange.request);
        let cost = size_of::<CallFuture<S>>().saturating_add(heap).saturating_add(of_stream);
        if self.account.charge(cost).is_err() {
            return self.refuse(stream, Refusal::BudgetExceeded, Arrival::Whole, now);
        }
        let slot = self.slots.take(stream);
        let polled = self.slots.begin(slot, Either::Left(self.service.unary(head, exchange)));
        self.work = self.work.saturating_add(self.account.calls().take_work());
        if let std::task::Poll::Ready(answer) = polled {
            self.slots.free(slot);
            self.account.release(cost);
            return self.answer(stream, answer, now);
        }
        let initial_window = self.peer.initial_window;
        let waiting = self.streams.entry(stream).or_insert_with(|| {
            Stream::new(RequestState::Ended, None, WINDOW.into(), initial_window)
        });
        waiting.slot = Some(slot);
        waiting.charged = waiting.charged.saturating_add(cost);
    }

    /// Adds a stream that outlives the current frame. Returns `false` if memory is exhausted.
    pub(super) fn open(
        &mut self,
        stream: u32,
        input: RequestState<S::Head>,
        announced: Option<u64>,
    ) -> bool {
        if self.account.charge(STREAM_COST).is_err() {
            return false;
        }
        let mut opened = Stream::new(input, announced, WINDOW.into(), self.peer.initial_window);
        opened.charged = STREAM_COST;
        self.streams.insert(stream, opened);
        true
    }

    /// Opens a stream to collect the body of a call that holds `cost` bytes meanwhile. Returns
    /// `false` if memory is exhausted.
    fn collect(
        &mut self,
        stream: u32,
        arrival: Arrival,
        call: AwaitingCall<S::Head>,
        announced: Option<u64>,
        cost: usize,
        now: Instant,
    ) -> bool {
        let input = RequestState::Collecting { call, body: Vec::new() };
        let is_open = self.open(stream, input, announced) && self.charge_stream(stream, cost);
        if is_open {
            self.set_message_deadline(stream, now);
        } else {
            self.refuse(stream, Refusal::BudgetExceeded, arrival, now);
        }
        is_open
    }

    /// Opens a stream for a general call, which begins with what its mode waits for.
    fn general(
        &mut self,
        stream: u32,
        arrival: Arrival,
        mode: GeneralMode,
        announced: Option<u64>,
        now: Instant,
    ) -> Result<(), ConnectionFailure> {
        let cost = self.fields.map_cost();
        let call = GeneralCall { request: self.fields.to_request(()), mode };
        let call = AwaitingCall::General(Box::new(call));
        if !self.collect(stream, arrival, call, announced, cost, now) {
            return Ok(());
        }
        match arrival {
            Arrival::Whole => self.end_input(stream, None, now),
            Arrival::Partial => {
                self.begin_if_ready(stream, now);
                Ok(())
            }
        }
    }

    /// Begins a collected call if what has arrived of its body is enough, and refuses it if that is
    /// too much.
    pub(super) fn begin_if_ready(&mut self, id: u32, now: Instant) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let RequestState::Collecting { call, body } = &stream.input else { return };
        match call.is_ready(body) {
            Ok(false) => {}
            Err(refusal) => self.refuse_message(id, refusal, now),
            Ok(true) => {
                let input = std::mem::replace(&mut stream.input, RequestState::Discarding);
                if let RequestState::Collecting { call: AwaitingCall::General(call), body } = input
                {
                    self.begin_general(id, *call, &body, None, now);
                }
            }
        }
    }

    /// Begins a general call with what has arrived of its body; that is all if `end` is set, to the
    /// trailers.
    pub(super) fn begin_general(
        &mut self,
        id: u32,
        call: GeneralCall,
        body: &[u8],
        end: Option<Option<HeaderMap>>,
        now: Instant,
    ) {
        let GeneralCall { request, mode } = call;
        self.begun = self.begun.saturating_add(1);
        if !self.charge_stream(id, mode.cost(body.len())) {
            let arrival = if end.is_some() { Arrival::Whole } else { Arrival::Partial };
            return self.refuse(id, Refusal::BudgetExceeded, arrival, now);
        }
        let slot = self.slots.take(id);
        let account = self.account.calls().clone();
        let (sender, reader) =
            RequestBody::channel(self.slots.waker(slot), account, mode.max_message());
        let sent = sender.send(body);
        let input = match end {
            Some(trailers) => {
                sender.finish(trailers);
                RequestState::Ended
            }
            None => RequestState::Streaming(sender),
        };
        let delivery = Delivery::new();
        if self.timers.is_shutting_down() {
            delivery.shut_down();
        }
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.input = input;
            stream.slot = Some(slot);
            stream.delivery = Some(delivery.clone());
        }
        self.on_sent(id, sent, now);
        let mut request = request.map(|()| reader);
        request.extensions_mut().insert(delivery);
        let response = self.service.general(request);
        if let std::task::Poll::Ready(answer) = self.slots.begin(slot, Either::Right(response)) {
            self.answer(id, answer, now);
        }
    }

    /// Handles trailers, or HEADERS on a closed stream.
    fn trailers(
        &mut self,
        id: u32,
        arrival: Arrival,
        block: &[u8],
        now: Instant,
    ) -> Result<(), ConnectionFailure> {
        self.decode(block)?;
        let Some(stream) = self.streams.get(&id) else {
            return if self.forgotten.contains(id) {
                Ok(())
            } else if id == self.last_stream {
                Err(Reason::STREAM_CLOSED.into())
            } else {
                Err(Reason::PROTOCOL_ERROR.into())
            };
        };
        if stream.is_remote_closed() {
            return self.reset_for_error(id, Reason::STREAM_CLOSED, now);
        }
        if arrival == Arrival::Partial || self.fields.trailers_verdict() == FieldsVerdict::Malformed
        {
            return self.reset_for_error(id, Reason::PROTOCOL_ERROR, now);
        }
        if !self.charge_stream(id, self.fields.map_cost()) {
            self.reset(id, Reason::ENHANCE_YOUR_CALM);
            return Ok(());
        }
        let trailers = Some(self.fields.to_map());
        self.end_input(id, trailers, now)
    }

    /// Refuses the rest of a request: answers a call that is not answered, and ends the body of
    /// one that is.
    pub(super) fn refuse_message(&mut self, id: u32, refusal: Refusal, now: Instant) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        if matches!(stream.output, Output::Awaited) {
            return self.refuse(id, refusal, Arrival::Partial, now);
        }
        match std::mem::replace(&mut stream.input, RequestState::Discarding) {
            RequestState::Streaming(sender) => sender.fail(BodyError::Refused(refusal)),
            RequestState::Collecting { .. } | RequestState::Discarding => {}
            RequestState::Ended => stream.input = RequestState::Ended,
        }
    }

    /// Answers a call without its service.
    pub(super) fn refuse(&mut self, id: u32, refusal: Refusal, arrival: Arrival, now: Instant) {
        if let Some(stream) = self.streams.get_mut(&id) {
            if let Some(slot) = stream.slot.take() {
                self.slots.free(slot);
            }
            if !stream.is_remote_closed() {
                stream.input = RequestState::Discarding;
            }
        }
        let response = self.service.refuse(refusal);
        self.answer_of(id, Answer::Response(Box::new(response)), arrival, now);
    }
}

/// Converts a length to the type of the windows.
pub(super) fn length(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}
