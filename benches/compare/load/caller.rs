//! One thread of a load.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};

use super::connection::{Connection, Done};
use super::requests::Requests;
use super::{Answers, Clock, Pace, Phase};

/// Maximum wait between two checks of the phase.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Maximum calls in flight per connection at a steady rate, of the 256 that tollgate accepts. Later
/// calls wait, and the wait counts as latency.
const MOST_UNDER_WAY: usize = 200;
/// Read buffer size in bytes.
const BUFFER: usize = 1 << 16;
/// Maximum number of events of one wait.
const EVENTS: usize = 1_024;

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

/// Events of the connections, by their indices.
struct Events {
    epoll: OwnedFd,
    events: Vec<epoll::Event>,
}

impl Caller {
    /// Runs the thread until the load is over. `opening` is dropped once its connections are open.
    ///
    /// # Panics
    /// Panics if the server closes a connection, since the measurement is void then.
    pub(super) fn run(self, opening: Sender<()>) -> Answers {
        let open = |_| Connection::open(self.service).expect("the server takes connections");
        let mut connections: Vec<Connection> = (0..self.connections).map(open).collect();
        let mut events = Events::of(&connections).expect("the kernel reports events");
        drop(opening);
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
            for number in events.wait(wait) {
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

impl Events {
    /// Events are reported once for each change, so a connection must be read to its end.
    fn of(connections: &[Connection]) -> std::io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
        for (number, connection) in connections.iter().enumerate() {
            let data = epoll::EventData::new_u64(number as u64);
            epoll::add(&epoll, &connection.stream, data, flags)?;
        }
        Ok(Self { epoll, events: Vec::with_capacity(EVENTS) })
    }

    /// Waits until a connection is readable or writable, for at most `wait`. Returns the indices
    /// of the readable ones.
    fn wait(&mut self, wait: Duration) -> impl Iterator<Item = usize> {
        let wait =
            Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) };
        // An interrupted wait needs no handling: the next one reports the same events.
        let _ = epoll::wait(&self.epoll, spare_capacity(&mut self.events), Some(&wait));
        let is_readable = |event: &epoll::Event| {
            let flags = event.flags;
            flags.intersects(!epoll::EventFlags::OUT)
        };
        self.events.drain(..).filter(is_readable).map(|event| {
            let data = event.data;
            data.u64() as usize
        })
    }
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
