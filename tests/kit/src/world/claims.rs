//! A counter's part of a history: certain charges, and possible ones.

use super::checker::moves_clock_ahead;
use super::history::{CallRecord, Ending, PartStatus};
use super::plan::{Change, Fault, Part, PartHits};
use super::process::value_of;
use super::rules::{Counting, SimRule};
use super::run::Report;
use super::server::fleet::Moment;

/// Time after a call's deadline for which a charge may stand that is taken back.
pub(super) const TAKEN_BACK_WITHIN_US: u64 = 2_100_000;
/// Blocks of a key that a worker may have charged: two that it holds, and one that arrives.
const BLOCKS: u64 = 3;
/// A block is at most this part of the remaining hits.
const NEAR: u64 = 16;

/// Hits of one call.
#[derive(Clone, Copy, Debug)]
pub enum Claim {
    /// Admitted by the store between two moments.
    Admitted { hits: u64, begun: Moment, ended: Moment },
    /// May have been charged: from a moment on, until another one at the latest.
    Possible { hits: u64, begun: Moment, until: Option<Moment> },
    /// Lent to a holder, which admitted a part: charged from a moment on, and the rest until
    /// another one at the latest.
    Lent { hits: u64, admitted: u64, begun: Moment, until: Option<Moment> },
    /// May have been charged for a loan, which is a claim of its own, or until a moment.
    Transient { hits: u64, begun: Moment, until: Option<Moment> },
    /// Given back; `true` if that is certain.
    Refunded { hits: u64, begun: Moment, ended: Moment, is_certain: bool, process: usize },
}

/// A counter's part of a history.
pub struct CounterHistory<'a> {
    pub report: &'a Report,
    pub counter: usize,
    pub claims: Vec<Claim>,
    pub losses: u64,
}

impl<'a> CounterHistory<'a> {
    /// Reads a counter's part of a history.
    pub fn of(report: &'a Report, counter: usize) -> Self {
        let value = value_of(counter);
        let is_own =
            |key: &Vec<u8>| key.windows(value.len()).any(|bytes| bytes == value.as_bytes());
        let losses = report.losses.iter().filter(|loss| loss.keys.iter().any(is_own)).count();
        let mut history = Self { report, counter, claims: Vec::new(), losses: losses as u64 };
        for record in &report.chronicle.calls {
            for (number, part) in record.call.parts.iter().enumerate() {
                let is_of_hold =
                    matches!(part.hits, PartHits::Reserve { .. } | PartHits::End { .. });
                if part.counter == counter && !is_of_hold {
                    history.claims.extend(history.claim(record, number, part));
                }
            }
        }
        history.claims.extend(history.claims_of_loans());
        history
    }

    /// Returns the claim of a part of a call; `None` if it certainly left no trace. The end of a
    /// hold claims nothing, see `holds`.
    pub fn claim(&self, record: &CallRecord, number: usize, part: &Part) -> Option<Claim> {
        let CallRecord { call, begun, ended, ending } = record;
        let begun = *begun;
        let ended = *ended;
        let hits = match part.hits {
            PartHits::Peek | PartHits::End { .. } => return None,
            PartHits::Charge(hits) | PartHits::Reserve { hits, .. } => u64::from(hits),
            PartHits::Refund(hits) => {
                let is_judged = matches!(
                    ending,
                    Ending::Decided(_, statuses) if statuses[number].left.is_some()
                );
                let is_certain = is_judged && !self.report.has_just_promoted(ended);
                let hits = hits.into();
                let process = call.process;
                return Some(Claim::Refunded { hits, begun, ended, is_certain, process });
            }
        };
        let forever = Claim::Possible { hits, begun, until: None };
        // Known charges of a request that is not admitted are taken back.
        let until = begun + call.timeout_us + TAKEN_BACK_WITHIN_US + self.stops_us();
        // `always` also charges requests that end in an error.
        let is_gone = self.report.take_backs_lost == 0 && self.rule().charge != "always";
        let tentative = Claim::Possible { hits, begun, until: is_gone.then_some(until) };
        let is_known = self.report.unknown_charges == 0 && self.report.crashes == 0;
        let may_be_unknown = if is_known { tentative } else { forever };
        match ending {
            Ending::Cancelled if is_known && self.is_refused_elsewhere(record) => Some(tentative),
            Ending::Cancelled => Some(forever),
            Ending::Failed("late" | "lost") => Some(forever),
            Ending::Failed(_) => (call.parts.len() > 1).then_some(may_be_unknown),
            Ending::Decided(is_over, statuses) => {
                let PartStatus { left, standing, .. } = statuses[number];
                let is_judged = left.is_some();
                match (standing, *is_over) {
                    ("allowed", false) if is_judged => Some(Claim::Admitted { hits, begun, ended }),
                    // A process that decides alone may have charged the store before.
                    _ if !is_judged || self.rule().charge == "always" || self.rule().is_local() => {
                        Some(forever)
                    }
                    ("allowed", true) if call.parts.len() > 1 => Some(tentative),
                    _ => None,
                }
            }
        }
    }

