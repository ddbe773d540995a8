//! The plan of a world, drawn from its seed: servers, limits, calls, and faults with weights of its
//! own, so that rare meetings happen (swarm testing).

use std::fmt;

use super::plan_loans::LoanPlan;
use super::plan_proxies::{self, ProxyPlan};
use super::rules::SimRule;
use super::server::fleet::{Arrangement, Moment};
use crate::random::Random;

/// All that is decided before a world begins.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub arrangement: Arrangement,
    pub groups: usize,
    pub processes: usize,
    pub workers: usize,
    pub most_delay_ms: usize,
    pub deny_cache_ms: u64,
    /// Microseconds by which the clock of each process is ahead.
    pub skews_us: Vec<i64>,
    pub rules: Vec<SimRule>,
    /// The counters: the rule of each. Its value is its number.
    pub counters: Vec<usize>,
    pub calls: Vec<PlannedCall>,
    pub faults: Vec<(Moment, Fault)>,
    /// The holders of loans, if there are any.
    pub loans: Option<LoanPlan>,
    /// The proxies with RLQS, if there are any.
    pub proxies: Option<ProxyPlan>,
    /// The moment from which no fault acts.
    pub end: Moment,
}

/// A call that is to be made.
#[derive(Clone, Debug)]
pub struct PlannedCall {
    pub number: usize,
    pub at: Moment,
    pub process: usize,
    pub worker: usize,
    pub parts: Vec<Part>,
    pub timeout_us: u64,
    /// The caller goes away after this time.
    pub cancel_after_us: Option<u64>,
}

/// A descriptor of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    pub counter: usize,
    pub hits: PartHits,
}

/// The operation of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PartHits {
    Charge(u32),
    Peek,
    /// Gives back the hits of an earlier call that was admitted, if there is one.
    Refund(u32),
    /// A charge that is remembered by an ID.
    Reserve {
        id: u32,
        hits: u32,
    },
    /// A commit, or without a cost a settle. `if_admitted`: only if the reserve was admitted.
    End {
        id: u32,
        cost: Option<u32>,
        if_admitted: bool,
    },
}

/// A fault, or something that people do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    CutAll {
        server: usize,
    },
    CutOne {
        connection: usize,
        is_request: bool,
        bytes: usize,
    },
    Silence {
        process: usize,
        server: usize,
        us: u64,
    },
    Slow {
        process: usize,
        server: usize,
        us: u64,
        by_us: u64,
    },
    Flush {
        server: usize,
    },
    Restart {
        server: usize,
        us: u64,
        keeps_data: bool,
    },
    Hang {
        server: usize,
        us: u64,
    },
    Full {
        server: usize,
        us: u64,
    },
    Busy {
        server: usize,
        us: u64,
    },
    Loading {
        server: usize,
        us: u64,
    },
    Clock {
        server: usize,
        by_us: i64,
    },
    Lag {
        group: usize,
        us: u64,
    },
    Promote {
        group: usize,
        stale_us: u64,
    },
    /// Slots move, key by key until the last moment.
    MoveSlots {
        from: usize,
        to: usize,
        first: usize,
        us: u64,
    },
    Evict {
        server: usize,
        of: usize,
    },
    Crash {
        process: usize,
        us: u64,
    },
    Reload {
        process: usize,
        version: usize,
    },
    /// A process stops, and goes on after some time.
    Stop {
        process: usize,
        us: u64,
    },
    /// A holder of loans dies, and begins anew.
    EndHolder {
        holder: usize,
    },
    /// A holder of loans stops, and goes on after some time.
    StopHolder {
        holder: usize,
        us: u64,
    },
    /// A proxy dies, and begins anew.
    EndProxy {
        proxy: usize,
    },
    /// The stream of a proxy ends.
    CutStream {
        proxy: usize,
    },
    /// A proxy gives up its stream, of which the service hears nothing more.
    LoseStream {
        proxy: usize,
    },
    /// The stream of a proxy accepts nothing for some time.
    BlockStream {
        proxy: usize,
        us: u64,
    },
    /// A proxy stops, and goes on after some time.
    StopProxy {
        proxy: usize,
        us: u64,
    },
    /// An operator changes a counter.
    Amend {
        process: usize,
        counter: usize,
        change: Change,
    },
}

