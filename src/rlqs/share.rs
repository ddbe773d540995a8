//! Division of the remaining hits of a counter between the proxies that want some.
//!
//! Idea: water-filling. All wants are met up to one level, such that they sum to the remaining
//! hits; no proxy gets less than another that wants as much. Example: 100 remain, and 10, 50 and 90
//! are wanted: the level is 45, and the proxies get 10, 45 and 45.
//!
//! The wants of other proxies are those of their latest reports, less what they hold.
//!
//! A loan is for half a second more than the interval of reports, since the next one may be late.
//! The hits for this half second are mostly left when the next loan replaces it, and reports do not
//! distinguish them from those that were admitted. So while the proxies want more than what remains
//! of the window, and some requests are denied in any case, loans are for one interval.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::{HORIZON, REPORT_INTERVAL, after};

/// The wants of all proxies of the process, by counter.
#[derive(Debug, Default)]
pub struct WantTable(Mutex<HashMap<u64, CounterWants>>);

/// The wants of the proxies of a counter.
#[derive(Debug, Default)]
struct CounterWants {
    /// By stream.
    proxies: Vec<(u64, ProxyWant)>,
    /// End of the window in which more is wanted than remains.
    scarce_until: Option<Instant>,
}

/// The hits that a proxy wants of a counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProxyWant {
    /// Hits of a loan that lasts until the answer to its next report.
    pub expected: u32,
    /// Hits that it holds.
    pub left: u32,
    /// Instant of its next report, before which it gets no hits; `None` if it wants none.
    pub reports_at: Option<Instant>,
}

impl ProxyWant {
    /// Returns the hits beyond those that the proxy holds.
    fn hits(&self) -> u64 {
        self.expected.saturating_sub(self.left).into()
    }

    /// Returns the hits that the proxy can still admit until the end of a window.
    fn hits_until(&self, end: Instant) -> u64 {
        let time = self.reports_at.map_or(HORIZON, |at| end.saturating_duration_since(at));
        within(self.hits(), time.min(HORIZON))
    }
}

impl WantTable {
    /// Records what a stream wants of a counter.
    pub fn set(&self, counter: u64, stream: u64, want: ProxyWant) {
        let mut table = self.0.lock();
        let proxies = &mut table.entry(counter).or_default().proxies;
        match proxies.iter_mut().find(|(known, _)| *known == stream) {
            Some((_, known)) => *known = want,
            None => {
                if proxies.is_empty() {
                    // Most counters have one proxy, or many.
                    proxies.reserve_exact(1);
                }
                proxies.push((stream, want));
            }
        }
    }

    /// Removes the want of a stream.
    pub fn remove(&self, counter: u64, stream: u64) {
        let mut table = self.0.lock();
        if let Some(wants) = table.get_mut(&counter) {
            wants.proxies.retain(|(known, _)| *known != stream);
            if wants.proxies.is_empty() {
                table.remove(&counter);
            }
        }
    }

    /// Returns the hits to charge for a stream that wants `hits`: fewer while they are scarce.
    pub fn to_charge(&self, counter: u64, hits: u32, now: Instant) -> u32 {
        let table = self.0.lock();
        let until = table.get(&counter).and_then(|wants| wants.scarce_until);
        if until.is_some_and(|until| now < until) {
            u32::try_from(within(hits.into(), REPORT_INTERVAL)).unwrap_or(hits)
        } else {
            hits
        }
    }

    /// Returns the share of a stream that was charged or wants `hits` at `now`, if `remaining` are
    /// left for all, in a window in which hits can be admitted for `usable`.
    pub fn share(
        &self,
        of: ShareOf,
        remaining: u64,
        usable: Option<Duration>,
        now: Instant,
    ) -> u64 {
        let ShareOf { counter, stream, hits } = of;
        let mut table = self.0.lock();
        let Some(wants) = table.get_mut(&counter) else { return hits.min(remaining) };
        let scarce_until = wants.scarce_until.filter(|until| now < *until);
        let others = wants.proxies.iter().filter(|(known, _)| *known != stream);
        let others = others
            .map(|(_, want)| scarce_until.map_or_else(|| want.hits(), |end| want.hits_until(end)));
        let own = share(hits, others.collect(), remaining);
        if scarce_until.is_some() {
            return own;
        }
        match usable.filter(|usable| wants.exceed(remaining, *usable)) {
            Some(usable) => {
                wants.scarce_until = Some(after(now, usable));
                own.min(within(hits, REPORT_INTERVAL))
            }
            None => own,
        }
    }

    /// Returns the number of counters.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.lock().len()
    }
}

/// The wants of one stream that ask for a share.
#[derive(Clone, Copy, Debug)]
pub struct ShareOf {
    /// Digest of the counter and its limit.
    pub counter: u64,
    /// Number of the stream.
    pub stream: u64,
    /// Hits that it wants.
    pub hits: u64,
}

