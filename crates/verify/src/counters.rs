//! The counters that the requests of a run use.

use rand::Rng as _;
use rand::rngs::StdRng;

use crate::bound::CounterModel;
use crate::charge::TAKE_BACK;

/// Longest period, in microseconds, of which one counter is used for several.
const MAX_KEPT_PERIOD: u64 = 5_000_000;

/// Most calls to one counter: the time of a check grows with their square.
const COUNTER_CALLS: u64 = 25_000;

/// Calls in a period to a counter that is over its limit, and the longest time between them, in
/// microseconds.
const WATCHED_CALLS: u64 = 256;
const MAX_WATCHED_PAUSE: u64 = 250_000;

/// The counters of a rule that take further calls.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CountersInUse {
    current: CounterInUse,
    /// Counters over their limit: one that shows when its hits return, and one that shared requests
    /// with other counters, which shows that hits were taken back.
    watched: [Option<WatchedCounter>; 2],
}

/// A counter that takes most of the calls, until it is over its limit.
#[derive(Clone, Copy, Debug, Default)]
struct CounterInUse {
    counter: usize,
    /// Calls so far, and calls after which it has been over its limit for long enough.
    calls: u64,
    enough: u64,
    /// Time before which it is not replaced.
    until: u64,
    /// `true` if it shared a request with another counter.
    is_shared: bool,
}

/// A counter that takes a call now and then. Times are in microseconds.
#[derive(Clone, Copy, Debug)]
struct WatchedCounter {
    counter: usize,
    /// Calls before it is replaced.
    calls_left: u64,
    /// Time between calls.
    pause: u64,
    /// Time of the next call.
    next: u64,
    /// Time after which it is replaced.
    until: u64,
}

impl CountersInUse {
    /// Returns the counter of the next call: one in use, or a new one with index `new`.
    pub(crate) fn next(
        &mut self,
        model: &CounterModel,
        now: u64,
        new: usize,
        random: &mut StdRng,
    ) -> usize {
        for watched in &mut self.watched {
            *watched = watched.filter(|one| now < one.until && one.calls_left > 0);
        }
        let due = self.watched.iter_mut().flatten().find(|one| now >= one.next);
        if let Some(watched) = due
            && random.random_ratio(1, 4)
        {
            watched.next = now.saturating_add(watched.pause);
            watched.calls_left -= 1;
            return watched.counter;
        }
        let current = &mut self.current;
        let is_done = current.calls >= current.enough && now >= current.until;
        if is_done || current.calls >= COUNTER_CALLS {
            let [alone, shared] = &mut self.watched;
            let watched = if current.is_shared { shared } else { alone };
            if watched.is_none() && current.enough > 0 {
                *watched = Some(WatchedCounter::new(current, model, now));
            }
            // Twice the limit, so that it is reached and denials follow. Some counters of a short
            // period are used for several, in which their hits must return.
            let period = model.period();
            let is_kept = period <= MAX_KEPT_PERIOD && random.random_ratio(1, 8);
            *current = CounterInUse {
                counter: new,
                calls: 0,
                enough: model.calls_enough(),
                until: if is_kept { now + period * 3 } else { 0 },
                is_shared: false,
            };
        }
        current.calls += 1;
        current.counter
    }

    /// Notes that the latest counter shares a request with another one.
    pub(crate) fn share(&mut self) {
        self.current.is_shared = true;
    }
}

impl WatchedCounter {
    fn new(counter: &CounterInUse, model: &CounterModel, now: u64) -> Self {
        let longest = model.longest_return();
        let pause = if model.denials_extend() {
            // Calls in between would be denied rightly.
            longest.saturating_add(longest / 16)
        } else {
            (model.period() / WATCHED_CALLS).min(MAX_WATCHED_PAUSE)
        };
        let watched_for =
            if counter.is_shared { TAKE_BACK.saturating_mul(2) } else { longest.saturating_mul(3) };
        Self {
            counter: counter.counter,
            calls_left: COUNTER_CALLS.saturating_sub(counter.calls),
            pause,
            next: now.saturating_add(pause),
            until: now.saturating_add(watched_for),
        }
    }
}
