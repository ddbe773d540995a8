//! The rate of the requests of a bucket, allowed and denied.
//!
//! Idea: the rate of the latest report, or half of the rate before, if that is more: a pause of one
//! interval does not end the quota of a proxy.

use std::time::Duration;

/// Shortest time that a rate is computed over: the second report of a bucket may follow the first
/// one at once.
const SHORTEST: Duration = Duration::from_millis(500);
/// Number of milliseconds in the unit of a rate: 1,000 s.
const UNIT: u64 = 1_000_000;

/// The demand of a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Demand {
    /// Hits in 1,000 s; `None` before the second report.
    rate: Option<u64>,
}

impl Demand {
    /// Records the hits of a report, `elapsed` after the previous one.
    pub(super) fn record(&mut self, hits: u64, elapsed: Duration) {
        let elapsed = millis(elapsed.max(SHORTEST));
        let now = hits.saturating_mul(UNIT) / elapsed;
        let half = self.rate.map_or(0, |rate| rate / 2);
        self.rate = Some(now.max(half));
    }

    /// Returns the hits that are expected within a time; `None` before the second report.
    pub(super) fn within(self, time: Duration) -> Option<u64> {
        Some(self.rate?.saturating_mul(millis(time)).div_ceil(UNIT))
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_demand_follows_a_rise_at_once_and_a_fall_by_halves() {
        let mut demand = Demand::default();
        assert_eq!(demand.within(SECOND), None);
        demand.record(500, SECOND * 5);
        assert_eq!(demand.within(SECOND * 5), Some(500));
        demand.record(0, SECOND * 5);
        assert_eq!(demand.within(SECOND * 5), Some(250));
        demand.record(5_000, SECOND * 5);
        assert_eq!(demand.within(SECOND), Some(1_000));
    }

    #[test]
    fn reports_at_one_instant_make_no_boundless_rate() {
        let mut demand = Demand::default();
        demand.record(1, Duration::ZERO);
        assert_eq!(demand.within(SECOND), Some(2));
        demand.record(u64::MAX, Duration::ZERO);
        assert!(demand.within(SECOND).unwrap() > 1 << 40);
    }
}
