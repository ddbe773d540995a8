//! Timers of a connection: keepalive, deadlines of streams, shutdown.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::{Connection, ConnectionEnd, ConnectionFailure, Limits};
use crate::abuse::Abuse;
use crate::delivery::{self, Delivery};
use crate::frame::{self, MAX_STREAM, Reason, kind};
use crate::refusal::Refusal;
use crate::service::Service;
use crate::stream::Stream;

/// Timeout for the client's preface and SETTINGS.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Timeout for the acknowledgement of the first GOAWAY. A client that exceeds it is gone, or as
/// good as gone.
const GOAWAY_TIMEOUT: Duration = Duration::from_secs(3);
/// Grace period of a connection that ends because of abuse, for the calls of other callers.
const ABUSE_GRACE: Duration = Duration::from_secs(30);
/// Time without bytes from the client after which memory is released.
const SHRINK_AFTER: Duration = Duration::from_secs(1);
/// Capacity of the output buffer kept for later answers, in bytes.
const KEPT_OUT: usize = 64 << 10;
/// Payloads of the pings that this side sends.
const KEEPALIVE_PING: [u8; 8] = *b"tollgate";
const GOAWAY_PING: [u8; 8] = *b"goaway\0\0";

/// Timers and shutdown state of a connection.
#[derive(Debug)]
pub(crate) struct ConnectionTimers {
    opened_at: Instant,
    handshake: HandshakeState,
    last_read_at: Instant,
    /// Deadline for the answer to a ping.
    pong_due: Option<Instant>,
    /// Time since which the socket has accepted nothing of the pending output.
    unsent_since: Option<Instant>,
    is_shrunk: bool,
    shutdown: Shutdown,
    /// Time until which calls may remain under way.
    grace_end: Option<Instant>,
    /// Deadlines of streams, in order. Entries of streams that are closed or have a later deadline
    /// are skipped.
    deadlines: VecDeque<(Instant, u32)>,
    /// Length of `deadlines` at which skipped entries are removed.
    deadlines_bound: usize,
    /// Set when the client sent GOAWAY: it accepts no more streams of this side, and is usually
    /// about to close.
    is_leaving: bool,
}

/// Minimum of [`ConnectionTimers::deadlines_bound`].
const MIN_BOUND: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HandshakeState {
    Preface,
    Settings,
    Done,
}

/// Progress of the connection's shutdown (RFC 9113, 6.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shutdown {
    No,
    /// GOAWAY is sent without naming a stream, followed by a ping: streams that the client opened
    /// before it received them are answered.
    Announced {
        at: Instant,
    },
    /// GOAWAY is sent with the last stream that is answered.
    Final,
}

impl ConnectionTimers {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            opened_at: now,
            handshake: HandshakeState::Preface,
            last_read_at: now,
            pong_due: None,
            unsent_since: None,
            is_shrunk: true,
            shutdown: Shutdown::No,
            grace_end: None,
            deadlines: VecDeque::new(),
            deadlines_bound: MIN_BOUND,
            is_leaving: false,
        }
    }

    pub(super) fn awaits_preface(&self) -> bool {
        self.handshake == HandshakeState::Preface
    }

    pub(super) fn on_preface(&mut self) {
        self.handshake = HandshakeState::Settings;
    }

    pub(super) fn awaits_settings(&self) -> bool {
        self.handshake == HandshakeState::Settings
    }

    pub(super) fn on_settings(&mut self) {
        self.handshake = HandshakeState::Done;
    }

    pub(super) fn on_read(&mut self, now: Instant) {
        (self.last_read_at, self.pong_due, self.is_shrunk) = (now, None, false);
    }

    /// Handles GOAWAY from the client. It binds only this side, which opens no streams; the client
    /// may open more (RFC 9113, 6.8).
    pub(super) fn on_goaway(&mut self) {
        self.is_leaving = true;
    }

    /// Returns `true` if new streams are ignored: GOAWAY has named the last one that is answered.
    pub(super) fn refuses_streams(&self) -> bool {
        self.shutdown == Shutdown::Final
    }

    /// Returns `true` once the connection is shutting down.
    pub(super) fn is_shutting_down(&self) -> bool {
        self.shutdown != Shutdown::No
    }

    /// Returns the deadline for the client's preface and SETTINGS.
    fn handshake_end(&self) -> Option<Instant> {
        if self.handshake == HandshakeState::Done {
            None
        } else {
            self.opened_at.checked_add(HANDSHAKE_TIMEOUT)
        }
    }

    /// Returns the deadline for the client's next bytes, after which it is pinged, or the
    /// connection closed.
    fn sign_due(&self, limits: &Limits) -> Option<Instant> {
        self.pong_due.or_else(|| self.last_read_at.checked_add(limits.keepalive_interval))
    }

    /// Returns the deadline for the client to read something.
    fn read_due(&self, limits: &Limits) -> Option<Instant> {
        self.unsent_since?.checked_add(limits.keepalive_interval.saturating_mul(2))
    }

    /// Returns the number of entries in the queue of deadlines.
    #[cfg(any(test, fuzzing))]
    pub(super) fn deadlines(&self) -> usize {
        self.deadlines.len()
    }

    /// Returns `true` if a stream is in the queue of deadlines with this one.
    #[cfg(any(test, fuzzing))]
    pub(super) fn is_scheduled(&self, at: Instant, stream: u32) -> bool {
        self.deadlines.contains(&(at, stream))
    }

    /// Returns `true` while the socket has not accepted all output.
    pub(super) fn is_unsent(&self) -> bool {
        self.unsent_since.is_some()
    }

    fn goaway_due(&self) -> Option<Instant> {
        match self.shutdown {
            Shutdown::Announced { at } => at.checked_add(GOAWAY_TIMEOUT),
            Shutdown::No | Shutdown::Final => None,
        }
    }

    fn shrink_at(&self) -> Option<Instant> {
        if self.is_shrunk { None } else { self.last_read_at.checked_add(SHRINK_AFTER) }
    }
}

