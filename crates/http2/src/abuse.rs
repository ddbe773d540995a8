//! Abuse by clients: frames and resets that no real client needs, counted per connection.
//!
//! One counter per kind, which answers and time offset. A counter that exceeds its bound starts
//! again from zero; the connection decides what follows.

use std::time::Instant;

/// Bound of a counter.
#[derive(Debug)]
struct AbuseBound {
    max: u32,
    /// Amount offset by each answer that the client takes.
    per_answer: u32,
    /// Amount offset by each second.
    per_second: u32,
}

/// Calls reset before they are answered. Opening calls only to reset them (CVE-2023-44487) evades
/// the bound on concurrent streams, and each such call is begun. But a call that is reset takes no
/// more than one that is answered, and what it leaves in the store ends within the timeout of the
/// store. Two hundred callers with deadlines of 1 ms on one connection, on a machine that is too
/// slow for them, reset 30,000 calls a second; a flood has several times as many.
const RESETS: AbuseBound = AbuseBound { max: 2048, per_answer: 1, per_second: 50_000 };
/// Stream errors: malformed header lists, frames for closed streams.
const ERRORS: AbuseBound = AbuseBound { max: 1024, per_answer: 1, per_second: 100 };
/// Streams refused beyond the bound on them. A client that does not wait for its turn opens
/// thousands while the machine stalls; refusing one takes less than answering it.
const REFUSALS: AbuseBound = AbuseBound { max: 16_384, per_answer: 1, per_second: 100 };
/// Cost of frames without a call.
const IDLE_COST: AbuseBound = AbuseBound { max: 10_000, per_answer: 16, per_second: 100 };
/// Cost of a frame that takes next to no work, and of one that is empty or takes more work.
const CONTROL_COST: u32 = 1;
const EMPTY_COST: u32 = 128;
const MICROS: u128 = 1_000_000;

/// Counters of abuse on one connection.
#[derive(Debug)]
pub(super) struct AbuseCounters {
    resets: AbuseCounter,
    errors: AbuseCounter,
    refusals: AbuseCounter,
    idle_cost: AbuseCounter,
}

#[derive(Debug)]
struct AbuseCounter {
    bound: &'static AbuseBound,
    count: u32,
    forgiven_at: Instant,
}

/// Abuse for which a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Abuse {
    /// Calls reset before they are answered.
    Resets,
    /// Errors, or frames that no call needs.
    Flood,
}

impl AbuseCounter {
    fn new(bound: &'static AbuseBound, now: Instant) -> Self {
        Self { bound, count: 0, forgiven_at: now }
    }

    /// Adds `cost`. Returns `false`, and starts again, if that exceeds the bound.
    fn add(&mut self, cost: u32, now: Instant) -> bool {
        self.count = self.count.saturating_add(cost);
        // Elapsed time is credited only when it is needed.
        if self.count > self.bound.max {
            let elapsed = now.saturating_duration_since(self.forgiven_at).as_micros();
            let forgiven = elapsed.saturating_mul(self.bound.per_second.into()) / MICROS;
            if forgiven > 0 {
                self.forgiven_at = now;
                self.count = self.count.saturating_sub(u32::try_from(forgiven).unwrap_or(u32::MAX));
            }
        }
        let is_within = self.count <= self.bound.max;
        if !is_within {
            self.count = 0;
        }
        is_within
    }

    fn offset(&mut self) {
        self.count = self.count.saturating_sub(self.bound.per_answer);
    }
}

