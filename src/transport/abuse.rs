//! Abuse by clients: frames and resets that no real client needs, counted until the connection is
//! closed.

use std::time::Instant;

/// Maximum number of calls reset before they are answered, in excess of those answered. Real
/// clients are patient: a proxy announces its timeout, and is answered before it. Opening calls
/// only to reset them (CVE-2023-44487) evades the bound on concurrent streams, and each such call
/// is begun.
const MAX_RESETS: u32 = 2048;
/// Maximum number of stream errors in excess of answers: malformed header lists, frames for closed
/// streams.
const MAX_ERRORS: u32 = 1024;
/// Maximum number of streams refused beyond the bound on them, in excess of answers. A client that
/// does not wait for its turn opens thousands while the machine stalls; refusing one takes less
/// than answering it.
const MAX_REFUSALS: u32 = 16_384;
/// Maximum cost that frames without a call may accumulate.
const MAX_IDLE_COST: u32 = 10_000;
/// Cost forgiven per second, and per answer.
const COST_PER_SECOND: u64 = 100;
const COST_PER_ANSWER: u32 = 16;
/// Cost of a frame that takes next to no work, and of one that is empty or takes more work.
const CONTROL_COST: u32 = 1;
const EMPTY_COST: u32 = 128;

/// Counters of abuse on one connection.
#[derive(Debug)]
pub(super) struct AbuseCounters {
    resets: u32,
    errors: u32,
    refusals: u32,
    idle_cost: u32,
    forgiven_at: Instant,
}

/// Abuse for which a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Abuse {
    /// Calls reset before they are answered.
    Resets,
    /// Errors, or frames that no call needs.
    Flood,
}

impl AbuseCounters {
    pub(super) fn new(now: Instant) -> Self {
        Self { resets: 0, errors: 0, refusals: 0, idle_cost: 0, forgiven_at: now }
    }

    /// Records an answer that the client took, which offsets some abuse.
    pub(super) fn record_answer(&mut self) {
        self.resets = self.resets.saturating_sub(1);
        self.errors = self.errors.saturating_sub(1);
        self.refusals = self.refusals.saturating_sub(1);
        self.idle_cost = self.idle_cost.saturating_sub(COST_PER_ANSWER);
    }

    /// Records a call that the client reset before it was answered.
    ///
    /// # Errors
    /// [`Abuse`] if the connection must be closed; likewise in the other methods.
    pub(super) fn record_reset(&mut self) -> Result<(), Abuse> {
        self.resets = self.resets.saturating_add(1);
        if self.resets > MAX_RESETS { Err(Abuse::Resets) } else { Ok(()) }
    }

    /// Records a stream error of the client.
    pub(super) fn record_error(&mut self) -> Result<(), Abuse> {
        self.errors = self.errors.saturating_add(1);
        if self.errors > MAX_ERRORS { Err(Abuse::Flood) } else { Ok(()) }
    }

    /// Records a stream that was refused because too many were open.
    pub(super) fn record_refusal(&mut self) -> Result<(), Abuse> {
        self.refusals = self.refusals.saturating_add(1);
        if self.refusals > MAX_REFUSALS { Err(Abuse::Flood) } else { Ok(()) }
    }

    /// Records a frame that belongs to no call: PING, PRIORITY, WINDOW_UPDATE, unknown types.
    pub(super) fn record_control(&mut self, now: Instant) -> Result<(), Abuse> {
        self.record_cost(CONTROL_COST, now)
    }

    /// Records DATA or CONTINUATION without a payload, or SETTINGS, which touch every stream.
    pub(super) fn record_empty(&mut self, now: Instant) -> Result<(), Abuse> {
        self.record_cost(EMPTY_COST, now)
    }

    fn record_cost(&mut self, cost: u32, now: Instant) -> Result<(), Abuse> {
        self.idle_cost = self.idle_cost.saturating_add(cost);
        if self.idle_cost <= MAX_IDLE_COST {
            return Ok(());
        }
        // Elapsed time is credited only when it is needed.
        let seconds = now.saturating_duration_since(self.forgiven_at).as_secs();
        let forgiven = u32::try_from(seconds.saturating_mul(COST_PER_SECOND)).unwrap_or(u32::MAX);
        self.forgiven_at = now;
        self.idle_cost = self.idle_cost.saturating_sub(forgiven);
        if self.idle_cost > MAX_IDLE_COST { Err(Abuse::Flood) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn answers_make_up_for_resets() {
        let mut abuse = AbuseCounters::new(Instant::now());
        assert!((0..MAX_RESETS).all(|_| abuse.record_reset().is_ok()));
        abuse.record_answer();
        assert_eq!(abuse.record_reset(), Ok(()));
        assert_eq!(abuse.record_reset(), Err(Abuse::Resets));
    }

    #[test]
    fn a_burst_of_refused_streams_is_tolerated_and_a_flood_is_not() {
        let mut abuse = AbuseCounters::new(Instant::now());
        assert!((0..MAX_REFUSALS).all(|_| abuse.record_refusal().is_ok()));
        abuse.record_answer();
        assert_eq!(abuse.record_refusal(), Ok(()));
        assert_eq!(abuse.record_refusal(), Err(Abuse::Flood));
    }

    #[test]
    fn frames_without_calls_are_forgiven_with_time_and_by_answers() {
        let begun = Instant::now();
        let mut abuse = AbuseCounters::new(begun);
        assert!((0..MAX_IDLE_COST).all(|_| abuse.record_control(begun).is_ok()));
        assert_eq!(abuse.record_control(begun), Err(Abuse::Flood));
        // All elapsed time is credited: two seconds allow 200 more.
        let later = begun + Duration::from_secs(2);
        assert!((0..199).all(|_| abuse.record_control(later).is_ok()));
        assert_eq!(abuse.record_control(later).and(abuse.record_control(later)), Err(Abuse::Flood));
        abuse.record_answer();
        assert_eq!(abuse.record_control(later), Ok(()));
    }

    #[test]
    fn frames_that_carry_nothing_cost_more() {
        let begun = Instant::now();
        let mut sent = 0;
        let mut abuse = AbuseCounters::new(begun);
        while abuse.record_empty(begun).is_ok() {
            sent += 1;
        }
        assert_eq!(sent, MAX_IDLE_COST / EMPTY_COST);
    }
}