impl CounterWants {
    /// Returns `true` if the proxies will want more within a time than they hold and remains.
    fn exceed(&self, remaining: u64, time: Duration) -> bool {
        let sum = |hits: fn(&ProxyWant) -> u32| {
            self.proxies.iter().map(|(_, want)| u128::from(hits(want))).sum::<u128>()
        };
        let expected = sum(|want| want.expected).saturating_mul(time.as_millis());
        let held = sum(|want| want.left).saturating_add(remaining.into());
        expected > held.saturating_mul(HORIZON.as_millis())
    }
}

/// Returns the part of the hits of a loan that is for a shorter time.
fn within(hits: u64, time: Duration) -> u64 {
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    hits.saturating_mul(millis(time)).div_ceil(millis(HORIZON))
}

/// Returns the share of a proxy that wants `wanted`, beside others, of the remaining hits. Shares
/// are rounded down.
fn share(wanted: u64, mut others: Vec<u64>, remaining: u64) -> u64 {
    others.sort_unstable();
    let mut left = remaining;
    let mut count = u64::try_from(others.len() + 1).unwrap_or(u64::MAX);
    // Wants below the level are met in full, the smallest first.
    for other in others {
        let level = left / count;
        if other > level {
            break;
        }
        left -= other;
        count -= 1;
    }
    wanted.min(left / count)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn wants_are_met_up_to_one_level() {
        assert_eq!(share(10, vec![50, 90], 100), 10);
        assert_eq!(share(50, vec![10, 90], 100), 45);
        assert_eq!(share(90, vec![50, 10], 100), 45);
        assert_eq!(share(90, vec![], 100), 90);
        assert_eq!(share(90, vec![0, 0], 60), 60);
        assert_eq!(share(7, vec![1, 1], 0), 0);
        assert_eq!(share(5, vec![3, 9], 11), 4, "the level of the first two is 3");
    }

    #[test]
    fn a_stream_that_is_gone_leaves_nothing() {
        let table = WantTable::default();
        let now = Instant::now();
        let want = ProxyWant { expected: 120, left: 20, reports_at: None };
        table.set(1, 7, want);
        table.set(1, 8, want);
        let of = ShareOf { counter: 1, stream: 7, hits: 100 };
        assert_eq!(table.share(of, 100, None, now), 50);
        table.remove(1, 8);
        assert_eq!(table.share(of, 100, None, now), 100);
        table.remove(1, 7);
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn loans_are_for_one_interval_while_more_is_wanted_than_remains_of_the_window() {
        let table = WantTable::default();
        let now = Instant::now();
        let at = |seconds| after(now, Duration::from_secs(seconds));
        // Two proxies want 200 hits in 5.5 s, so 400 in 11 s.
        for stream in [7, 8] {
            table.set(1, stream, ProxyWant { expected: 100, left: 10, reports_at: None });
        }
        let of = ShareOf { counter: 1, stream: 7, hits: 110 };
        let share = |remaining, usable, seconds| {
            table.share(of, remaining, Some(Duration::from_secs(usable)), at(seconds))
        };
        assert_eq!(share(380, 11, 0), 110, "and they hold 20");
        assert_eq!(table.to_charge(1, 110, at(0)), 110);
        assert_eq!(share(379, 11, 0), 100);
        assert_eq!(
            [0, 10, 11].map(|seconds| table.to_charge(1, 110, at(seconds))),
            [100, 100, 110]
        );
        assert_eq!(share(379, 11, 11), 100);
        assert_eq!(share(379, 11, 12), 110, "the charge was for an interval");
    }

    #[test]
    fn a_proxy_that_reports_near_the_end_of_a_scarce_window_leaves_hits_to_others() {
        let table = WantTable::default();
        let now = Instant::now();
        let want = ProxyWant { expected: 110, left: 0, reports_at: None };
        table.set(1, 7, want);
        let reports_at = Some(after(now, Duration::from_secs(10)));
        table.set(1, 8, ProxyWant { reports_at, ..want });
        let of = ShareOf { counter: 1, stream: 7, hits: 110 };
        let share = || table.share(of, 100, Some(Duration::from_secs(11)), now);
        assert_eq!([share(), share()], [50, 80], "the other one wants 20 for a second");
    }

    proptest! {
        #[test]
        fn shares_sum_to_no_more_than_what_remains(
            wants in prop::collection::vec(0u64..1_000, 1..8),
            remaining in 0u64..5_000,
        ) {
            let of = |at: usize| {
                let mut others = wants.clone();
                let wanted = others.remove(at);
                share(wanted, others, remaining)
            };
            let shares: Vec<_> = (0..wants.len()).map(of).collect();
            let sum: u64 = shares.iter().sum();
            prop_assert!(sum <= remaining);
            prop_assert!(shares.iter().zip(&wants).all(|(share, want)| share <= want));
            let wanted: u64 = wants.iter().sum();
            // Rounding leaves less than one hit per proxy.
            let lost = u64::try_from(wants.len()).unwrap();
            prop_assert!(sum.saturating_add(lost) > remaining.min(wanted));
        }
    }
}
