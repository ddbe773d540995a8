//! Holds in the plan of a world: limits that keep them, and pieces of work that reserve, commit and
//! settle, also late, twice, in another order, or never.

use super::plan::{Part, PartHits, Plan, PlannedCall, VERSIONS};
use super::rules::{Counting, SimRule};
use crate::random::Random;

/// The settings of a limit that keeps holds.
#[derive(Clone, Debug)]
pub struct SimHold {
    /// Time to live in each version of the policy.
    pub ttls_us: Vec<u64>,
    /// `true` if a settle gives the hits back.
    pub releases: bool,
    /// Written as a token bucket.
    is_bucket: bool,
}

/// Ends that a piece of work sends, in their order: each call has a cost or none, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndCall {
    Commit,
    /// A commit with another cost than the one before.
    OtherCommit,
    Settle,
    /// A commit and a settle in one request, as a proxy sends them.
    Both,
}

/// The ends of a piece of work, each as often as it is listed.
const ENDS: [&[EndCall]; 14] = [
    &[],
    &[EndCall::Commit],
    &[EndCall::Commit],
    &[EndCall::Both],
    &[EndCall::Both],
    &[EndCall::Settle],
    &[EndCall::Settle],
    &[EndCall::Commit, EndCall::Commit],
    &[EndCall::Commit, EndCall::OtherCommit],
    &[EndCall::Commit, EndCall::Settle],
    &[EndCall::Settle, EndCall::Commit],
    &[EndCall::Settle, EndCall::Settle],
    &[EndCall::Both, EndCall::Both],
    &[EndCall::Commit, EndCall::Commit, EndCall::Settle],
];

impl SimHold {
    pub fn ttl_min(&self) -> u64 {
        self.ttls_us.iter().copied().min().unwrap()
    }

    pub fn ttl_max(&self) -> u64 {
        self.ttls_us.iter().copied().max().unwrap()
    }
}

impl SimRule {
    /// Returns a limit that keeps holds, whose settles give their hits back.
    pub fn holding(counting: Counting, amount: u32, ttl_us: u64) -> Self {
        let ttls_us = vec![ttl_us; VERSIONS];
        let hold = SimHold { ttls_us, releases: true, is_bucket: false };
        Self { counting, hold: Some(hold), ..Self::plain(amount) }
    }

    /// Lets the limit keep holds, or makes it one of concurrent requests.
    fn keep_holds(&mut self, random: &mut Random) {
        self.lease_us = None;
        self.last_counting = None;
        self.charge = "admitted";
        if random.percent(35) {
            self.counting = Counting::Permits;
        }
        // Small limits are often reached; at large ones, most work is admitted.
        let most = if self.counting == Counting::Permits { 10 } else { 40 };
        let by = *random.one_of(&[1, 1, 8]);
        for amount in &mut self.amounts {
            *amount = 2 + *amount % most * by;
        }
        let ttl = *random.one_of(&[1_000_000, 1_000_000, 2_000_000, 3_000_000, 20_000_000]);
        let mut ttls_us = vec![ttl; VERSIONS];
        if random.percent(20) {
            ttls_us[1] = ttl + 500_000;
        }
        let releases = random.percent(50);
        self.hold = Some(SimHold { ttls_us, releases, is_bucket: random.percent(50) });
    }

    /// Returns the limit as a policy has it, if it keeps holds.
    pub fn limit_with_holds(&self, version: usize) -> Option<String> {
        let hold = self.hold.as_ref()?;
        let amount = self.amounts[version];
        let on_store_error = self.on_store_error;
        let ttl = hold.ttls_us[version] / 1_000;
        if self.counting == Counting::Permits {
            return Some(format!(
                "algorithm: concurrency, in_flight: {amount}, on_store_error: {on_store_error}, \
                 hold: {{ ttl: {ttl}ms }}"
            ));
        }
        let algorithm = match self.counting {
            Counting::Fixed => "fixed_window",
            Counting::Sliding => "sliding_window",
            Counting::Log => "sliding_log",
            Counting::Gcra if hold.is_bucket => "token_bucket, max_debt: 10000",
            Counting::Gcra | Counting::Permits => "gcra, max_debt: 10000",
        };
        let on_settle = if hold.releases { "release" } else { "charge" };
        Some(format!(
            "algorithm: {algorithm}, requests_per_unit: {amount}, unit: {}ms, \
             on_store_error: {on_store_error}, hold: {{ ttl: {ttl}ms, on_settle: {on_settle} }}",
            self.period_us / 1_000
        ))
    }
}

impl Plan {
    /// Lets limits of the world keep holds. Half of the worlds have none.
    pub(super) fn draw_hold_rules(&mut self, random: &mut Random) {
        if self.seed.is_multiple_of(2) {
            return;
        }
        let first = random.below(self.rules.len());
        for (number, rule) in self.rules.iter_mut().enumerate() {
            if number == first || random.percent(60) {
                rule.keep_holds(random);
            }
        }
    }

