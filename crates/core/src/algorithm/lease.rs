//! Leases: blocks of hits that a process charges in advance and then admits without the store.
//!
//! Idea: a block of n hits is charged like a request of n, and its holder admits n hits by itself.
//! All other processes see them as used, and every hit is admitted a little later than it was
//! charged, never earlier. The end of the block bounds the delay: its TTL, and for fixed windows
//! the end of the first window that it was charged in.
//!
//! - fixed_window: each hit is admitted in the window that it was charged in, so no window admits
//!   more than L. Hits not admitted by the end of the first window are returned to the longer ones.
//! - Others: hits admitted in an interval of `P - ttl` were charged within one P, so they are at
//!   most L (for gcra: at most what it admits in a P). A whole P admits at most that and the blocks
//!   that were outstanding when the P began.
//!
//! Example, L = 1000 a minute, blocks of 10 for 100 ms: at 0:59.95 a block of 10 is charged. With a
//! fixed window it ends at 1:00 whatever its TTL. With a sliding window it may be used until
//! 1:00.05, so from 0:00.05 to 1:00.05 up to 1010 hits pass, but from 0:00.05 to 0:59.95 no more
//! than 1000.
//!
//! The last hits are not stranded: a block is at most a [sixteenth](NEAR) of the remaining hits. If
//! that is too few for a block, each request calls the store.

use super::Limit;
use super::time::{Micros, Timestamp};

/// Hits of the smallest block: taking and returning it costs two calls, and it must save more.
pub const LEAST: u32 = 4;
/// Divisor that bounds a block to a fraction of the remaining hits.
pub const NEAR: u32 = 16;
/// Maximum number of blocks per key that a worker holds at once: the current and the next one.
pub const BLOCKS: usize = 2;
/// Divisor that bounds the time of a loan to a fraction of the period, for limits other than fixed
/// windows.
pub const ROLLING_LOANS: u64 = 20;
/// Maximum time of a loan.
pub const LONGEST_LOAN: Micros = Micros::from_secs(60);
/// Maximum time for which a holder denies by itself: hits can come back elsewhere, such as those of
/// other loans.
pub const LONGEST_DENIAL: Micros = Micros::from_secs(1);
/// Fraction of a loan's time by which it is shortened: a holder's clock may run slower by that much
/// than the store's.
const CLOCK_RATES: u64 = 1_000;
/// Basis points in 100 %.
const WHOLE: u64 = 10_000;

/// The size and lifetime of the blocks that a process may lease from a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Maximum hits per block.
    pub hits: u32,
    /// Time for which a block is kept, from the instant at which it was requested.
    pub ttl: Micros,
}

impl Lease {
    /// Returns the hits to lease if `wanted` would be used within a TTL and `left` remain; `None`
    /// if a block is not worth it.
    pub fn block_size(&self, wanted: u64, left: u64) -> Option<u32> {
        let near = left.checked_div(NEAR.into()).unwrap_or_default();
        let hits = wanted.min(near).min(self.hits.into());
        u32::try_from(hits).ok().filter(|hits| *hits >= LEAST)
    }

    /// Returns the hits of the largest block that a limit can have; `None` if it never has one.
    pub fn largest(&self, limit: &Limit) -> Option<u32> {
        self.block_size(u64::MAX, limit.at_once().into())
    }
}

impl Limit {
    /// Returns `basis_points` of [the hits admitted at once](Self::at_once), at least one hit.
    pub fn part(&self, basis_points: u16) -> u32 {
        let hits = u64::from(self.at_once()).saturating_mul(basis_points.into()) / WHOLE;
        u32::try_from(hits).unwrap_or(u32::MAX).max(1)
    }

    /// Returns the maximum time for which a holder outside of the process may admit leased hits.
    pub fn longest_loan(&self, ttl: Micros) -> Micros {
        let shortest = self.shortest_period().unwrap_or_default();
        let part = if self.counts_per_window() {
            shortest
        } else {
            Micros::new(shortest.get() / ROLLING_LOANS)
        };
        ttl.min(part).min(LONGEST_LOAN)
    }

