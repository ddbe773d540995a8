//! Hits in the hands of others: lent to clients until an instant, and to proxies until they report.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

use crate::count::Gauge;

/// Maximum number of ends of loans that are kept. A loan ends within a minute.
const MAX_ENDS: usize = 128;

/// Hits lent to clients and not reported, by the second since the epoch at which their time ends.
/// Hits that another process lent and this one takes back are below 0, so that the sum over all
/// processes is the number of hits that clients hold. Clones share their values.
#[derive(Clone, Debug, Default)]
pub struct ClientHits(Arc<Mutex<BTreeMap<u64, i64>>>);

/// Hits in the hands of one proxy, part of a gauge until dropped.
#[derive(Debug)]
pub struct ProxyHits {
    gauge: Gauge,
    hits: i64,
}

/// Hits of a rule in the hands of others, as this process knows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldHits {
    /// Held by clients of `LeaseService`.
    pub clients: i64,
    /// Held by proxies, by RLQS.
    pub proxies: i64,
}

impl ClientHits {
    /// Adds hits of a loan that ends at `end`, in seconds since the epoch.
    pub fn lend(&self, end: u64, hits: u64) {
        self.add(end, signed(hits));
    }

    /// Subtracts hits of a loan that ends at `end`.
    pub fn take_back(&self, end: u64, hits: u64) {
        self.add(end, -signed(hits));
    }

    fn add(&self, end: u64, hits: i64) {
        let mut ends = self.0.lock();
        let held = ends.entry(end).or_default();
        *held = held.saturating_add(hits);
        while ends.len() > MAX_ENDS {
            ends.pop_first();
        }
    }

    /// Returns the hits of loans that end after `now`, in seconds since the epoch.
    fn held_at(&self, now: u64) -> i64 {
        self.0.lock().range(now + 1..).fold(0, |sum, (_, hits)| sum.saturating_add(*hits))
    }

    /// Returns the hits of loans that have not ended by the clock of this machine.
    pub(super) fn held(&self) -> i64 {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.held_at(now.as_secs())
    }
}

impl ProxyHits {
    /// Creates a part of 0.
    pub(super) fn of(gauge: Gauge) -> Self {
        Self { gauge, hits: 0 }
    }

    /// Replaces the number of hits.
    pub fn set(&mut self, hits: u64) {
        let hits = signed(hits);
        self.gauge.inc_by(hits - self.hits);
        self.hits = hits;
    }
}

impl Drop for ProxyHits {
    fn drop(&mut self) {
        self.set(0);
    }
}

fn signed(hits: u64) -> i64 {
    i64::try_from(hits).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_hold_hits_until_they_report_or_their_time_ends() {
        let hits = ClientHits::default();
        hits.lend(60, 100);
        hits.lend(61, 50);
        assert_eq!(hits.held_at(59), 150);
        hits.take_back(61, 20);
        assert_eq!([59, 60, 61].map(|now| hits.held_at(now)), [130, 30, 0]);
        (0..1_000).for_each(|end| hits.lend(end, 1));
        assert_eq!(hits.0.lock().len(), MAX_ENDS);
    }

    #[test]
    fn what_another_process_lent_is_below_zero() {
        let [lender, other] = [ClientHits::default(), ClientHits::default()];
        lender.lend(60, 100);
        other.take_back(60, 40);
        assert_eq!(lender.held_at(0) + other.held_at(0), 60);
    }

    #[test]
    fn the_hits_of_a_proxy_leave_the_gauge_with_it() {
        let gauge = Gauge::default();
        let [mut first, mut second] = [(); 2].map(|()| ProxyHits::of(gauge.clone()));
        first.set(100);
        second.set(10);
        first.set(70);
        assert_eq!(gauge.get(), 80);
        drop(first);
        assert_eq!(gauge.get(), 10);
    }
}
