//! Division of the remaining hits of a counter between the proxies that want some.
//!
//! Idea: water-filling. All wants are met up to one level, such that they sum to the remaining
//! hits; no proxy gets less than another that wants as much. Example: 100 remain, and 10, 50 and 90
//! are wanted: the level is 45, and the proxies get 10, 45 and 45.
//!
//! The wants of other proxies are those of their latest reports, less what they hold.

use std::collections::HashMap;

use parking_lot::Mutex;

/// The wants of all proxies of the process, by counter.
#[derive(Debug, Default)]
pub struct WantTable(Mutex<HashMap<u64, Vec<ProxyWant>>>);

/// The hits that a proxy wants of a counter, beyond those that it holds.
#[derive(Clone, Copy, Debug)]
struct ProxyWant {
    stream: u64,
    hits: u64,
}

impl WantTable {
    /// Records that a stream wants hits of a counter.
    pub fn set(&self, counter: u64, stream: u64, hits: u64) {
        let mut table = self.0.lock();
        let wants = table.entry(counter).or_default();
        match wants.iter_mut().find(|want| want.stream == stream) {
            Some(want) => want.hits = hits,
            None => wants.push(ProxyWant { stream, hits }),
        }
    }

    /// Removes the want of a stream.
    pub fn remove(&self, counter: u64, stream: u64) {
        let mut table = self.0.lock();
        if let Some(wants) = table.get_mut(&counter) {
            wants.retain(|want| want.stream != stream);
            if wants.is_empty() {
                table.remove(&counter);
            }
        }
    }

    /// Returns the share of a stream that wants `hits` if `remaining` are left for all.
    pub fn share(&self, counter: u64, stream: u64, hits: u64, remaining: u64) -> u64 {
        let table = self.0.lock();
        let others = table.get(&counter).into_iter().flatten();
        let others = others.filter(|want| want.stream != stream).map(|want| want.hits);
        share(hits, others.collect(), remaining)
    }

    /// Returns the number of counters.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.lock().len()
    }
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
        if other > level || other > wanted {
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
    }

    #[test]
    fn a_stream_that_is_gone_leaves_nothing() {
        let table = WantTable::default();
        table.set(1, 7, 100);
        table.set(1, 8, 100);
        assert_eq!(table.share(1, 7, 100, 100), 50);
        table.remove(1, 8);
        assert_eq!(table.share(1, 7, 100, 100), 100);
        table.remove(1, 7);
        assert_eq!(table.len(), 0);
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
