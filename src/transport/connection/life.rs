//! Time: signs of life, deadlines of streams, shutdown.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::{Connection, End, Limits};
use crate::transport::frame::{self, MAX_STREAM, Reason, kind};
use crate::transport::service::{Refusal, Service};
use crate::transport::stream::{Input, Output};

/// Time for the client's preface and settings.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time to acknowledge the first GOAWAY. A client that does not is gone, or as good as gone.
const GOAWAY_TIMEOUT: Duration = Duration::from_secs(3);
/// Time without calls after which memory is given back.
const SHRINK_AFTER: Duration = Duration::from_secs(1);
/// Bytes of the output buffer that are kept for later answers.
const KEPT_OUT: usize = 64 << 10;
/// Payloads of the pings that this side sends.
const KEEPALIVE_PING: [u8; 8] = *b"tollgate";
const GOAWAY_PING: [u8; 8] = *b"goaway\0\0";

/// Instants of a connection.
#[derive(Debug)]
pub(in crate::transport) struct Life {
    opened_at: Instant,
    handshake: Handshake,
    heard_at: Instant,
    /// End of the time for an answer to a ping.
    pong_due: Option<Instant>,
    /// The socket has taken nothing since.
    unsent_since: Option<Instant>,
    is_shrunk: bool,
    shutdown: Shutdown,
    /// Calls that may be under way no longer than this.
    grace_end: Option<Instant>,
    /// Ends of the time that streams have, in order. Those of streams that are over, or have more time, are skipped.
    deadlines: VecDeque<(Instant, u32)>,
    /// Length of `deadlines` at which those that are skipped are removed.
    deadlines_bound: usize,
    /// The client has said that it will take no more streams of this side, and mostly that it is about to close.
    is_leaving: bool,
}

/// Entries of a list that is looked through, to remove what is over.
const MIN_BOUND: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Handshake {
    Preface,
    Settings,
    Done,
}

/// Progress of the connection's end (RFC 9113, 6.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shutdown {
    No,
    /// GOAWAY is sent, for no stream in particular, and a ping behind it: streams that the client opened before it knew are
    /// answered.
    Announced {
        at: Instant,
    },
    /// GOAWAY is sent with the last stream that is answered.
    Final,
}

impl Life {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            opened_at: now,
            handshake: Handshake::Preface,
            heard_at: now,
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
        self.handshake == Handshake::Preface
    }

    pub(super) fn on_preface(&mut self) {
        self.handshake = Handshake::Settings;
    }

    pub(super) fn awaits_settings(&self) -> bool {
        self.handshake == Handshake::Settings
    }

    pub(super) fn on_settings(&mut self) {
        self.handshake = Handshake::Done;
    }

    pub(super) fn on_heard(&mut self, now: Instant) {
        (self.heard_at, self.pong_due, self.is_shrunk) = (now, None, false);
    }

    pub(super) fn heard_at(&self) -> Instant {
        self.heard_at
    }

    /// Notes GOAWAY of the client. It binds this side, which opens no streams; the client may go on (RFC 9113, 6.8).
    pub(super) fn on_goaway(&mut self) {
        self.is_leaving = true;
    }

    /// Returns whether new streams are ignored: the last one that is answered was named.
    pub(super) fn refuses_streams(&self) -> bool {
        self.shutdown == Shutdown::Final
    }

    /// End of the time for the client's preface and settings.
    fn handshake_end(&self) -> Option<Instant> {
        if self.handshake == Handshake::Done { None } else { self.opened_at.checked_add(HANDSHAKE_TIMEOUT) }
    }

    /// End of the time for the client's next bytes: then it is pinged, or closed.
    fn sign_due(&self, limits: &Limits) -> Option<Instant> {
        self.pong_due.or_else(|| self.heard_at.checked_add(limits.keepalive_interval))
    }

    /// End of the time for the client to read something.
    fn read_due(&self, limits: &Limits) -> Option<Instant> {
        self.unsent_since?.checked_add(limits.keepalive_interval.saturating_mul(2))
    }

    /// Returns the number of deadlines that are kept.
    #[cfg(any(test, fuzzing))]
    pub(super) fn deadlines(&self) -> usize {
        self.deadlines.len()
    }

    fn goaway_due(&self) -> Option<Instant> {
        match self.shutdown {
            Shutdown::Announced { at } => at.checked_add(GOAWAY_TIMEOUT),
            Shutdown::No | Shutdown::Final => None,
        }
    }

    fn shrink_at(&self) -> Option<Instant> {
        if self.is_shrunk { None } else { self.heard_at.checked_add(SHRINK_AFTER) }
    }
}

impl<S: Service> Connection<S> {
    /// Returns when [`Self::on_time`] has something to do next.
    pub(in crate::transport) fn next_time(&self) -> Option<Instant> {
        let life = &self.life;
        let deadline = life.deadlines.front().map(|(at, _)| *at);
        let times = [
            life.handshake_end(),
            life.sign_due(&self.limits),
            life.read_due(&self.limits),
            life.goaway_due(),
            life.shrink_at(),
            life.grace_end,
            deadline,
        ];
        times.into_iter().flatten().min()
    }

