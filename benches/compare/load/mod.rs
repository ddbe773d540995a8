//! Load generator: connections with a fixed number of calls in flight, in a closed loop or at a
//! steady rate, and the latency of the responses.
//!
//! Must be cheap, since it shares the machine with the servers under test: polling threads, a
//! minimal HTTP/2 client, requests that are encoded once. A call costs about 1 to 2 us of CPU.
//!
//! | file | contents |
//! |---|---|
//! | `connection` | the subset of HTTP/2 that one gRPC method needs |
//! | `requests` | the requests |
//! | `caller` | one thread: schedules calls on its connections |
//! | `histogram` | latencies |

mod caller;
mod connection;
mod histogram;
mod requests;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use self::caller::Caller;
pub(crate) use self::histogram::Histogram;
pub(crate) use self::requests::Requests;

/// Time before measurements start.
const WARM_UP: Duration = Duration::from_millis(300);
/// Interval of the check for completion of all calls.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// A load: the requests and their target.
pub(crate) struct Load {
    pub(crate) service: SocketAddr,
    pub(crate) requests: Arc<Requests>,
    pub(crate) in_flight: InFlight,
}

/// Number of connections, and of calls in flight on each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InFlight {
    pub(crate) connections: usize,
    pub(crate) streams: usize,
}

/// The schedule of calls.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pace {
    /// Sends each call as soon as its stream's previous call is complete.
    Closed,
    /// Sends the given number of calls per second regardless of responses; latency counts from the
    /// instant at which a call was due.
    Open(f64),
}

/// The results of a load.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answers {
    pub(crate) ok: u64,
    pub(crate) over_limit: u64,
    /// Calls that ended in a gRPC status other than OK.
    pub(crate) failed: u64,
    pub(crate) latency: Histogram,
    /// Calls with any result during the warm-up and after the measurement.
    pub(crate) others: u64,
    /// Duration of the measurement.
    pub(crate) time: Duration,
}

/// The phase of a load, which its threads follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Phase {
    WarmingUp = 0,
    Counting = 1,
    Over = 2,
}

/// The current phase, shared by all threads of a load.
#[derive(Clone, Default)]
struct Clock(Arc<AtomicU8>);

impl Load {
    /// Runs the load for `time` after the warm-up. `sample` is called at the start and at the end
    /// of the measurement.
    pub(crate) fn run<T>(
        &self,
        pace: Pace,
        time: Duration,
        mut sample: impl FnMut() -> T,
    ) -> (Answers, [T; 2]) {
        let clock = Clock::default();
        let callers = self.start(pace, None, &clock);
        std::thread::sleep(WARM_UP);
        let first = sample();
        clock.set(Phase::Counting);
        let begun = Instant::now();
        std::thread::sleep(time);
        let time = begun.elapsed();
        let last = sample();
        clock.set(Phase::Over);
        (Answers { time, ..all(callers) }, [first, last])
    }

    /// Sends each request once, in order, and waits for all responses.
    pub(crate) fn run_all(&self) -> Answers {
        let clock = Clock::default();
        clock.set(Phase::Counting);
        let begun = Instant::now();
        let callers = self.start(Pace::Closed, Some(self.requests.len()), &clock);
        while !callers.iter().all(JoinHandle::is_finished) {
            std::thread::sleep(LOOK_EVERY);
        }
        Answers { time: begun.elapsed(), ..all(callers) }
    }

    /// Starts the threads, and returns once their connections are open. Half of the cores are left
    /// to the servers, so that the load generator is rarely the bottleneck.
    fn start(
        &self,
        pace: Pace,
        each_once: Option<usize>,
        clock: &Clock,
    ) -> Vec<JoinHandle<Answers>> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = (cores / 2).clamp(1, self.in_flight.connections);
        let (opening, opened) = mpsc::channel();
        let caller = |number: usize| Caller {
            connections: (self.in_flight.connections + threads - 1 - number) / threads,
            streams: self.in_flight.streams,
            service: self.service,
            requests: Arc::clone(&self.requests),
            number,
            of: threads,
            pace: match pace {
                Pace::Closed => Pace::Closed,
                Pace::Open(rate) => Pace::Open(rate / threads as f64),
            },
            each_once,
            clock: clock.clone(),
        };
        let callers = (0..threads)
            .map(caller)
            .map(|caller| {
                let opening = opening.clone();
                std::thread::spawn(move || caller.run(opening))
            })
            .collect();
        drop(opening);
        // Ends once all senders are dropped.
        opened.iter().for_each(drop);
        callers
    }
}

fn all(callers: Vec<JoinHandle<Answers>>) -> Answers {
    callers
        .into_iter()
        .map(|caller| caller.join().expect("a caller ends"))
        .fold(Answers::default(), Answers::and)
}

impl InFlight {
    pub(crate) fn calls(self) -> usize {
        self.connections * self.streams
    }
}

impl Answers {
    pub(crate) fn count(&self) -> u64 {
        self.ok + self.over_limit + self.failed
    }

    /// Returns the number of all responses of a server.
    pub(crate) fn count_of_all(&self) -> u64 {
        self.others + self.count()
    }

    pub(crate) fn per_second(&self) -> f64 {
        self.count() as f64 / self.time.as_secs_f64()
    }

    fn and(mut self, other: Self) -> Self {
        self.ok += other.ok;
        self.over_limit += other.over_limit;
        self.failed += other.failed;
        self.others += other.others;
        self.latency.add_all(&other.latency);
        self
    }
}

impl Clock {
    fn set(&self, phase: Phase) {
        self.0.store(phase as u8, Ordering::Release);
    }

    fn phase(&self) -> Phase {
        match self.0.load(Ordering::Acquire) {
            0 => Phase::WarmingUp,
            1 => Phase::Counting,
            _ => Phase::Over,
        }
    }
}
