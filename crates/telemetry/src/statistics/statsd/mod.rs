//! StatsD exporter. It runs on a thread of its own, so requests never wait for it, whatever state
//! the server is in.
//!
//! Counters are sent as increments and gauges as values, once per interval; call durations are sent
//! a few times per second. Counter increments accumulate while the server is unreachable and are
//! sent later; individual durations are dropped.
//!
//! No crate is used: cadence 1.x resolves a name only once, has no TCP and keeps durations in whole
//! milliseconds only, which would leave it one line of formatting.

mod line;
mod wire;

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

pub use self::line::{LineFormat, Rewrite, RewriteError};
use self::line::{LineWriter, MetricUnit};
use self::wire::StatsdWire;
pub use self::wire::{StatsdServer, StatsdTransport};
use super::{StatReading, Stats};

/// Interval between flushes of call durations.
const TIMES_EVERY: Duration = Duration::from_millis(250);

/// Destination and format of the statistics.
#[derive(Clone, Debug)]
pub struct StatsdOptions {
    /// The StatsD server.
    pub target: StatsdServer,
    /// Format of lines.
    pub dialect: LineFormat,
    /// Interval at which counters and gauges are sent.
    pub interval: Duration,
    /// Tags of every statistic, sorted.
    pub tags: Vec<(String, String)>,
    /// Rewrites of names into other names and tags. DogStatsD only.
    pub rewrites: Vec<Rewrite>,
}

/// Handle of the exporter thread.
#[derive(Debug)]
pub struct StatsdExporter {
    stop: mpsc::Sender<()>,
    /// Disconnected when the thread has ended.
    ended: Receiver<()>,
}

struct Sender {
    stats: Arc<Stats>,
    /// Individual durations, by timer name.
    times: Vec<(String, Receiver<u64>)>,
    lines: LineWriter,
    wire: StatsdWire,
}

/// Starts the exporter.
///
/// # Errors
/// If the thread cannot be spawned.
pub fn start(stats: Arc<Stats>, options: StatsdOptions) -> io::Result<StatsdExporter> {
    let (stop, stopped) = channel();
    let (running, ended) = channel();
    let times =
        stats.timers().filter_map(|(name, timer)| Some((name, timer.subscribe()?))).collect();
    let lines = LineWriter::new(options.dialect, options.tags, options.rewrites);
    let mut sender = Sender { stats, times, lines, wire: StatsdWire::new(options.target) };
    let thread = std::thread::Builder::new().name("statsd".to_owned());
    thread.spawn(move || {
        sender.run(options.interval, &stopped);
        drop(running);
    })?;
    Ok(StatsdExporter { stop, ended })
}

impl StatsdExporter {
    /// Flushes and stops the thread, blocking for up to `timeout`. Returns `true` if it finished in
    /// time.
    pub fn stop(self, timeout: Duration) -> bool {
        let _ = self.stop.send(());
        self.ended.recv_timeout(timeout) == Err(RecvTimeoutError::Disconnected)
    }
}

impl Sender {
    fn run(&mut self, interval: Duration, stopped: &Receiver<()>) {
        let mut next = Instant::now().checked_add(interval);
        loop {
            let rest =
                next.map_or(TIMES_EVERY, |next| next.saturating_duration_since(Instant::now()));
            let is_last =
                stopped.recv_timeout(rest.min(TIMES_EVERY)) != Err(RecvTimeoutError::Timeout);
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

    /// Sends pending durations and, if `is_due`, all other statistics.
    fn send(&mut self, is_due: bool) {
        let lines = &mut self.lines;
        let wire = &mut self.wire;
        if !wire.is_ready(is_due) {
            // Durations have no timestamp: sent later, they would count as new.
            self.times.iter().for_each(|(_, times)| times.try_iter().for_each(drop));
            return;
        }
        for (name, times) in &self.times {
            times.try_iter().for_each(|us| wire.push(lines.of(name, &MetricUnit::Time(us))));
        }
        if is_due {
            self.stats.visit(|name, reading| match reading {
                // Counters keep their unsent increments while the link is down.
                StatReading::Counter(counter) if wire.is_open() => match counter.unsent() {
                    0 => {}
                    more => wire.push(lines.of(name, &MetricUnit::Counter(more))),
                },
                StatReading::Gauge(value) => wire.push(lines.of(name, &MetricUnit::Gauge(value))),
                StatReading::Counter(_) | StatReading::Timer(_) => {}
            });
        }
        wire.send();
    }
}
