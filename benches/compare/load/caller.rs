//! One thread of a load.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::connection::{Connection, Done};
use super::requests::Requests;
use super::{Answers, Clock, Pace, Phase};

/// Maximum wait between two checks of the phase.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Maximum calls in flight per connection at a steady rate; servers accept about 1,000. Later calls
/// wait, and the wait counts as latency.
const MOST_UNDER_WAY: usize = 500;
/// Read buffer size in bytes.
const BUFFER: usize = 1 << 16;

pub(super) struct Caller {
    pub(super) connections: usize,
    /// Calls in flight per connection in a closed loop.
    pub(super) streams: usize,
    pub(super) service: SocketAddr,
    pub(super) requests: Arc<Requests>,
    /// Index of this thread, out of `of`.
    pub(super) number: usize,
    pub(super) of: usize,
    pub(super) pace: Pace,
    /// Number of requests that all threads together send once, in order; if `None`, requests are
    /// random, or repeat in order, for as long as the load runs.
    pub(super) each_once: Option<usize>,
    pub(super) clock: Clock,
}

/// The state of the send schedule.
struct Due {
    begun: Instant,
    /// Calls sent so far.
    sent: u64,
    /// Index of the connection that sends next at a steady rate.
    turn: usize,
    random: u64,
    /// The request that is sent.
    message: Vec<u8>,
}

impl Caller {
    /// Runs the thread until the load is over.
    ///
    /// # Panics
    /// Panics if the server closes a connection, since the measurement is void then.
    pub(super) fn run(self) -> Answers {
        let open = |_| Connection::open(self.service).expect("the server takes connections");
        let mut connections: Vec<Connection> = (0..self.connections).map(open).collect();
        let seed = 0x9e37_79b9_7f4a_7c15 ^ (self.number as u64 + 1);
        let mut due =
            Due { begun: Instant::now(), sent: 0, turn: 0, random: seed, message: Vec::new() };
        let mut answers = Answers::default();
        let mut phase = self.clock.phase();
        let mut buffer = vec![0; BUFFER];
        loop {
            // After the end, wait for pending calls: they cost the servers as much as the others.
            let wait = if phase == Phase::Over {
                LOOK_EVERY
            } else {
                self.send(&mut connections, &mut due)
            };
            let all_answered =
                connections.iter().all(|connection| connection.calls_under_way() == 0);
            if all_answered && (phase == Phase::Over || self.each_once.is_some()) {
                return answers;
            }
            for number in ready(&connections, wait) {
                let count = |done: Done| match phase {
                    Phase::Counting => answers.count_one(&done),
                    Phase::WarmingUp | Phase::Over => answers.others += 1,
                };
                connections[number].read(&mut buffer, count).expect("the server answers");
            }
            phase = self.clock.phase();
        }
    }

    /// Sends the calls that are due, and returns the time until the next one.
    fn send(&self, connections: &mut [Connection], due: &mut Due) -> Duration {
        let wait = match self.pace {
            Pace::Closed => {
                for connection in connections.iter_mut() {
                    while connection.calls_under_way() < self.streams {
                        if !self.send_one(connection, due, Instant::now()) {
                            break;
                        }
                    }
                }
                LOOK_EVERY
            }
            Pace::Open(rate) => loop {
                let next = due.begun + Duration::from_secs_f64(due.sent as f64 / rate);
                let wait = next.saturating_duration_since(Instant::now());
                due.turn = (due.turn + 1) % connections.len();
                let connection = &mut connections[due.turn];
                let is_full = connection.calls_under_way() >= MOST_UNDER_WAY;
                if !wait.is_zero() || is_full || !self.send_one(connection, due, next) {
                    break wait;
                }
            },
        };
        for connection in connections {
            connection.flush().expect("the server reads");
        }
        wait.min(LOOK_EVERY)
    }

    fn send_one(&self, connection: &mut Connection, due: &mut Due, at: Instant) -> bool {
        let number = match self.each_once {
            Some(count) => {
                let number = self.number + self.of * due.sent as usize;
                if number >= count {
                    return false;
                }
                number
            }
            None if self.requests.is_in_order => {
                (self.number + self.of * due.sent as usize) % self.requests.len()
            }
            None => (due.dice() >> 33) as usize % self.requests.len(),
        };
        self.requests.write(number, &mut due.message);
        let is_sent = connection.call(&due.message, at);
        due.sent += u64::from(is_sent);
        is_sent
    }
}

/// Waits until a connection is readable or writable, for at most `wait`. Returns the indices of the
/// readable ones.
fn ready(connections: &[Connection], wait: Duration) -> Vec<usize> {
    let events = |connection: &Connection| {
        if connection.wants_to_write() { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN }
    };
    let mut polled: Vec<_> =
        connections.iter().map(|one| PollFd::new(&one.stream, events(one))).collect();
    let wait = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) };
    // An interrupted poll needs no handling: the next one reports the same events.
    let _ = poll(&mut polled, Some(&wait));
    let is_readable = |(number, fd): (usize, &PollFd<'_>)| {
        fd.revents().intersects(!PollFlags::OUT).then_some(number)
    };
    polled.iter().enumerate().filter_map(is_readable).collect()
}

impl Due {
    /// Returns the next number of a xorshift generator.
    fn dice(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}

impl Answers {
    fn count_one(&mut self, done: &Done) {
        match done.code {
            Some(1) => self.ok += 1,
            Some(2) => self.over_limit += 1,
            Some(_) | None => self.failed += 1,
        }
        self.latency.add(done.due.elapsed());
    }
}
