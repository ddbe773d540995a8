//! The load: connections with so many calls in flight each, in a closed loop or at a steady rate, and how long answers took.
//!
//! It has to be cheap, since it shares the machine with what it measures: threads that poll, HTTP/2 by hand, requests that
//! are written beforehand. About 1 to 2 us of CPU a call.
//!
//! | file | what it knows |
//! |---|---|
//! | `connection` | HTTP/2, as far as one method of gRPC needs it |
//! | `questions` | the requests |
//! | `caller` | one thread: when which connection sends what |
//! | `histogram` | how long calls took |

mod caller;
mod connection;
mod histogram;
mod questions;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use self::caller::Caller;
pub(crate) use self::histogram::Histogram;
pub(crate) use self::questions::Questions;

/// How long a load runs before it counts.
const WARM_UP: Duration = Duration::from_millis(300);
/// How often it is looked whether all calls were answered.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// What to send whereto.
pub(crate) struct Load {
    pub(crate) service: SocketAddr,
    pub(crate) questions: Arc<Questions>,
    pub(crate) in_flight: InFlight,
}

/// Connections, and calls that each has under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InFlight {
    pub(crate) connections: usize,
    pub(crate) streams: usize,
}

/// When calls are sent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pace {
    /// Each as soon as the one before it on its stream is answered.
    Closed,
    /// So many a second, whatever becomes of them; latency counts from the instant at which a call was due.
    Open(f64),
}

/// What became of calls.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answers {
    pub(crate) ok: u64,
    pub(crate) over_limit: u64,
    /// Any gRPC status but OK.
    pub(crate) failed: u64,
    pub(crate) latency: Histogram,
    /// Those before it counted, and after, of any kind.
    pub(crate) others: u64,
    /// How long this was counted for.
    pub(crate) time: Duration,
}

/// Where a load is; threads follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Phase {
    WarmingUp = 0,
    Counting = 1,
    Over = 2,
}

/// The phase that all threads of a load are in.
#[derive(Clone, Default)]
struct Clock(Arc<AtomicU8>);

impl Load {
    /// Runs for so long after warming up. `look` is called at the beginning and at the end of what counts.
    pub(crate) fn run<T>(&self, pace: Pace, time: Duration, mut look: impl FnMut() -> T) -> (Answers, [T; 2]) {
        let clock = Clock::default();
        let callers = self.start(pace, None, &clock);
        std::thread::sleep(WARM_UP);
        let first = look();
        clock.set(Phase::Counting);
        let begun = Instant::now();
        std::thread::sleep(time);
        let (time, last) = (begun.elapsed(), look());
        clock.set(Phase::Over);
        (Answers { time, ..all(callers) }, [first, last])
    }

    /// Asks each question once, in their order, and waits for all answers.
    pub(crate) fn ask_all(&self) -> Answers {
        let clock = Clock::default();
        clock.set(Phase::Counting);
        let begun = Instant::now();
        let callers = self.start(Pace::Closed, Some(self.questions.len()), &clock);
        while !callers.iter().all(JoinHandle::is_finished) {
            std::thread::sleep(LOOK_EVERY);
        }
        Answers { time: begun.elapsed(), ..all(callers) }
    }

    /// Half of the cores are the servers', so that this is rarely what is waited for.
    fn start(&self, pace: Pace, each_once: Option<usize>, clock: &Clock) -> Vec<JoinHandle<Answers>> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = (cores / 2).clamp(1, self.in_flight.connections);
        let caller = |number: usize| Caller {
            connections: (self.in_flight.connections + threads - 1 - number) / threads,
            streams: self.in_flight.streams,
            service: self.service,
            questions: Arc::clone(&self.questions),
            number,
            of: threads,
            pace: match pace {
                Pace::Closed => Pace::Closed,
                Pace::Open(rate) => Pace::Open(rate / threads as f64),
            },
            each_once,
            clock: clock.clone(),
        };
        (0..threads).map(caller).map(|caller| std::thread::spawn(move || caller.run())).collect()
    }
}

fn all(callers: Vec<JoinHandle<Answers>>) -> Answers {
    callers.into_iter().map(|caller| caller.join().expect("a caller ends")).fold(Answers::default(), Answers::and)
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

    /// All that a server has answered.
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