impl<S: Service> Connection<S> {
    /// Returns the next time at which [`Self::on_time`] has work.
    pub(crate) fn next_time(&self) -> Option<Instant> {
        let timers = &self.timers;
        let deadline = timers.deadlines.front().map(|(at, _)| *at);
        let times = [
            timers.handshake_end(),
            timers.sign_due(&self.limits),
            timers.read_due(&self.limits),
            timers.goaway_due(),
            timers.shrink_at(),
            timers.grace_end,
            deadline,
        ];
        times.into_iter().flatten().min()
    }

    /// Runs the timers that are due.
    pub(crate) fn on_time(&mut self, now: Instant) {
        if self.end.is_some() {
            return;
        }
        if is_due(self.timers.handshake_end(), now) {
            return self.close(ConnectionEnd::HandshakeTimeout);
        }
        if is_due(self.timers.grace_end, now) {
            return self.close(ConnectionEnd::GraceExceeded);
        }
        if is_due(self.timers.read_due(&self.limits), now) {
            return self.close(ConnectionEnd::Unread);
        }
        if is_due(self.timers.sign_due(&self.limits), now) {
            if self.timers.pong_due.is_some() {
                return self.close(ConnectionEnd::Silent);
            }
            frame::write(&mut self.out, kind::PING, 0, 0, &KEEPALIVE_PING);
            self.timers.pong_due = now.checked_add(self.limits.keepalive_timeout);
        }
        if is_due(self.timers.goaway_due(), now) {
            self.on_goaway_timeout();
        }
        if is_due(self.timers.shrink_at(), now) {
            self.timers.is_shrunk = true;
            self.timers.deadlines.shrink_to_fit();
            self.shrink();
        }
        self.expire(now);
    }

    /// Removes bytes that the socket accepted, and writes answers that waited for it.
    pub(crate) fn on_written(&mut self, bytes: usize, now: Instant) {
        if bytes >= self.out.len() {
            self.out.clear();
            self.out.shrink_to(KEPT_OUT);
        } else {
            self.out.drain(..bytes);
        }
        self.pump_blocked(now);
        if bytes > 0 && !self.out.is_empty() {
            self.timers.last_read_at = now; // the client is alive, though reading may be paused
        }
        self.timers.unsent_since = match self.timers.unsent_since {
            _ if self.out.is_empty() => None,
            Some(since) if bytes == 0 => Some(since),
            Some(_) | None => Some(now),
        };
    }

    /// Returns `true` if the client has completed the HTTP/2 handshake.
    pub(crate) fn has_completed_handshake(&self) -> bool {
        self.timers.handshake == HandshakeState::Done
    }

    /// Begins a graceful shutdown: sends GOAWAY, and finishes the calls under way, within `grace`
    /// if set. May be called again to shorten the grace period.
    pub(crate) fn shut_down(&mut self, grace: Option<Duration>, now: Instant) {
        let grace_end = grace.and_then(|grace| now.checked_add(grace));
        self.timers.grace_end = [self.timers.grace_end, grace_end].into_iter().flatten().min();
        if self.timers.shutdown != Shutdown::No || self.end.is_some() {
            return;
        }
        self.timers.shutdown = Shutdown::Announced { at: now };
        let deliveries = self.streams.values().filter_map(|stream| stream.delivery.as_ref());
        deliveries.for_each(Delivery::shut_down);
        self.write_goaway(MAX_STREAM, Reason::NO_ERROR);
        frame::write(&mut self.out, kind::PING, 0, 0, &GOAWAY_PING);
    }

