//! A connection between a simulated socket and a simulated clock, driven as
//! [`super::super::io::Driver`] drives it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::{Duration, Instant};

use super::service::{Gate, Scripted};
use crate::account::ConnectionAccount;
use crate::budget::Budget;
use crate::connection::{Connection, ConnectionEnd, Limits};

/// Memory budget of all clients, in bytes; small, so that inputs reach the bound.
pub(super) const BUDGET: usize = 1 << 20;
/// Bytes read at once.
const READ_BYTES: usize = 64 << 10;
/// More bytes than answers to one read can take, frame headers included, in addition to pending
/// output.
const MAX_OUT: usize = 2 << 20;
pub(super) const LIMITS: Limits = Limits {
    max_streams: 16,
    max_header_list: 16 << 10,
    message_timeout: Duration::from_secs(5),
    keepalive_interval: Duration::from_secs(60),
    keepalive_timeout: Duration::from_secs(20),
};

/// Set when the connection is to be polled.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

pub(super) struct FuzzWire {
    connection: Connection<Scripted>,
    pub(super) gate: Gate,
    pub(super) now: Instant,
    budget: Arc<Budget>,
    /// Bytes that the client sent and the server has not read.
    inbox: Vec<u8>,
    /// A partial frame that the server has read.
    partial: Vec<u8>,
    /// Bytes of the connection's output that [`Self::turn`] has returned.
    seen: usize,
}

impl FuzzWire {
    pub(super) fn new() -> Self {
        let gate = Gate::default();
        let now = Instant::now();
        let budget = Arc::new(Budget::new(BUDGET));
        let account = ConnectionAccount::new(Arc::clone(&budget));
        let connection = Connection::new(Scripted(gate.clone()), LIMITS, account, now);
        Self { connection, gate, now, budget, inbox: Vec::new(), partial: Vec::new(), seen: 0 }
    }

    /// Sends bytes; the server reads them in the next turn.
    pub(super) fn send(&mut self, bytes: &[u8]) {
        self.inbox.extend_from_slice(bytes);
    }

    /// Runs the connection until it waits for its peer. The socket accepts `room` bytes. Returns
    /// the output since the last turn, whether or not the socket accepted it.
    pub(super) fn turn(&mut self, mut room: usize) -> Vec<u8> {
        let mut written = Vec::new();
        let woken = Arc::<Woken>::default();
        let waker = Waker::from(Arc::clone(&woken));
        loop {
            let is_read = self.read();
            woken.0.store(false, Ordering::Relaxed);
            self.connection.poll_calls(&mut Context::from_waker(&waker), self.now);
            if self.connection.next_time().is_some_and(|at| at <= self.now) {
                self.connection.on_time(self.now);
            }
            written.extend_from_slice(&self.connection.out()[self.seen..]);
            assert!(self.connection.out().len() <= MAX_OUT && self.budget.used() <= BUDGET);
            self.seen = self.connection.out().len();
            if self.connection.end().is_some() {
                return written;
            }
            let taken = room.min(self.seen);
            if self.seen > 0 {
                room -= taken;
                self.connection.on_written(taken, self.now);
                written.extend_from_slice(&self.connection.out()[self.seen - taken..]);
                self.seen = self.connection.out().len();
            }
            self.connection.end_if_finished();
            self.connection.check();
            let is_idle = !is_read && !woken.0.load(Ordering::Relaxed);
            if is_idle && (taken == 0 || self.connection.out().is_empty()) {
                return written;
            }
        }
    }

    fn read(&mut self) -> bool {
        if !self.connection.wants_bytes() || (self.inbox.is_empty() && !self.connection.is_behind())
        {
            return false;
        }
        if !self.connection.is_behind() {
            self.partial.extend(self.inbox.drain(..READ_BYTES.min(self.inbox.len())));
        }
        let taken = self.connection.receive(&self.partial, self.now);
        self.partial.drain(..taken);
        self.connection.charge_buffers(self.partial.len());
        true
    }

    /// Advances the clock; the connection runs due timers in the next turn.
    pub(super) fn pass(&mut self, time: Duration) {
        self.now += time;
    }

    pub(super) fn shut_down(&mut self, grace: Option<Duration>) {
        self.connection.shut_down(grace, self.now);
    }

    pub(super) fn end(&self) -> Option<ConnectionEnd> {
        self.connection.end()
    }

    /// Drops the connection, which releases everything that it holds.
    pub(super) fn close(self) {
        drop(self.connection);
        assert_eq!(self.budget.used(), 0);
    }
}