    /// Returns the time for which a holder may admit hits that were charged at `at`, measured from
    /// the instant at which it sent its request, which is not later.
    pub fn loan_time(&self, ttl: Micros, at: Timestamp) -> Micros {
        let longest = self.longest_loan(ttl);
        let time = self.windows_end_after(at).map_or(longest, |(first, _)| first.min(longest));
        time - Micros::new(time.get().div_ceil(CLOCK_RATES))
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixed_window::FixedWindow;
    use super::super::gcra::Gcra;
    use super::super::quota::Window;
    use super::super::{Algorithm, Charge, OnStoreError};
    use super::*;

    fn window((limit, seconds): (u32, u64)) -> Window {
        Window::new(limit, Micros::from_secs(seconds)).unwrap()
    }

    fn fixed<const N: usize>(windows: [(u32, u64); N]) -> Limit {
        let windows = FixedWindow::new(windows.map(window).to_vec()).unwrap();
        Limit::new(Algorithm::FixedWindow(windows), Charge::Always, OnStoreError::Error).unwrap()
    }

    /// Returns a limit of hits a minute.
    fn gcra(limit: u32, burst: Option<u32>) -> Limit {
        let gcra = Gcra::new(window((limit, 60)), burst, None).unwrap();
        Limit::new(Algorithm::Gcra(gcra), Charge::Always, OnStoreError::Error).unwrap()
    }

    #[test]
    fn a_block_is_bounded_by_demand_size_and_remaining_hits() {
        let lease = Lease { hits: 100, ttl: Micros::from_secs(1) };
        assert_eq!(lease.block_size(50, 10_000), Some(50));
        assert_eq!(lease.block_size(500, 10_000), Some(100));
        assert_eq!(lease.block_size(500, 160), Some(10));
        assert_eq!(lease.block_size(500, 63), None, "near the limit each request asks for itself");
        assert_eq!(lease.block_size(3, 10_000), None, "a key that is rarely used, too");
    }

    #[test]
    fn a_percentage_is_of_the_hits_that_can_be_admitted_at_once() {
        let windows = fixed([(500, 60), (900, 90)]);
        assert_eq!([100, 10_000, 1].map(|part| windows.part(part)), [5, 500, 1]);
        assert_eq!(gcra(500, Some(2_000)).part(100), 20);
        let ban = gcra(0, Some(2_000));
        assert_eq!(ban.at_once(), 0);
        let lease = |hits| Lease { hits, ttl: Micros::from_secs(1) };
        assert_eq!(
            [3, 20, 100].map(|hits| lease(hits).largest(&windows)),
            [None, Some(20), Some(31)]
        );
        assert_eq!(lease(100).largest(&ban), None);
    }

    #[test]
    fn a_block_of_several_fixed_windows_ends_with_the_first_and_counts_until_the_last() {
        let windows = fixed([(500, 60), (900, 90)]);
        let at = |seconds: u64| Timestamp::from_micros(seconds * 1_000_000);
        let ends = |seconds| {
            windows
                .windows_end_after(at(seconds))
                .map(|(first, last)| [first, last].map(|end| end.get() / 1_000_000))
        };
        assert_eq!([50, 80, 180].map(ends), [Some([10, 40]), Some([10, 40]), Some([60, 90])]);
        assert_eq!(gcra(500, None).windows_end_after(at(50)), None);
        assert_eq!(windows.charged(Charge::Admitted).charge_mode(), Charge::Admitted);
    }

    #[test]
    fn one_hit_fits_no_later_than_the_time_derived_from_a_block() {
        let gcra = gcra(7, None);
        let at = Timestamp::from_micros(1_000_000_000);
        let mut state = gcra.unused();
        gcra.charge(&mut state, 7, at).unwrap();
        let retry = |hits| gcra.report(&state, Some(hits), at).unwrap().retry_after.unwrap();
        let derived = gcra.retry_of_one(5, retry(5)).unwrap();
        assert!(derived <= retry(1) && retry(1) - derived <= Micros::new(1), "{derived}");
        let of_one = |limit: Limit| limit.retry_of_one(5, Micros::new(9));
        assert_eq!(of_one(fixed([(5, 60)])), Some(Micros::new(9)));
        assert_eq!(of_one(fixed([(500, 60), (900, 90)])), None);
    }

    #[test]
    fn a_loan_ends_before_its_window_and_a_holders_clock_may_be_slower() {
        let windows = fixed([(500, 60)]);
        let at = |us| Timestamp::from_micros(us);
        let time = |limit: &Limit, ttl, us| limit.loan_time(Micros::new(ttl), at(us)).get();
        assert_eq!(time(&windows, 500_000, 0), 499_500);
        assert_eq!(time(&windows, 500_000, 59_900_000), 99_900);
        assert_eq!(time(&windows, 500_000, 59_999_999), 0);
        assert_eq!(time(&windows, 90_000_000, 0), 59_940_000);
        let gcra = gcra(500, None);
        assert_eq!(time(&gcra, 500_000, 59_999_999), 499_500);
        assert_eq!(time(&gcra, 90_000_000, 0), 2_997_000, "a twentieth of the period");
    }
}