    /// Handles a ping acknowledgement. No stream that the client opened before it received GOAWAY
    /// arrives after its answer to the ping that follows GOAWAY. Returns `true` if a stream waited
    /// for it.
    pub(super) fn on_pong(&mut self, payload: &[u8], now: Instant) -> bool {
        if payload == GOAWAY_PING && matches!(self.timers.shutdown, Shutdown::Announced { .. }) {
            self.finish_shutdown();
        }
        let Some((id, number)) = delivery::acknowledged(payload) else { return false };
        let delivery = self.streams.get(&id).and_then(|stream| stream.delivery.as_ref());
        delivery.is_some_and(|delivery| delivery.acknowledge(number, now))
    }

    fn on_goaway_timeout(&mut self) {
        match self.timers.shutdown {
            Shutdown::Announced { at } if self.timers.last_read_at <= at => {
                self.close(ConnectionEnd::Finished)
            }
            Shutdown::Announced { .. } => self.finish_shutdown(),
            Shutdown::No | Shutdown::Final => {}
        }
    }

    fn finish_shutdown(&mut self) {
        self.timers.shutdown = Shutdown::Final;
        let reason = self.abuse_found.map_or(Reason::NO_ERROR, |_| Reason::ENHANCE_YOUR_CALM);
        self.write_goaway(self.last_stream, reason);
    }

    /// Shuts the connection down if a counter of abuse has exceeded its bound. Many callers may
    /// share a connection, so the calls under way are finished; if the client does not heed GOAWAY,
    /// each further excess is the next step: new streams are ignored, then the connection closed.
    pub(super) fn tolerate(
        &mut self,
        recorded: Result<(), Abuse>,
        now: Instant,
    ) -> Result<(), ConnectionFailure> {
        let Err(abuse) = recorded else { return Ok(()) };
        self.abuse_found.get_or_insert(abuse);
        match self.timers.shutdown {
            Shutdown::No => self.shut_down(Some(ABUSE_GRACE), now),
            Shutdown::Announced { .. } => self.finish_shutdown(),
            Shutdown::Final => {
                let reason = Reason::ENHANCE_YOUR_CALM;
                return Err(ConnectionFailure { reason, end: abuse.into() });
            }
        }
        Ok(())
    }

    /// Closes a connection that is shutting down, once all calls are finished and all output is
    /// sent.
    pub(crate) fn end_if_finished(&mut self) {
        let is_going = self.timers.shutdown == Shutdown::Final || self.timers.is_leaving;
        let is_finished = is_going && self.streams.is_empty();
        if is_finished && self.out.is_empty() {
            self.close(ConnectionEnd::Finished);
        }
    }

    /// Ends the connection, because of abuse if that was found.
    pub(super) fn close(&mut self, end: ConnectionEnd) {
        self.end.get_or_insert(self.abuse_found.map_or(end, ConnectionEnd::from));
    }

    /// Sets a stream's deadline for its message to `--message-timeout` from now.
    pub(super) fn set_message_deadline(&mut self, id: u32, now: Instant) {
        self.set_deadline(id, now, |stream| &mut stream.message_deadline);
    }

    /// Sets a stream's deadline for reading its answer to `--message-timeout` from now.
    pub(super) fn set_answer_deadline(&mut self, id: u32, now: Instant) {
        self.set_deadline(id, now, |stream| &mut stream.answer_deadline);
    }

    fn set_deadline(
        &mut self,
        id: u32,
        now: Instant,
        deadline: impl FnOnce(&mut Stream<S>) -> &mut Option<Instant>,
    ) {
        let Some(at) = now.checked_add(self.limits.message_timeout) else { return };
        let Some(stream) = self.streams.get_mut(&id) else { return };
        *deadline(stream) = Some(at);
        if stream.scheduled.replace(at) == Some(at) {
            return;
        }
        // Streams that are closed or have a later deadline leave entries behind. The latest entry
        // of a stream without a deadline stays: it may get the same one again.
        if self.timers.deadlines.len() >= self.timers.deadlines_bound {
            let streams = &self.streams;
            self.timers.deadlines.retain(|(at, id)| {
                streams.get(id).is_some_and(|stream| {
                    stream.deadlines().contains(&Some(*at)) || stream.scheduled == Some(*at)
                })
            });
            self.timers.deadlines_bound =
                self.timers.deadlines.len().saturating_mul(2).saturating_add(MIN_BOUND);
        }
        self.timers.deadlines.push_back((at, id));
    }

    /// Ends streams whose deadline has passed.
    fn expire(&mut self, now: Instant) {
        while let Some((at, id)) =
            self.timers.deadlines.front().copied().filter(|(at, _)| *at <= now)
        {
            self.timers.deadlines.pop_front();
            let Some(stream) = self.streams.get_mut(&id) else { continue };
            if stream.answer_deadline == Some(at) {
                self.reset(id, Reason::CANCEL);
            } else if stream.message_deadline == Some(at) {
                stream.message_deadline = None;
                self.refuse_message(id, Refusal::BodyTooSlow, now);
            }
        }
    }
}

/// Returns `true` if a timer has gone off.
fn is_due(at: Option<Instant>, now: Instant) -> bool {
    at.is_some_and(|at| at <= now)
}
