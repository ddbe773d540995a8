//! Proxies with RLQS in the plan of a world: limits from which they get hits, their requests, and
//! what happens to them and their streams.

use super::plan::{Fault, Plan};
use super::rules::{Counting, LONG_US, SimRule};
use super::server::fleet::Moment;
use crate::random::Random;

/// Every eighth world has proxies: half of those with holders.
const WORLDS: (u64, u64) = (8, 6);
/// Shortest period of windows of which proxies hold hits.
const WINDOW_US: u64 = 30_000_000;

/// The proxies of a world.
#[derive(Clone, Debug, Default)]
pub struct ProxyPlan {
    pub count: usize,
    /// Requests, in their order.
    pub requests: Vec<PlannedRequest>,
    /// Percent of messages that arrive late, and by how many milliseconds at most: less than the
    /// guard.
    pub late: usize,
    pub late_ms: usize,
}

/// A request of one hit that a proxy decides.
#[derive(Clone, Copy, Debug)]
pub struct PlannedRequest {
    pub at: Moment,
    pub proxy: usize,
    pub counter: usize,
}

/// Returns the end of the faults of a world with proxies, whose reports and windows take longer
/// than other worlds.
pub(super) fn end_of(seed: u64) -> Option<Moment> {
    let (of, number) = WORLDS;
    (seed % of == number).then(|| 1_000_000 * (20 + seed / of % 30))
}

impl SimRule {
    /// Lets proxies hold hits of the limit.
    fn lend_to_proxies(&mut self, random: &mut Random) {
        self.quota_ttl_s = Some(7 + random.below(9) as u64);
        if self.period_us != LONG_US {
            self.period_us = WINDOW_US;
        }
        let has_gcra = [Some(self.counting), self.last_counting].contains(&Some(Counting::Gcra));
        if has_gcra {
            self.period_us = LONG_US;
        }
        self.charge = "admitted";
    }
}

impl Plan {
    /// Draws the proxies of a world, with numbers of their own.
    pub(super) fn draw_proxies(&mut self) {
        if end_of(self.seed).is_none() {
            return;
        }
        let mut random = Random(self.seed ^ 0x4715);
        let lending: Vec<usize> =
            (0..self.rules.len()).filter(|rule| self.rules[*rule].is_lent()).collect();
        let first = *random.one_of(&lending);
        for rule in lending {
            if rule == first || random.percent(50) {
                self.rules[rule].lend_to_proxies(&mut random);
            }
        }
        let has_quota = |counter: &usize| self.rule_of(*counter).quota_ttl_s.is_some();
        let counters: Vec<usize> = (0..self.counters.len()).filter(has_quota).collect();
        let mut proxies = ProxyPlan {
            count: 1 + random.below(3),
            requests: Vec::new(),
            late: *random.one_of(&[0, 5, 30]),
            late_ms: *random.one_of(&[20, 200, 1_100]),
        };
        let most_ms = *random.one_of(&[30, 80, 200]);
        let mut at = 0;
        let mut counter = *random.one_of(&counters);
        let mut proxy = 0;
        while at < self.end {
            if random.percent(3) {
                counter = *random.one_of(&counters);
                proxy = random.below(proxies.count);
            }
            let proxy = if random.percent(70) { proxy } else { random.below(proxies.count) };
            proxies.requests.push(PlannedRequest { at, proxy, counter });
            at += 1_000 * random.below(most_ms) as u64;
        }
        self.draw_proxy_faults(&mut random, proxies.count);
        self.proxies = Some(proxies);
    }

    fn draw_proxy_faults(&mut self, random: &mut Random, count: usize) {
        for _ in 0..*random.one_of(&[0, 0, 2, 5]) {
            let at = random.below(self.end as usize) as u64 / 1_000 * 1_000;
            let proxy = random.below(count);
            let us = 1_000 * random.below(3_000) as u64;
            let fault = match random.below(4) {
                0 => Fault::EndProxy { proxy },
                1 => Fault::CutStream { proxy },
                2 => Fault::LoseStream { proxy },
                _ => Fault::BlockStream { proxy, us },
            };
            self.faults.push((at, fault));
        }
        // One at most, since two that meet could be longer than the guard.
        for proxy in 0..count {
            if random.percent(20) {
                let at = random.below(self.end as usize) as u64 / 1_000 * 1_000;
                let us = 1_000 * random.below(800) as u64;
                self.faults.push((at, Fault::StopProxy { proxy, us }));
            }
        }
        self.faults.sort_by_key(|(at, _)| *at);
    }
}
