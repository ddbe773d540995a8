//! Statistics sent to StatsD, by a thread of their own: no request waits for it, whatever becomes of the server.
//!
//! Counters go as what was added since the last time, gauges as they are, once an interval; times of calls a few times a
//! second. What is counted while the server cannot be reached is sent when it can; single times are lost.
//!
//! Written here: of the crates, cadence 1.x resolves a name once and has no TCP, and of times it keeps whole milliseconds only.
//! What would be left to it is one line of formatting.

mod line;
mod wire;

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

pub use self::line::{Dialect, Rewrite};
use self::line::{Lines, Unit};
use self::wire::Wire;
pub use self::wire::{Protocol, Target};
use super::stats::{Reading, Stats};

/// How often times of calls are sent on.
const TIMES_EVERY: Duration = Duration::from_millis(250);

/// Where statistics are sent, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// The server.
    pub target: Target,
    /// What a line looks like.
    pub dialect: Dialect,
    /// How often counters and gauges are sent.
    pub interval: Duration,
    /// Tags of everything, sorted.
    pub tags: Vec<(String, String)>,
    /// Names that become others, with tags. For DogStatsD.
    pub rewrites: Vec<Rewrite>,
}

/// A thread that sends statistics.
#[derive(Debug)]
pub struct Sending {
    stop: mpsc::Sender<()>,
    /// Closed when the thread has ended.
    ended: Receiver<()>,
}

struct Sender {
    stats: Arc<Stats>,
    /// Single times, by the timer's name.
    times: Vec<(String, Receiver<u64>)>,
    lines: Lines,
    wire: Wire,
}

/// Begins to send.
///
/// # Errors
/// Where there is no thread to be had.
pub fn start(stats: Arc<Stats>, options: Options) -> io::Result<Sending> {
    let ((stop, stopped), (running, ended)) = (channel(), channel());
    let times = stats.timers().filter_map(|(name, timer)| Some((name, timer.subscribe()?))).collect();
    let lines = Lines::new(options.dialect, options.tags, options.rewrites);
    let mut sender = Sender { stats, times, lines, wire: Wire::new(options.target) };
    let thread = std::thread::Builder::new().name("statsd".to_owned());
    thread.spawn(move || {
        sender.run(options.interval, &stopped);
        drop(running);
    })?;
    Ok(Sending { stop, ended })
}

impl Sending {
    /// Sends what is left, and ends; says whether that was done within `timeout`, for which it blocks.
    pub fn stop(self, timeout: Duration) -> bool {
        let _ = self.stop.send(());
        self.ended.recv_timeout(timeout) == Err(RecvTimeoutError::Disconnected)
    }
}

impl Sender {
    fn run(&mut self, interval: Duration, stopped: &Receiver<()>) {
        let mut next = Instant::now().checked_add(interval);
        loop {
            let rest = next.map_or(TIMES_EVERY, |next| next.saturating_duration_since(Instant::now()));
            let is_last = stopped.recv_timeout(rest.min(TIMES_EVERY)) != Err(RecvTimeoutError::Timeout);
            let is_due = is_last || next.is_some_and(|next| next <= Instant::now());
            if is_due {
                next = Instant::now().checked_add(interval);
            }
            self.send(is_due);
            if is_last {
                return;
            }
        }
    }

    /// Sends the times that are waiting and, where that `is_due`, everything else.
    fn send(&mut self, is_due: bool) {
        let (lines, wire) = (&mut self.lines, &mut self.wire);
        if !wire.is_ready(is_due) {
            // What nobody can be told would be told as if it had just been.
            self.times.iter().for_each(|(_, times)| times.try_iter().for_each(drop));
            return;
        }
        for (name, times) in &self.times {
            times.try_iter().for_each(|us| wire.push(lines.of(name, &Unit::Time(us))));
        }
        if is_due {
            self.stats.visit(|name, reading| match reading {
                // Left as it is where it cannot be sent.
                Reading::Counter(counter) if wire.is_open() => match counter.unsent() {
                    0 => {}
                    more => wire.push(lines.of(name, &Unit::Counter(more))),
                },
                Reading::Gauge(value) => wire.push(lines.of(name, &Unit::Gauge(value))),
                Reading::Counter(_) | Reading::Timer(_) => {}
            });
        }
        wire.send();
    }
}
