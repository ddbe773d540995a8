//! Properties of limits by algorithm, on which other modules decide. A module that needs to know
//! something about an algorithm asks for a property, so that a new algorithm answers once.

use super::quota::{MAX_LOG_LIMIT, Window};
use super::sliding_window::Estimate;
use super::time::{Micros, Timestamp};
use super::{Algorithm, Charge, Limit};

impl Limit {
    /// Returns the burst if it differs from the amount of the rate.
    pub fn distinct_burst(&self) -> Option<u32> {
        self.burst().filter(|burst| self.windows().iter().all(|window| window.limit() != *burst))
    }

    /// Returns the time that proxies receive for hits that are never admitted, since they show an
    /// absent one as zero: the rest of the first window of fixed windows and of a ban at `now`, as
    /// envoyproxy/ratelimit does; else the longest period, or the TTL of permits.
    pub fn never_hint(&self, now: Timestamp) -> Option<Micros> {
        let windows = self.windows();
        let of_windows = if self.counts_per_window() || self.is_ban() {
            windows.first().map(|window| window.bounds(now).1.since(now))
        } else {
            windows.iter().map(Window::period).max()
        };
        of_windows.or_else(|| self.hold().map(|hold| hold.ttl))
    }

    /// Returns `true` if hits are counted per window and end with it, all at once; `false` if they
    /// end one after the other.
    pub fn counts_per_window(&self) -> bool {
        match self.algorithm() {
            Algorithm::FixedWindow(_) => true,
            Algorithm::SlidingWindow(_)
            | Algorithm::SlidingLog(_)
            | Algorithm::Gcra(_)
            | Algorithm::Concurrency(_) => false,
        }
    }

    /// Returns `true` if the number of hits that still count is an estimate.
    pub fn is_estimated(&self) -> bool {
        self.weighted_buckets().is_some()
    }

    /// Returns the number of buckets of a period whose oldest one is weighted.
    pub fn weighted_buckets(&self) -> Option<u32> {
        match self.algorithm() {
            Algorithm::SlidingWindow(window) => {
                (window.estimate() == Estimate::Weighted).then(|| window.buckets())
            }
            Algorithm::FixedWindow(_)
            | Algorithm::SlidingLog(_)
            | Algorithm::Gcra(_)
            | Algorithm::Concurrency(_) => None,
        }
    }

    /// Returns the largest number of hits that a limit by the same algorithm may have.
    pub fn largest_limit(&self) -> u32 {
        match self.algorithm() {
            Algorithm::SlidingLog(_) => MAX_LOG_LIMIT,
            Algorithm::FixedWindow(_)
            | Algorithm::SlidingWindow(_)
            | Algorithm::Gcra(_)
            | Algorithm::Concurrency(_) => u32::MAX,
        }
    }

    /// Returns `true` if a counter can have more hits than the limit.
    pub fn counts_beyond_limit(&self) -> bool {
        match self.algorithm() {
            Algorithm::SlidingLog(_) => false,
            Algorithm::FixedWindow(_)
            | Algorithm::SlidingWindow(_)
            | Algorithm::Gcra(_)
            | Algorithm::Concurrency(_) => true,
        }
    }

    /// Returns `true` if capacity returns a hit at a time instead of window by window.
    pub fn refills_continuously(&self) -> bool {
        match self.algorithm() {
            Algorithm::Gcra(_) | Algorithm::Concurrency(_) => true,
            Algorithm::FixedWindow(_) | Algorithm::SlidingWindow(_) | Algorithm::SlidingLog(_) => {
                false
            }
        }
    }

    /// Returns the time after which a counter of a full limit is unused: its shortest period; for
    /// gcra the time in which its burst is refilled.
    pub fn refill_time(&self) -> Micros {
        let period = self.shortest_period().unwrap_or_default();
        match self.algorithm() {
            Algorithm::Gcra(gcra) => {
                let rate = self.windows().first().map_or(0, |window| window.limit());
                let refill = period.get().saturating_mul(gcra.burst().into());
                Micros::new(refill.checked_div(rate.into()).unwrap_or_default())
            }
            Algorithm::FixedWindow(_)
            | Algorithm::SlidingWindow(_)
            | Algorithm::SlidingLog(_)
            | Algorithm::Concurrency(_) => period,
        }
    }

    /// Returns the maximum number of hits admitted at one instant.
    pub fn at_once(&self) -> u32 {
        let least = self.windows().iter().map(|window| window.limit()).min().unwrap_or_default();
        match self.algorithm() {
            Algorithm::Gcra(gcra) => gcra.burst().min(if self.is_ban() { 0 } else { u32::MAX }),
            Algorithm::FixedWindow(_) | Algorithm::SlidingWindow(_) | Algorithm::SlidingLog(_) => {
                least
            }
            Algorithm::Concurrency(limit) => limit.in_flight(),
        }
    }

    /// Returns the shortest period of its windows; `None` for a limit without windows.
    pub fn shortest_period(&self) -> Option<Micros> {
        self.windows().iter().map(|window| window.period()).min()
    }

    /// Returns the time after which one hit fits, from that of a block of `hits` that does not fit
    /// now, although one hit does not either; `None` if that is not known.
    pub fn retry_of_one(&self, hits: u32, retry_after: Micros) -> Option<Micros> {
        let [window] = self.windows() else { return None };
        match self.algorithm() {
            Algorithm::FixedWindow(_) => Some(retry_after),
            Algorithm::Gcra(_) => {
                let others = hits.saturating_sub(1).into();
                let time = window.period().get().saturating_mul(others);
                Some(retry_after - Micros::new(time.div_ceil(window.limit().max(1).into())))
            }
            Algorithm::SlidingWindow(_) | Algorithm::SlidingLog(_) | Algorithm::Concurrency(_) => {
                None
            }
        }
    }