impl AbuseCounters {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            resets: AbuseCounter::new(&RESETS, now),
            errors: AbuseCounter::new(&ERRORS, now),
            refusals: AbuseCounter::new(&REFUSALS, now),
            idle_cost: AbuseCounter::new(&IDLE_COST, now),
        }
    }

    /// Records an answer that the client took, which offsets some abuse.
    pub(super) fn record_answer(&mut self) {
        let Self { resets, errors, refusals, idle_cost } = self;
        [resets, errors, refusals, idle_cost].into_iter().for_each(AbuseCounter::offset);
    }

    /// Records a call that the client reset before it was answered.
    ///
    /// # Errors
    /// [`Abuse`] if the connection must end; likewise in the other methods.
    pub(super) fn record_reset(&mut self, now: Instant) -> Result<(), Abuse> {
        self.resets.add(1, now).then_some(()).ok_or(Abuse::Resets)
    }

    /// Records a stream error of the client.
    pub(super) fn record_error(&mut self, now: Instant) -> Result<(), Abuse> {
        self.errors.add(1, now).then_some(()).ok_or(Abuse::Flood)
    }

    /// Records a stream that was refused because too many were open.
    pub(super) fn record_refusal(&mut self, now: Instant) -> Result<(), Abuse> {
        self.refusals.add(1, now).then_some(()).ok_or(Abuse::Flood)
    }

    /// Records a frame that belongs to no call: PING, PRIORITY, WINDOW_UPDATE, unknown types.
    pub(super) fn record_control(&mut self, now: Instant) -> Result<(), Abuse> {
        self.idle_cost.add(CONTROL_COST, now).then_some(()).ok_or(Abuse::Flood)
    }

    /// Records DATA or CONTINUATION without a payload, or SETTINGS, which touch every stream.
    pub(super) fn record_empty(&mut self, now: Instant) -> Result<(), Abuse> {
        self.idle_cost.add(EMPTY_COST, now).then_some(()).ok_or(Abuse::Flood)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    type Record = fn(&mut AbuseCounters, Instant) -> Result<(), Abuse>;

    const KINDS: [(Record, AbuseBound, Abuse); 4] = [
        (AbuseCounters::record_reset, RESETS, Abuse::Resets),
        (AbuseCounters::record_error, ERRORS, Abuse::Flood),
        (AbuseCounters::record_refusal, REFUSALS, Abuse::Flood),
        (AbuseCounters::record_control, IDLE_COST, Abuse::Flood),
    ];

    #[test]
    fn each_kind_is_tolerated_up_to_its_bound_and_again_after_that() {
        for (record, bound, abuse) in KINDS {
            let now = Instant::now();
            let mut counters = AbuseCounters::new(now);
            for _ in 0..3 {
                assert!((0..bound.max).all(|_| record(&mut counters, now).is_ok()));
                assert_eq!(record(&mut counters, now), Err(abuse));
            }
        }
    }

    #[test]
    fn answers_and_time_offset_each_kind() {
        for (record, bound, abuse) in KINDS {
            let begun = Instant::now();
            let mut counters = AbuseCounters::new(begun);
            assert!((0..bound.max).all(|_| record(&mut counters, begun).is_ok()));
            counters.record_answer();
            assert!((0..bound.per_answer).all(|_| record(&mut counters, begun).is_ok()));
            // All elapsed time is credited, once.
            let later = begun + Duration::from_millis(40);
            let forgiven = bound.per_second / 25;
            assert!((0..forgiven).all(|_| record(&mut counters, later).is_ok()));
            assert_eq!(record(&mut counters, later), Err(abuse));
        }
    }

    #[test]
    fn frames_that_carry_nothing_cost_more() {
        let begun = Instant::now();
        let mut sent = 0;
        let mut abuse = AbuseCounters::new(begun);
        while abuse.record_empty(begun).is_ok() {
            sent += 1;
        }
        assert_eq!(sent, IDLE_COST.max / EMPTY_COST);
    }

    #[test]
    fn time_that_offsets_less_than_one_is_kept_for_the_next_time() {
        for (record, bound, abuse) in KINDS {
            let begun = Instant::now();
            let part = Duration::from_millis(600) / bound.per_second;
            let mut counters = AbuseCounters::new(begun);
            assert!((0..bound.max).all(|_| record(&mut counters, begun).is_ok()));
            assert_eq!(record(&mut counters, begun + part), Err(abuse));
            assert!((0..bound.max).all(|_| record(&mut counters, begun + part).is_ok()));
            assert_eq!(record(&mut counters, begun + 2 * part), Ok(()));
            assert_eq!(record(&mut counters, begun + 2 * part), Err(abuse));
        }
    }

    #[test]
    fn elapsed_time_is_credited_when_a_bound_is_reached_and_not_before() {
        for (record, bound, abuse) in KINDS {
            let begun = Instant::now();
            let mut counters = AbuseCounters::new(begun);
            let later = begun + Duration::from_secs(3_600);
            assert!((0..=2 * bound.max).all(|_| record(&mut counters, later).is_ok()));
            assert_eq!(record(&mut counters, later), Err(abuse));
        }
    }
}