    /// Draws the pieces of work of a world with holds, in addition to its other calls.
    pub(super) fn draw_works(&mut self, random: &mut Random) {
        if self.rules.iter().all(|rule| rule.hold.is_none()) {
            return;
        }
        // Other calls are fewer, so that there is room.
        let keeps = *random.one_of(&[0, 20, 50]);
        self.calls.retain(|_| random.percent(keeps));
        let most_hits = *random.one_of(&[1, 2, 4, 8]);
        let always = *random.one_of(&[0, 5, 30]);
        let hasty = *random.one_of(&[0, 0, 10, 40]);
        let strays = *random.one_of(&[0, 0, 5]);
        let repeats = *random.one_of(&[0, 0, 5]);
        for id in 0..20 + random.below(100) as u32 {
            let mut parts = self.reserves(random, id, most_hits);
            let reserved = self.call_of_work(random, 0, parts.clone());
            let at = reserved.at;
            let wait = *random.one_of(&[2, 20, 20, 200, 500, 3_000]);
            let mut end_at =
                at + reserved.timeout_us.min(30_000) + 1_000 * random.below(wait) as u64;
            if !random.percent(strays) {
                self.calls.push(reserved);
            }
            if random.percent(repeats) {
                let again = self.call_of_work(random, at + 40_000, parts.clone());
                self.calls.push(again);
            }
            if parts.len() > 1 && random.percent(10) {
                parts.pop();
            }
            let is_hasty = random.percent(hasty);
            if is_hasty {
                // While the reserve is under way, or its charge is being taken back.
                end_at = at + 1_000 * random.below(15) as u64;
            }
            let if_admitted = !is_hasty && !random.percent(always);
            let costs = [self.costs(random, &parts), self.costs(random, &parts)];
            for end in *random.one_of(&ENDS) {
                let ends = ends(random, *end, id, &parts, &costs, if_admitted);
                let call = self.call_of_work(random, end_at, ends);
                self.calls.push(call);
                let pause = *random.one_of(&[1, 20, 60, 300, 2_500]);
                end_at += 1_000 * random.below(pause + 1) as u64;
            }
        }
        self.calls.sort_by_key(|call| call.at);
        for (number, call) in self.calls.iter_mut().enumerate() {
            call.number = number;
        }
    }

    /// Draws the reserves of a piece of work, mostly at counters that keep holds.
    fn reserves(&self, random: &mut Random, id: u32, most_hits: usize) -> Vec<Part> {
        let mut parts: Vec<Part> = Vec::new();
        for _ in 0..*random.one_of(&[1, 1, 2, 2, 3]) {
            let counter = random.below(self.counters.len());
            if parts.iter().any(|part| part.counter == counter) {
                continue;
            }
            let rule = self.rule_of(counter);
            let hits = if rule.counting == Counting::Permits {
                1 + random.below(2)
            } else {
                1 + random.below(most_hits)
            };
            let hits = hits as u32;
            let hits = if rule.hold.is_some() {
                PartHits::Reserve { id, hits }
            } else {
                PartHits::Charge(hits)
            };
            parts.push(Part { counter, hits });
        }
        parts
    }

    /// Draws the final cost of each part: 0, less, as much, or more.
    fn costs(&self, random: &mut Random, parts: &[Part]) -> Vec<u32> {
        let cost = |part: &Part| match part.hits {
            PartHits::Reserve { hits, .. } => match random.below(10) {
                0 => 0,
                1..6 => random.below(hits as usize + 1) as u32,
                6..9 => hits,
                _ => hits + 1 + random.below(4) as u32,
            },
            PartHits::End { .. } | PartHits::Charge(_) | PartHits::Peek | PartHits::Refund(_) => 0,
        };
        parts.iter().map(cost).collect()
    }

    /// Draws a call at a moment; at 0: at any.
    fn call_of_work(&self, random: &mut Random, at: u64, parts: Vec<Part>) -> PlannedCall {
        let any = random.below(self.end as usize) as u64 / 1_000 * 1_000;
        let is_cancelled = random.percent(5);
        let cancel_after = 1_000 * random.below(12) as u64;
        PlannedCall {
            number: 0,
            at: if at == 0 { any } else { at },
            process: random.below(self.processes),
            worker: random.below(self.workers),
            parts,
            timeout_us: *random.one_of(&[15_000, 15_000, 50_000, 200_000]),
            cancel_after_us: is_cancelled.then_some(cancel_after),
        }
    }
}

/// Returns the parts of an end of a piece of work.
fn ends(
    random: &mut Random,
    end: EndCall,
    id: u32,
    parts: &[Part],
    costs: &[Vec<u32>; 2],
    if_admitted: bool,
) -> Vec<Part> {
    let mut ends = Vec::new();
    let reserves = parts.iter().enumerate();
    for (number, part) in reserves.filter(|(_, part)| matches!(part.hits, PartHits::Reserve { .. }))
    {
        let with_cost =
            |cost| Part { counter: part.counter, hits: PartHits::End { id, cost, if_admitted } };
        let cost = Some(costs[usize::from(end == EndCall::OtherCommit)][number]);
        match end {
            EndCall::Settle => ends.push(with_cost(None)),
            EndCall::Commit | EndCall::OtherCommit => ends.push(with_cost(cost)),
            EndCall::Both if random.percent(50) => ends.extend([with_cost(cost), with_cost(None)]),
            EndCall::Both => ends.extend([with_cost(None), with_cost(cost)]),
        }
    }
    ends
}