    /// Returns the times from `at` to the ends of the first and the last window of a fixed-window
    /// limit: hits charged at `at` may be admitted until the former, and count until the latter.
    pub fn windows_end_after(&self, at: Timestamp) -> Option<(Micros, Micros)> {
        match self.algorithm() {
            Algorithm::FixedWindow(_) => {
                let ends = self.windows().iter().map(|window| window.bounds(at).1.since(at));
                ends.clone().min().zip(ends.max())
            }
            Algorithm::SlidingWindow(_)
            | Algorithm::SlidingLog(_)
            | Algorithm::Gcra(_)
            | Algorithm::Concurrency(_) => None,
        }
    }

    /// Returns the limit with the charge mode of hits that are charged before they are lent.
    pub fn of_loans(&self) -> Self {
        self.charged(self.charge.of_loans())
    }

    /// Returns the limit with another charge mode.
    pub fn charged(&self, charge: Charge) -> Self {
        Self { charge, ..self.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::super::OnStoreError;
    use super::super::concurrency::Concurrency;
    use super::super::fixed_window::FixedWindow;
    use super::super::gcra::Gcra;
    use super::super::quota::Window;
    use super::super::sliding_log::SlidingLog;
    use super::super::sliding_window::SlidingWindow;
    use super::*;

    fn limit(algorithm: Algorithm) -> Limit {
        Limit::new(algorithm, Charge::Admitted, OnStoreError::Error).unwrap()
    }

    fn window(hits: u32, seconds: u64) -> Window {
        Window::new(hits, Micros::from_secs(seconds)).unwrap()
    }

    /// Returns a limit of 60 of each algorithm: windows, buckets strict and weighted, a log, a rate
    /// with its own burst, one without, and permits.
    fn limits() -> [Limit; 7] {
        let windows = || vec![window(60, 60), window(90, 120)];
        let sliding = |windows, estimate| SlidingWindow::new(windows, 6, estimate).unwrap();
        let rate = |burst| Gcra::new(window(60, 1), burst, None).unwrap();
        [
            Algorithm::FixedWindow(FixedWindow::new(windows()).unwrap()),
            Algorithm::SlidingWindow(sliding(windows(), Estimate::Strict)),
            Algorithm::SlidingWindow(sliding(vec![window(60, 60)], Estimate::Weighted)),
            Algorithm::SlidingLog(SlidingLog::new(windows()).unwrap()),
            Algorithm::Gcra(rate(Some(90))),
            Algorithm::Gcra(rate(None)),
            Algorithm::Concurrency(Concurrency::new(60).unwrap()),
        ]
        .map(limit)
    }

    #[test]
    fn each_algorithm_has_its_properties() {
        let words = limits().map(|limit| {
            let parts = [
                (limit.counts_per_window(), "per window"),
                (limit.is_estimated(), "estimated"),
                (limit.counts_beyond_limit(), "beyond"),
                (limit.refills_continuously(), "continuous"),
                (limit.is_of_a_second(), "second"),
            ];
            parts.into_iter().filter(|part| part.0).map(|part| part.1).collect::<Vec<_>>()
        });
        let expected: [&[&str]; 7] = [
            &["per window", "beyond"],
            &["beyond"],
            &["estimated", "beyond"],
            &[],
            &["beyond", "continuous", "second"],
            &["beyond", "continuous", "second"],
            &["beyond", "continuous"],
        ];
        assert_eq!(words, expected);
    }

    #[test]
    fn each_algorithm_has_its_numbers() {
        let most = u32::MAX;
        let numbers = limits().map(|limit| {
            let refill = limit.refill_time().get() / 1_000;
            (limit.at_once(), limit.largest_limit(), refill, limit.shortest_period())
        });
        let [second, minute] = [1, 60].map(|seconds| Some(Micros::from_secs(seconds)));
        let expected = [
            (60, most, 60_000, minute),
            (60, most, 60_000, minute),
            (60, most, 60_000, minute),
            (60, MAX_LOG_LIMIT, 60_000, minute),
            (90, most, 1_500, second),
            (60, most, 1_000, second),
            (60, most, 0, None),
        ];
        assert_eq!(numbers, expected);
        let [.., weighted, _, own_burst, burst, permits] = limits();
        assert_eq!(weighted.weighted_buckets(), Some(6));
        let Algorithm::Gcra(gcra) = own_burst.algorithm() else { panic!("{own_burst:?}") };
        assert_eq!((gcra.burst(), gcra.max_debt()), (90, 900));
        assert_eq!(own_burst.distinct_burst(), Some(90));
        assert_eq!([burst, permits].map(|limit| limit.distinct_burst()), [None; 2]);
    }

    #[test]
    fn each_algorithm_has_its_parameters() {
        let printed = |limit: &Limit| {
            let all = limit.algorithm().parameters();
            all.map(|one| format!("{} {}", one.name, one.value)).collect::<Vec<_>>()
        };
        let [windows, strict, weighted, log, own_burst, _, permits] = limits();
        assert_eq!([&windows, &log].map(printed), [[""; 0]; 2]);
        assert_eq!(printed(&strict), ["buckets 6", "estimate strict"]);
        assert_eq!(printed(&weighted), ["buckets 6", "estimate weighted"]);
        assert_eq!(printed(&own_burst), ["burst 90", "max_debt 900"]);
        assert_eq!(printed(&permits), ["in_flight 60"]);
    }
}
