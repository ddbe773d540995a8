//! Loans in the plan of a world: limits that lend to holders outside of the processes, the requests
//! that holders decide, and what happens to holders and their messages.

use super::plan::{Change, Fault, Plan};
use super::rules::{LeaseHolders, SimRule};
use super::server::fleet::Moment;
use crate::random::Random;

/// Every fourth world has holders: one of those without holds.
const WORLDS: (u64, u64) = (4, 2);

/// The holders of a world.
#[derive(Clone, Debug, Default)]
pub struct LoanPlan {
    /// Parts in a million by which the clock of each holder is fast; slow if negative.
    pub rates: Vec<i64>,
    /// Requests that holders decide, in their order.
    pub uses: Vec<PlannedUse>,
    pub fates: MessageFates,
}

/// A request that a holder decides.
#[derive(Clone, Copy, Debug)]
pub struct PlannedUse {
    pub at: Moment,
    pub holder: usize,
    pub counter: usize,
    pub action: HolderAction,
}

/// The action of a holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HolderAction {
    /// Takes hits from a block, if one has as many.
    Take(u32),
    /// Takes hits, and puts them back, since another limit of the request denies it.
    TakeAndPutBack(u32),
    /// Returns its blocks before they end, and begins anew.
    Return,
}

/// Fates of messages between holders and processes, in percent.
#[derive(Clone, Copy, Debug, Default)]
pub struct MessageFates {
    pub lost_requests: usize,
    pub lost_replies: usize,
    /// Requests that arrive twice, also at two processes.
    pub repeated: usize,
    /// Returns that name another counter before they name their own.
    pub misdirected: usize,
    /// Messages that arrive late, and by how many milliseconds at most.
    pub late: usize,
    pub late_ms: usize,
}

impl SimRule {
    /// Lets the limit lend hits.
    pub fn lend(&mut self, random: &mut Random) {
        let ttl = 100_000 * (1 + random.below(10)) as u64;
        self.lease_us = self.lease_us.or(Some(ttl));
        self.lease_holders = *random.one_of(&[LeaseHolders::Clients, LeaseHolders::All]);
        let times = *random.one_of(&[1, 1, 2]);
        for amount in &mut self.amounts {
            // Some amounts stay so low that nothing is lent.
            if random.percent(90) {
                *amount = 80 + *amount * times;
            }
        }
    }
}

impl Plan {
    /// Draws the holders of a world, with numbers of their own: other worlds stay as they are.
    pub(super) fn draw_loans(&mut self) {
        let (of, number) = WORLDS;
        if self.seed % of != number {
            return;
        }
        let mut random = Random(self.seed ^ 0x10a2);
        let first = random.below(self.rules.len());
        for (number, rule) in self.rules.iter_mut().enumerate() {
            if number == first || random.percent(50) {
                rule.lend(&mut random);
            }
        }
        let lending = (0..self.counters.len()).filter(|counter| self.rule_of(*counter).is_lent());
        let lending: Vec<usize> = lending.collect();
        let rates = |_| *random.one_of(&[-1_000, -1_000, 0, 0, 100_000]);
        let mut loans = LoanPlan {
            rates: (0..3).map(rates).collect(),
            fates: MessageFates {
                lost_requests: *random.one_of(&[0, 0, 5, 20]),
                lost_replies: *random.one_of(&[0, 0, 5, 20]),
                repeated: *random.one_of(&[0, 10, 40]),
                misdirected: *random.one_of(&[0, 0, 20]),
                late: *random.one_of(&[0, 5, 20]),
                late_ms: *random.one_of(&[20, 200, 1_500]),
            },
            uses: Vec::new(),
        };
        loans.rates.truncate(1 + random.below(3));
        self.draw_uses(&mut random, &lending, &mut loans);
        self.draw_holder_faults(&mut random, loans.rates.len());
        self.draw_large_grants(&mut random, &lending);
        self.loans = Some(loans);
    }

    fn draw_uses(&self, random: &mut Random, lending: &[usize], loans: &mut LoanPlan) {
        let most_hits = *random.one_of(&[1, 2, 4, 8]);
        let clustered = *random.one_of(&[50, 90, 98]);
        let put_back = *random.one_of(&[0, 5, 20]);
        let returned = *random.one_of(&[0, 2, 10]);
        let mut counter = *random.one_of(lending);
        let mut at = 0;
        for _ in 0..200 + random.below(800) {
            if random.percent(clustered) {
                at = (at + 1_000 * random.below(8) as u64).min(self.end - 1_000);
            } else {
                at = random.below(self.end as usize) as u64 / 1_000 * 1_000;
                counter = *random.one_of(lending);
            }
            let hits = 1 + random.below(most_hits) as u32;
            let action = match random.below(100) {
                draw if draw < put_back => HolderAction::TakeAndPutBack(hits),
                draw if draw < put_back + returned => HolderAction::Return,
                _ => HolderAction::Take(hits),
            };
            let holder = random.below(loans.rates.len());
            loans.uses.push(PlannedUse { at, holder, counter, action });
        }
        loans.uses.sort_by_key(|one| one.at);
    }

    fn draw_holder_faults(&mut self, random: &mut Random, holders: usize) {
        for _ in 0..*random.one_of(&[0, 1, 2, 4]) {
            let at = random.below(self.end as usize) as u64 / 1_000 * 1_000;
            let holder = random.below(holders);
            let ms = *random.one_of(&[20, 200, 2_000]);
            let us = (1_000 * random.below(ms + 1) as u64).min(self.end - at);
            let fault = if random.percent(50) {
                Fault::EndHolder { holder }
            } else {
                Fault::StopHolder { holder, us }
            };
            self.faults.push((at, fault));
        }
        self.faults.sort_by_key(|(at, _)| *at);
    }

    /// Draws grants that are large enough for blocks of them, which are never lent.
    fn draw_large_grants(&mut self, random: &mut Random, lending: &[usize]) {
        if !random.percent(25) {
            return;
        }
        for _ in 0..1 + random.below(4) {
            let at = random.below(self.end as usize) as u64 / 1_000 * 1_000;
            let process = random.below(self.processes);
            let counter = *random.one_of(lending);
            let hits = 100 + random.below(900) as u32;
            let change = Change::Grant { hits, us: 1_000 * (1 + random.below(3_000)) as u64 };
            self.faults.push((at, Fault::Amend { process, counter, change }));
        }
        self.faults.sort_by_key(|(at, _)| *at);
    }
}