/// A change of a counter by an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    Reset,
    Refund { hits: u32 },
    Grant { hits: u32, us: u64 },
}

/// Number of kinds of faults.
const KINDS: usize = 20;
/// Versions of the policy: amounts that reloads change between.
pub const VERSIONS: usize = 3;

impl Plan {
    /// Draws the plan of a seed.
    pub fn of(seed: u64) -> Self {
        let mut random = Random(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
        let arrangement = *random.one_of(&[
            Arrangement::Single,
            Arrangement::Single,
            Arrangement::Sentinels,
            Arrangement::Cluster,
            Arrangement::Cluster,
        ]);
        let groups = if arrangement == Arrangement::Cluster { 2 + random.below(2) } else { 1 };
        let processes = 1 + random.below(3);
        let rules: Vec<SimRule> =
            (0..1 + random.below(4)).map(|_| SimRule::draw(&mut random)).collect();
        let counters = (0..rules.len() + random.below(4)).map(|number| number % rules.len());
        let mut plan = Self {
            seed,
            arrangement,
            groups,
            processes,
            workers: 1 + random.below(2),
            most_delay_ms: *random.one_of(&[0, 1, 1, 2, 5]),
            deny_cache_ms: *random.one_of(&[0, 1_000, 1_000]),
            skews_us: (0..processes).map(|_| signed(&mut random, 2_000_000)).collect(),
            counters: counters.collect(),
            rules,
            calls: Vec::new(),
            faults: Vec::new(),
            loans: None,
            proxies: None,
            end: 1_000_000 * (3 + random.below(4)) as u64,
        };
        plan.end = plan_proxies::end_of(seed).unwrap_or(plan.end);
        plan.draw_hold_rules(&mut random);
        plan.draw_calls(&mut random);
        plan.draw_works(&mut random);
        plan.draw_faults(&mut random);
        plan.draw_loans();
        plan.draw_proxies();
        plan
    }

    /// Draws the calls, in bursts and one by one.
    fn draw_calls(&mut self, random: &mut Random) {
        let count = 80 + random.below(240);
        let most_hits = *random.one_of(&[1, 2, 4, 8]);
        let cancelled = *random.one_of(&[0, 0, 5, 20]);
        let refunds = *random.one_of(&[0, 5, 20]);
        let several = *random.one_of(&[0, 20, 60]);
        let clustered = *random.one_of(&[0, 50, 90]);
        let mut at = 0;
        for number in 0..count {
            if !random.percent(clustered) {
                at = random.below(self.end as usize) as u64 / 1_000 * 1_000;
            }
            let mut parts: Vec<Part> = Vec::new();
            for _ in 0..if random.percent(several) { 2 + random.below(2) } else { 1 } {
                let counter = random.below(self.counters.len());
                if parts.iter().any(|part| part.counter == counter) {
                    continue;
                }
                let hits = 1 + random.below(most_hits) as u32;
                let hits = match random.below(100) {
                    draw if draw < refunds && self.rule_of(counter).is_refundable() => {
                        PartHits::Refund(hits)
                    }
                    99 => PartHits::Peek,
                    _ => PartHits::Charge(hits),
                };
                parts.push(Part { counter, hits });
            }
            let short = 3 + random.below(10);
            let timeout_ms = *random.one_of(&[15, 15, 15, 50, 200, short]);
            let cancel_after = random.percent(cancelled).then(|| 1_000 * random.below(12) as u64);
            self.calls.push(PlannedCall {
                number,
                at,
                process: random.below(self.processes),
                worker: random.below(self.workers),
                parts,
                timeout_us: 1_000 * timeout_ms as u64,
                cancel_after_us: cancel_after,
            });
        }
        self.calls.sort_by_key(|call| (call.at, call.number));
    }

    fn draw_faults(&mut self, random: &mut Random) {
        let weights: Vec<usize> =
            (0..KINDS).map(|_| if random.percent(30) { 1 + random.below(9) } else { 0 }).collect();
        let all: usize = weights.iter().sum();
        if all == 0 {
            return;
        }
        for _ in 0..random.below(14) {
            let mut draw = random.below(all);
            let kind = weights.iter().position(|weight| {
                let is_drawn = draw < *weight;
                draw = draw.saturating_sub(*weight);
                is_drawn
            });
            let at = random.below(self.end as usize) as u64 / 1_000 * 1_000;
            let fault = self.draw_fault(random, kind.unwrap(), self.end - at);
            self.faults.push((at, fault));
        }
        self.faults.sort_by_key(|(at, _)| *at);
    }

    /// Draws a fault of a kind that ends within `most_us`.
    fn draw_fault(&self, random: &mut Random, kind: usize, most_us: u64) -> Fault {
        let server = random.below(2 * self.groups);
        let process = random.below(self.processes);
        let group = random.below(self.groups);
        let ms = *random.one_of(&[5, 20, 50, 200, 800, 2_000]);
        let us = (1_000 * random.below(ms + 1) as u64).min(most_us);
        let is_request = random.percent(50);
        match kind {
            0 => Fault::CutAll { server },
            1 | 2 => Fault::CutOne {
                connection: random.below(1_000),
                is_request,
                bytes: random.below(*random_sizes(kind)),
            },
            3 => Fault::Silence { process, server, us },
            4 => Fault::Slow { process, server, us, by_us: 1_000 * random.below(40) as u64 },
            5 => Fault::Flush { server },
            6 => Fault::Restart { server, us, keeps_data: is_request },
            7 => Fault::Hang { server, us },
            8 => Fault::Full { server, us },
            9 => Fault::Busy { server, us },
            10 => Fault::Loading { server, us },
            11 => Fault::Clock { server, by_us: signed(random, 3_000_000) },
            12 => Fault::Lag { group, us: us / 10 },
            13 => Fault::Promote { group, stale_us: if is_request { us } else { 0 } },
            14 => Fault::Evict { server, of: 1 + random.below(4) },
            15 => Fault::Crash { process, us },
            16 if self.groups > 1 => {
                let to = (group + 1 + random.below(self.groups - 1)) % self.groups;
                let us = if random.percent(80) { us } else { 0 };
                Fault::MoveSlots { from: group, to, first: random.below(1_000), us }
            }
            16 => Fault::CutAll { server },
            17 => Fault::Reload { process, version: random.below(VERSIONS) },
            18 => Fault::Stop { process, us },
            _ => {
                let hits = 1 + random.below(20) as u32;
                let grant = Change::Grant { hits, us: 1_000 * (1 + random.below(3_000)) as u64 };
                let change = *random.one_of(&[Change::Reset, Change::Refund { hits }, grant]);
                Fault::Amend { process, counter: random.below(self.counters.len()), change }
            }
        }
    }

    /// Returns the rule of a counter.
    pub fn rule_of(&self, counter: usize) -> &SimRule {
        &self.rules[self.counters[counter]]
    }

    /// Returns the policy with the amounts of a version.
    pub fn policy(&self, version: usize) -> String {
        let rules = self.rules.iter().enumerate();
        let rules = rules.map(|(number, rule)| {
            format!("  - key: r{number}\n    rate_limit: {{ {} }}\n", rule.limit(version))
        });
        format!("domain: world\ndescriptors:\n{}", rules.collect::<String>())
    }
}

/// Returns the bound of the bytes that pass before a cut: within the first command, or anywhere.
fn random_sizes(kind: usize) -> &'static usize {
    if kind == 1 { &60 } else { &3_000 }
}

fn signed(random: &mut Random, most_us: i64) -> i64 {
    let us = random.below(2 * most_us as usize) as i64 - most_us;
    us / 1_000 * 1_000
}

impl fmt::Display for PlannedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, process, worker, .. } = self;
        write!(f, "call {number} at process {process}.{worker}")?;
        for Part { counter, hits } in &self.parts {
            write!(f, " c{counter}:{hits:?}")?;
        }
        Ok(())
    }
}