    /// Does what is due.
    pub(in crate::transport) fn on_time(&mut self, now: Instant) {
        if self.end.is_some() {
            return;
        }
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if is_due(self.life.handshake_end()) {
            return self.close(End::HandshakeTimeout);
        }
        if is_due(self.life.grace_end) {
            return self.close(End::GraceExceeded);
        }
        if is_due(self.life.read_due(&self.limits)) {
            return self.close(End::Unread);
        }
        if is_due(self.life.sign_due(&self.limits)) {
            if self.life.pong_due.is_some() {
                return self.close(End::Silent);
            }
            frame::write(&mut self.out, kind::PING, 0, 0, &KEEPALIVE_PING);
            self.life.pong_due = now.checked_add(self.limits.keepalive_timeout);
        }
        if is_due(self.life.goaway_due()) {
            self.on_goaway_timeout();
        }
        if is_due(self.life.shrink_at()) {
            self.life.is_shrunk = true;
            self.life.deadlines.shrink_to_fit();
            self.shrink();
        }
        self.expire(now);
    }

    /// Removes bytes that the socket took, and writes answers that waited for that.
    pub(in crate::transport) fn on_written(&mut self, bytes: usize, now: Instant) {
        if bytes >= self.out.len() {
            self.out.clear();
            self.out.shrink_to(KEPT_OUT);
        } else {
            self.out.drain(..bytes);
        }
        self.pump_blocked(now);
        if bytes > 0 && !self.out.is_empty() {
            self.life.heard_at = now; // nothing may be read of it meanwhile, and it is there
        }
        self.life.unsent_since = match self.life.unsent_since {
            _ if self.out.is_empty() => None,
            Some(since) if bytes == 0 => Some(since),
            Some(_) | None => Some(now),
        };
    }

    /// Returns whether the client has spoken HTTP/2.
    pub(in crate::transport) fn has_shaken_hands(&self) -> bool {
        self.life.handshake == Handshake::Done
    }

    /// Begins to end the connection: the client is told, and what is under way is finished, within `grace` if there is one.
    pub(in crate::transport) fn shut_down(&mut self, grace: Option<Duration>, now: Instant) {
        if self.life.shutdown != Shutdown::No || self.end.is_some() {
            return;
        }
        self.life.grace_end = grace.and_then(|grace| now.checked_add(grace));
        self.life.shutdown = Shutdown::Announced { at: now };
        self.write_goaway(MAX_STREAM, Reason::NO_ERROR);
        frame::write(&mut self.out, kind::PING, 0, 0, &GOAWAY_PING);
    }

    /// Notes the answer to a ping: behind the one after GOAWAY come no streams that were opened before it was known.
    pub(super) fn on_pong(&mut self, payload: &[u8]) {
        if payload == GOAWAY_PING && matches!(self.life.shutdown, Shutdown::Announced { .. }) {
            self.finish_shutdown();
        }
    }

    fn on_goaway_timeout(&mut self) {
        match self.life.shutdown {
            Shutdown::Announced { at } if self.life.heard_at <= at => self.close(End::Finished),
            Shutdown::Announced { .. } => self.finish_shutdown(),
            Shutdown::No | Shutdown::Final => {}
        }
    }

    fn finish_shutdown(&mut self) {
        self.life.shutdown = Shutdown::Final;
        self.write_goaway(self.last_stream, Reason::NO_ERROR);
    }

    /// Ends a connection that is told to go, once nothing is under way.
    pub(in crate::transport) fn end_if_finished(&mut self) {
        let is_going = self.life.shutdown == Shutdown::Final || self.life.is_leaving;
        let is_finished = is_going && self.streams.is_empty();
        if is_finished && self.out.is_empty() {
            self.close(End::Finished);
        }
    }

    fn close(&mut self, end: End) {
        self.end.get_or_insert(end);
    }

    /// Gives a stream `--message-timeout` from now.
    pub(super) fn set_deadline(&mut self, id: u32, now: Instant) {
        let Some(at) = now.checked_add(self.limits.message_timeout) else { return };
        let Some(stream) = self.streams.get_mut(&id) else { return };
        stream.deadline = Some(at);
        if stream.scheduled.replace(at) == Some(at) {
            return;
        }
        // Streams that are over, or have another deadline, leave theirs behind.
        if self.life.deadlines.len() >= self.life.deadlines_bound {
            let streams = &self.streams;
            self.life.deadlines.retain(|(at, id)| streams.get(id).is_some_and(|stream| stream.deadline == Some(*at)));
            self.life.deadlines_bound = self.life.deadlines.len().saturating_mul(2).saturating_add(MIN_BOUND);
        }
        self.life.deadlines.push_back((at, id));
    }

    /// Ends streams whose time is over.
    fn expire(&mut self, now: Instant) {
        while let Some((at, id)) = self.life.deadlines.front().copied().filter(|(at, _)| *at <= now) {
            self.life.deadlines.pop_front();
            let Some(stream) = self.streams.get_mut(&id).filter(|stream| stream.deadline == Some(at)) else { continue };
            stream.deadline = None;
            match (&stream.output, &stream.input) {
                (Output::Sending { .. }, _) => self.reset(id, Reason::CANCEL),
                (Output::Awaited, Input::Collecting { .. } | Input::Streaming(_)) => {
                    self.refuse(id, Refusal::BodyTooSlow, false, now);
                }
                (Output::Awaited, Input::Discarding | Input::Ended) => {}
            }
        }
    }
}
