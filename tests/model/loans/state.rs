//! Holders, loans and messages, and what is true of them.

use tollgate::algorithm::Limit;
use tollgate::algorithm::time::{Micros, Timestamp};

use super::super::{ModelCounter, START};
use super::{HOLDERS, INSTANTS, Loans, PERIOD, PolicyChange, REPLICAS, TROUBLED, VERSIONS};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct LoansState {
    /// Index of the current instant.
    pub(super) instant: usize,
    /// Microseconds that the clock of the troubled holder has lost.
    pub(super) lost_us: u8,
    pub(super) counters: Vec<ModelCounter>,
    /// Version of the policy of each replica.
    pub(super) versions: [usize; REPLICAS],
    pub(super) holders: [Holder; HOLDERS],
    pub(super) loans: Vec<Loan>,
    /// Numbers of the requests for blocks that are on their way from the troubled holder.
    pub(super) wants: Vec<u8>,
    /// Answers on their way to it.
    pub(super) answers: Vec<LoanAnswer>,
    /// Returns on their way from it.
    pub(super) returns: Vec<ReturnMessage>,
    pub(super) copies: u8,
    /// Hits that callers charged by themselves, by counter and instant.
    pub(super) direct: [[u8; INSTANTS]; VERSIONS],
    /// Hits admitted, by counter and instant.
    pub(super) admitted: [[u8; INSTANTS]; VERSIONS],
    /// Hits that holders had, or that were on their way, when each instant began: none of loans
    /// that are older than the longest loan.
    pub(super) lent_before: [u8; INSTANTS],
    /// Hits admitted, and lent under the lowered limit, when all knew it.
    pub(super) admitted_when_known: Option<u8>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Holder {
    pub(super) asks: u8,
    pub(super) asking: Option<Asking>,
    pub(super) blocks: Vec<HeldBlock>,
    /// Version of the policy in the latest answer.
    pub(super) heard: usize,
}

/// A request for a block that is not answered yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Asking {
    pub(super) number: u8,
    /// Instant of the holder's clock, in microseconds.
    pub(super) sent: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct HeldBlock {
    pub(super) loan: usize,
    pub(super) left: u8,
    /// First instant of the holder's clock at which it has ended.
    pub(super) end: u64,
}

/// A charge for a holder. The service keeps only its number, once it is returned; the rest is in
/// the receipt, or known only to the model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Loan {
    pub(super) charged: usize,
    pub(super) counter: usize,
    pub(super) version: usize,
    pub(super) usable_us: u64,
    /// Hits handed over.
    pub(super) hits: u8,
    /// Hits of the charge that are not handed over, until they are taken back.
    pub(super) excess: u8,
    pub(super) is_excess_under_way: bool,
    pub(super) is_charged: bool,
    pub(super) admitted: u8,
    pub(super) given_back: u8,
    pub(super) is_opened: bool,
    /// Set if its return was refused, or its answer came when it was not awaited.
    pub(super) is_lost: bool,
    /// Instant until which the store keeps its number.
    pub(super) kept_until: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct LoanAnswer {
    pub(super) number: u8,
    pub(super) version: usize,
    pub(super) loan: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ReturnMessage {
    pub(super) loan: usize,
    pub(super) unused: u8,
}

impl LoansState {
    pub(super) fn new(model: &Loans) -> Self {
        Self {
            instant: 0,
            lost_us: 0,
            counters: vec![ModelCounter(model.limits[0].unused()); model.counters()],
            versions: [0; REPLICAS],
            holders: Default::default(),
            loans: Vec::new(),
            wants: Vec::new(),
            answers: Vec::new(),
            returns: Vec::new(),
            copies: 0,
            direct: Default::default(),
            admitted: Default::default(),
            lent_before: Default::default(),
            admitted_when_known: None,
        }
    }

    /// Returns the replicas that differ.
    pub(super) fn replicas(&self) -> impl Iterator<Item = usize> + use<> {
        0..if self.versions[0] == self.versions[1] { 1 } else { REPLICAS }
    }

    /// Returns the time of a holder's clock.
    pub(super) fn clock(&self, model: &Loans, holder: usize) -> u64 {
        let lost = if holder == TROUBLED { self.lost_us } else { 0 };
        START + model.instants()[self.instant] - u64::from(lost)
    }

    /// Notes the hits admitted, and lent under the lowered limit, when all replicas have this limit
    /// and all holders have it from an answer or hold nothing.
    pub(super) fn learn_lowered(&mut self, model: &Loans) {
        let is_lowered = model.scope.change == PolicyChange::LowersLimit && model.in_fixed_windows;
        if !is_lowered || self.versions.contains(&0) || self.admitted_when_known.is_some() {
            return;
        }
        let is_awaited =
            |number| self.holders[TROUBLED].asking.is_some_and(|asking| asking.number == number);
        let is_old = |answer: &LoanAnswer| answer.version == 0 && is_awaited(answer.number);
        let knows = |holder: &Holder| holder.blocks.is_empty() || holder.heard > 0;
        if self.holders.iter().all(knows) && !self.answers.iter().any(is_old) {
            let held = self.holders.iter().flat_map(|holder| &holder.blocks);
            let held = held.map(|block| (block.loan, block.left));
            let awaited = self.answers.iter().filter(|answer| is_awaited(answer.number));
            let awaited = awaited.filter_map(|answer| answer.loan);
            let all = held.chain(awaited.map(|loan| (loan, self.loans[loan].hits)));
            let of_new = all.filter(|(loan, _)| self.loans[*loan].version > 0);
            let lent: u8 = of_new.map(|(_, hits)| hits).sum();
            self.admitted_when_known = Some(self.admitted_before_boundary() + lent);
        }
    }

    /// Returns the hits of the first counter that were admitted before the end of the window.
    pub(super) fn admitted_before_boundary(&self) -> u8 {
        let instants = super::AROUND_A_BOUNDARY.iter().zip(self.admitted[0]);
        instants.filter(|(at, _)| **at < PERIOD).map(|(_, hits)| hits).sum()
    }

    /// Returns `true` if no message is on its way, and no holder has hits.
    pub(super) fn is_quiet(&self) -> bool {
        self.wants.is_empty()
            && self.answers.is_empty()
            && self.returns.is_empty()
            && !self.loans.iter().any(|loan| loan.is_excess_under_way)
            && self.holders.iter().all(|one| one.asking.is_none() && one.blocks.is_empty())
    }

    /// Returns the hits that a counter should have.
    pub(super) fn charged(&self, model: &Loans, counter: usize) -> u64 {
        let counts = |at: usize| model.is_within(at, self.instant);
        let direct = self.direct[counter].iter().enumerate().filter(|(at, _)| counts(*at));
        let direct: u64 = direct.map(|(_, hits)| u64::from(*hits)).sum();
        let loans = self.loans.iter().filter(|loan| loan.counter == counter && loan.is_charged);
        let loans = loans.filter(|loan| counts(loan.charged));
        let hits = loans.map(|loan| (loan.hits + loan.excess).saturating_sub(loan.given_back));
        direct + hits.map(u64::from).sum::<u64>()
    }

    /// Returns the hits that a counter has.
    pub(super) fn used(&self, model: &Loans, counter: usize) -> u64 {
        used_at(&model.limits[0], &self.counters[counter], model.at(self.instant))
    }

    pub(super) fn used_a_period_later(&self, model: &Loans, counter: usize) -> u64 {
        let later = model.at(self.instant) + Micros::new(PERIOD);
        used_at(&model.limits[0], &self.counters[counter], later)
    }
}

fn used_at(limit: &Limit, counter: &ModelCounter, at: Timestamp) -> u64 {
    u64::from(super::AMOUNT) - limit.report(&counter.0, None, at).unwrap().remaining
}