    /// Returns `true` if another counter of a cancelled call certainly did not count its hits: then
    /// the request was not admitted, and none may.
    fn is_refused_elsewhere(&self, record: &CallRecord) -> bool {
        let is_refused = |part: &Part| {
            let rule = self.report.plan.rule_of(part.counter);
            let is_exact = rule.is_long()
                && rule.hold.is_none()
                && rule.counting != Counting::Gcra
                && rule.lease_us.is_none()
                && rule.on_store_error == "error"
                && rule.charge == "admitted"
                && self.report.losses.is_empty()
                && !self.report.is_changed(part.counter)
                && self.report.shapes(rule) == 1;
            let charged = self.report.certainly_charged(part.counter);
            is_exact
                && matches!(part.hits, PartHits::Charge(_))
                && self.report.used[part.counter].is_some_and(|used| charged == Some(used))
        };
        record.call.parts.iter().any(is_refused)
    }

    /// Returns the limit.
    pub fn rule(&self) -> &'a SimRule {
        self.report.plan.rule_of(self.counter)
    }

    /// Returns the amounts that were in force at any process at any time.
    fn amounts(&self) -> impl Iterator<Item = u64> {
        self.report.versions().map(|version| self.rule().amounts[version].into())
    }

    /// Returns `true` if a version of the policy counts by gcra.
    pub fn has_gcra(&self) -> bool {
        let rule = self.rule();
        [Some(rule.counting), rule.last_counting].contains(&Some(Counting::Gcra))
    }

    /// Returns the number of algorithms that were in force: each counts by itself.
    pub fn shapes(&self) -> u64 {
        self.report.shapes(self.rule())
    }

    /// Returns the highest amount that was in force.
    pub fn limit_max(&self) -> u64 {
        self.amounts().max().unwrap()
    }

    /// Returns the lowest amount that was in force.
    pub fn limit_min(&self) -> u64 {
        self.amounts().min().unwrap()
    }

    /// Returns the hits that lost writes allow: the limit once more for each loss, of each
    /// algorithm that was in force.
    pub fn allowed_for_losses(&self) -> u64 {
        self.losses * self.shapes() * self.limit_max()
    }

    /// Returns the time for which processes were stopped, at most.
    pub fn stops_us(&self) -> u64 {
        let stops = self.report.chronicle.faults.iter().map(|(_, fault)| match fault {
            Fault::Stop { us, .. } => *us,
            _ => 0,
        });
        stops.sum()
    }

    /// Returns the hits that all processes may admit alone: the limit, and a share once more for
    /// each process that lost its memory.
    pub fn shares(&self) -> u64 {
        if !self.rule().is_local() || self.report.decided_alone == 0 {
            return 0;
        }
        let largest_share = self.limit_max().div_ceil(self.report.plan.processes as u64);
        self.shapes() * (self.limit_max() + self.report.crashes * largest_share)
    }

    /// Returns the hits of blocks that all workers may hold.
    pub fn blocks(&self) -> u64 {
        self.blocks_of(self.report.plan.processes as u64 + self.report.crashes)
    }

    fn blocks_of(&self, processes: u64) -> u64 {
        if !self.rule().is_leased() {
            return 0;
        }
        self.shapes() * processes * self.report.plan.workers as u64 * BLOCKS * self.limit_max()
            / NEAR
    }

    /// Returns `true` if all servers' clocks agree.
    pub fn clocks_agree(&self) -> bool {
        let mut faults = self.report.chronicle.faults.iter();
        !faults.any(|(_, fault)| matches!(fault, Fault::Clock { .. }))
    }

    /// Returns the number of events that may move the clock of the counter ahead.
    pub fn clock_events(&self) -> u64 {
        let faults = self.report.chronicle.faults.iter();
        let ahead = faults.filter(|(_, fault)| moves_clock_ahead(fault)).count() as u64;
        if self.clocks_agree() { 0 } else { ahead }
    }

    /// Returns the admitted hits, with the moments between which they were charged.
    pub fn admitted(&self) -> Vec<(Moment, Moment, u64)> {
        let admitted = self.claims.iter().filter_map(|claim| match *claim {
            Claim::Admitted { hits, begun, ended } => Some((begun, ended, hits)),
            Claim::Possible { .. }
            | Claim::Lent { .. }
            | Claim::Transient { .. }
            | Claim::Refunded { .. } => None,
        });
        admitted.collect()
    }

    /// Returns the longest lag of a replica, with the longest time for which a server that is a
    /// master no more may have answered: until its clients notice, it denies by its own data.
    pub fn lag_us(&self) -> u64 {
        let lags = self.report.chronicle.faults.iter().map(|(_, fault)| match fault {
            Fault::Lag { us, .. } => *us,
            Fault::Promote { stale_us, .. } => *stale_us,
            _ => 0,
        });
        lags.max().unwrap_or_default() + 2_000 + self.stops_us()
    }

    /// Returns the error of a count: gcra counts in time, and rescales it when amounts change.
    pub fn rounding(&self) -> u64 {
        let is_reload = |fault: &&(Moment, Fault)| matches!(fault.1, Fault::Reload { .. });
        match self.rule().counting {
            Counting::Gcra => {
                1 + self.report.chronicle.faults.iter().filter(is_reload).count() as u64
            }
            Counting::Fixed | Counting::Sliding | Counting::Log | Counting::Permits => 0,
        }
    }

    /// Returns the fewest and the most hits that the store may count after quiet.
    pub fn expected(&self) -> (u64, u64) {
        let mut admitted = 0;
        let mut possible = 0;
        let mut refunded = 0;
        let mut maybe_refunded = 0;
        for claim in &self.claims {
            match *claim {
                Claim::Admitted { hits, .. } => admitted += hits,
                Claim::Possible { hits, until: None, .. } => possible += hits,
                Claim::Possible { hits, begun, until: Some(until) }
                | Claim::Transient { hits, begun, until: Some(until) } => {
                    if self.losses > 0 || self.is_refunded_between(begun, until) {
                        possible += hits;
                    }
                }
                // Counted as lost.
                Claim::Transient { until: None, .. } => {}
                Claim::Lent { hits, admitted, begun, until } => {
                    let is_returned =
                        until.is_some_and(|until| !self.is_refunded_between(begun, until));
                    if self.losses > 0 || !is_returned {
                        possible += hits.saturating_sub(admitted);
                    }
                }
                Claim::Refunded { hits, is_certain: true, .. } => refunded += hits,
                Claim::Refunded { hits, is_certain: false, .. } => maybe_refunded += hits,
            }
        }
        let mut most = admitted + possible;
        // A refund that was lost, or of hits that were lost, takes nothing.
        if self.losses == 0 && self.shapes() == 1 {
            most = most.saturating_sub(refunded);
        }
        most += self.drained();
        if self.rule().is_lent() {
            most += self.report.loans_lost + self.of_proxies();
            if self.losses == 0 {
                most = most.saturating_sub(self.returned_by_proxies());
            }
        }
        if self.rule().lease_us.is_some() {
            most += self.report.leases_lost + self.blocks_of(self.report.crashes);
            // As with a take-back: a refund may have taken the hits of a block.
            most += refunded + maybe_refunded;
            // A server may have lost the write that gave a block back.
            if self.losses > 0 {
                most += self.blocks();
            }
        }
        let is_counted = self.losses == 0 && !self.rule().is_local();
        let changed = self.allowed_for_changes();
        let least = admitted.saturating_sub(refunded + maybe_refunded + changed);
        let is_reset = self.changes().any(|change| change == Change::Reset);
        let least = if is_counted && !is_reset && self.shapes() == 1 { least } else { 0 };
        (least, most)
    }

    /// Returns the hits that take-backs leave: by gcra, those of the charge that may have drained
    /// since, though others have instead.
    fn drained(&self) -> u64 {
        if !self.has_gcra() {
            return 0;
        }
        let taken_back = self.claims.iter().filter_map(|claim| match *claim {
            Claim::Lent { hits, admitted, begun, until } if hits > admitted => {
                Some(until.unwrap_or(self.report.ended).saturating_sub(begun))
            }
            Claim::Possible { begun, until, .. } | Claim::Transient { begun, until, .. } => {
                Some(until?.saturating_sub(begun))
            }
            Claim::Lent { .. } | Claim::Admitted { .. } | Claim::Refunded { .. } => None,
        });
        (taken_back.sum::<u64>() * self.limit_max()).div_ceil(self.rule().period_us)
    }

    /// Returns `true` if a refund was on its way between two moments. It may have taken the hits of
    /// a charge that was to be taken back: then the take-back finds nothing.
    fn is_refunded_between(&self, from: Moment, to: Moment) -> bool {
        let is_refund = |change: Change| matches!(change, Change::Refund { .. });
        self.changes().any(is_refund)
            || self.claims.iter().any(|claim| match *claim {
                Claim::Refunded { begun, ended, .. } => begun <= to && ended >= from,
                Claim::Admitted { .. }
                | Claim::Possible { .. }
                | Claim::Lent { .. }
                | Claim::Transient { .. } => false,
            })
    }

    /// Returns the most hits that the store may have counted at a moment between two.
    /// A process knows of its own refunds at once: those before `own`, with the process.
    pub fn most_counted(&self, from: Moment, to: Moment, own: (Moment, usize)) -> u64 {
        let rule = self.rule();
        // A sliding window counts its oldest bucket whole.
        let period = rule.period_us + rule.period_us / 50;
        let since = if rule.is_long() { 0 } else { from.saturating_sub(period) };
        // gcra counts hits since it was last unused, which may be long ago.
        let since = if self.has_gcra() { 0 } else { since };
        let mut counted = self.blocks() + self.of_proxies();
        if rule.lease_us.is_some() {
            counted += self.report.leases_lost + self.report.loans_lost;
        }
        for claim in &self.claims {
            match *claim {
                Claim::Admitted { hits, begun, ended } if begun <= to && ended >= since => {
                    counted += hits;
                }
                Claim::Possible { hits, begun, until }
                | Claim::Lent { hits, begun, until, .. }
                | Claim::Transient { hits, begun, until }
                    if begun <= to
                        && until.is_none_or(|until| {
                            until >= from || self.is_refunded_between(begun, until)
                        }) =>
                {
                    counted += hits;
                }
                Claim::Refunded { hits, ended, is_certain: true, process, .. }
                    if self.losses == 0
                        && self.shapes() == 1
                        && (ended + self.lag_us() < from
                            || process == own.1 && ended + self.lag_us() < own.0) =>
                {
                    counted = counted.saturating_sub(hits);
                }
                _ => {}
            }
        }
        counted
    }
}
