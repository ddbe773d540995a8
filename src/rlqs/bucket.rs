//! One bucket of one proxy: its terms by policy, the assignment that the proxy has, and the next
//! step.
//!
//! A proxy without an assignment, or with one that has expired, applies its own configuration. So
//! each bucket gets one, renewed before it ends: ALLOW_ALL, DENY_ALL, or a loan, which is a token
//! bucket with exactly the hits that were charged and that is never refilled.

use std::time::{Duration, Instant};

use super::demand::Demand;
use super::ledger::{LoanLedger, Settlement};
use super::share::ProxyWant;
use super::terms::{
    Assignment, Blanket, BucketTerms, BucketUsage, ChargedLoan, LentTerms, Reported, WantResult,
};
use super::ttl::{BLANKET_TTL, DENIAL_TTL, FAILURE_TTL, denial_ttl, loan_ttl};
use super::{DELAY, HORIZON, QuotaOptions, REPORT_INTERVAL, after};
use crate::algorithm::Receipt;
use crate::algorithm::time::{Micros, Timestamp};

/// An assignment that ends within this time is renewed: the next report may be later.
const RENEWAL: Duration = Duration::from_secs(6);
/// Shortest time after which a counter without remaining hits is tried again.
const SHORTEST_RETRY: Duration = Duration::from_secs(1);
/// Time after which a step is repeated that found no room for its response.
const POSTPONED: Duration = Duration::from_millis(100);
/// Idle reports after which a bucket gets no more hits, and after which it is abandoned.
const IDLE_REPORTS: u32 = 6;
const ABANDON_REPORTS: u32 = 14;
/// Divisors of the limit for the first loan, and of the size of a loan for an idle bucket.
const FIRST_PART: u32 = 20;
const IDLE_PART: u32 = 10;

/// The next step of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BucketStep {
    /// Nothing.
    Nothing,
    /// Send an assignment.
    Assign(Assignment),
    /// Charge up to this many hits, and report the result.
    Want(u32),
    /// Tell the proxy to forget the bucket.
    Abandon,
}

/// The assignment that a proxy has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    Nothing,
    Blanket(Blanket, Instant),
    Loan { until: Instant, left: u64 },
}

/// A bucket.
#[derive(Debug)]
pub struct QuotaBucket {
    terms: BucketTerms,
    ledger: LoanLedger,
    demand: Demand,
    reported_at: Option<Instant>,
    idle_reports: u32,
    held: Held,
    /// Instant of the next step without a report.
    due: Option<Instant>,
    /// End of the window of the latest loan.
    window_end: Option<Instant>,
    /// `true` while a want is under way or an assignment is not sent.
    is_pending: bool,
}

impl QuotaBucket {
    /// Creates a bucket that the proxy has just opened.
    pub fn new(terms: BucketTerms) -> Self {
        Self {
            terms,
            ledger: LoanLedger::default(),
            demand: Demand::default(),
            reported_at: None,
            idle_reports: 0,
            held: Held::Nothing,
            due: None,
            window_end: None,
            is_pending: false,
        }
    }

    /// Returns the terms.
    pub fn terms(&self) -> &BucketTerms {
        &self.terms
    }

    /// Returns the hits in the hands of the proxy: lent, and neither reported nor certainly over.
    pub fn held_hits(&self) -> u64 {
        self.ledger.open()
    }

    /// Returns the instant of the next step without a report.
    pub fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Returns `true` if a loan is over, and the report after the acknowledgement of a PING that is
    /// sent now would settle it.
    pub fn awaits_ping(&self, covered: Option<Instant>, now: Instant) -> bool {
        self.ledger.awaits_ping(covered, now)
    }

    /// Takes the number of hits that stay charged although no proxy can admit them any more.
    pub fn take_stranded(&mut self) -> u64 {
        self.ledger.take_stranded()
    }

    /// Replaces the terms, if they have changed; the proxy gets another assignment at once. Loans
    /// of the same counter are settled as any: what is left of them comes back.
    pub fn set_terms(&mut self, terms: BucketTerms, is_same_counter: bool, now: Instant) {
        if !is_same_counter {
            self.ledger.forfeit();
        }
        if terms == self.terms {
            return;
        }
        (self.terms, self.held, self.window_end) = (terms, Held::Nothing, None);
        self.due = Some(now);
    }

    /// Gives up all loans: the stream has ended.
    pub fn forfeit(&mut self) {
        self.ledger.forfeit();
    }

    /// Returns the hits that the proxy is expected to want.
    pub fn want(&self) -> ProxyWant {
        let BucketTerms::Lent(LentTerms { lease, .. }) = &self.terms else {
            return ProxyWant::default();
        };
        let expected = self.demand.within(HORIZON).unwrap_or_default();
        let expected = u32::try_from(expected).unwrap_or(u32::MAX).min(lease.hits);
        let left = match self.held {
            Held::Loan { left, .. } => u32::try_from(left).unwrap_or(u32::MAX),
            Held::Nothing | Held::Blanket(..) => 0,
        };
        let reports_at = self.reported_at.filter(|_| expected > 0);
        let reports_at = reports_at.map(|at| after(at, REPORT_INTERVAL));
        ProxyWant { expected, left, reports_at }
    }

    /// Records a report, which has all requests that were allowed before `covered`.
    pub fn report(
        &mut self,
        usage: BucketUsage,
        covered: Option<Instant>,
        now: Instant,
        options: &QuotaOptions,
    ) -> Reported {
        let BucketUsage { allowed, denied } = usage;
        let is_first = self.reported_at.is_none();
        let elapsed = self.reported_at.map(|at| now.duration_since(at));
        self.reported_at = Some(now);
        let hits = allowed.saturating_add(denied);
        if let Some(elapsed) = elapsed {
            self.demand.record(hits, elapsed);
        }
        let idle = self.idle_reports.saturating_add(1);
        self.idle_reports = if hits == 0 { idle } else { 0 };
        if let Held::Loan { left, .. } = &mut self.held {
            *left = left.saturating_sub(allowed);
        }
        let Settlement { overrun, forfeited, mut returns } = self.ledger.report(allowed, covered);
        if !options.returns {
            self.ledger.keep_charged(std::mem::take(&mut returns));
        }
        let afterwards = match self.terms {
            BucketTerms::Open | BucketTerms::Closed => 0,
            BucketTerms::Shadow => overrun + forfeited,
            BucketTerms::Lent(_) => overrun,
        };
        Reported {
            spent: allowed - overrun,
            afterwards,
            is_overrun: matches!(self.terms, BucketTerms::Lent(_)) && !is_first && overrun > 0,
            returns,
        }
    }

    /// Returns the next step, after a report or when it is due.
    pub fn step(&mut self, now: Instant, options: &QuotaOptions) -> BucketStep {
        if self.is_pending {
            return BucketStep::Nothing;
        }
        if self.due.is_some_and(|due| due <= now) {
            self.due = None;
        }
        let is_settled = self.ledger.is_settled();
        if self.idle_reports >= ABANDON_REPORTS && is_settled {
            return BucketStep::Abandon;
        }
        let step = match self.terms {
            BucketTerms::Open | BucketTerms::Shadow => self.renewed(Blanket::Allow, now),
            BucketTerms::Closed => self.renewed(Blanket::Deny, now),
            BucketTerms::Lent(terms) => self.lending(&terms, now, options),
        };
        self.is_pending = matches!(step, BucketStep::Assign(_) | BucketStep::Want(_));
        step
    }

    /// Returns an assignment that does not depend on the counter, unless the proxy has it for long
    /// enough.
    fn renewed(&self, blanket: Blanket, now: Instant) -> BucketStep {
        let half = after(now, BLANKET_TTL.div_f64(2.0));
        match self.held {
            Held::Blanket(held, until) if held == blanket && until > half => BucketStep::Nothing,
            Held::Nothing | Held::Blanket(..) | Held::Loan { .. } => {
                BucketStep::Assign(Assignment::Blanket(blanket, BLANKET_TTL.as_secs()))
            }
        }
    }

    fn lending(&mut self, terms: &LentTerms, now: Instant, options: &QuotaOptions) -> BucketStep {
        let soon = after(now, RENEWAL);
        if self.idle_reports >= IDLE_REPORTS {
            return BucketStep::Nothing;
        }
        let mut horizon = self.horizon(now);
        if let Some(end) = self.window_end.filter(|end| *end > now) {
            let usable = end.saturating_duration_since(after(now, options.guard));
            // Too late for another loan in this window; the next one begins with one.
            if usable < Duration::from_secs(1) {
                self.due = Some(end);
                return BucketStep::Nothing;
            }
            // As the time of the loan will be.
            horizon = horizon.min(Duration::from_secs(usable.as_secs()));
        }
        let wanted = self.wanted(terms, horizon);
        match self.held {
            Held::Loan { until, left } => {
                let next = self.demand.within(horizon).unwrap_or_default();
                let is_enough = left >= next.min(wanted.into()) && left > 0;
                if is_enough && until > soon {
                    BucketStep::Nothing
                } else {
                    BucketStep::Want(wanted)
                }
            }
            Held::Blanket(Blanket::Deny, until) => match self.due {
                // Hits that others give back may serve requests that are denied meanwhile.
                Some(_) if self.idle_reports == 0 => BucketStep::Want(wanted),
                Some(_) if until > soon => BucketStep::Nothing,
                Some(due) => {
                    let ttl = due.saturating_duration_since(now);
                    BucketStep::Assign(Assignment::Blanket(Blanket::Deny, denial_ttl(ttl)))
                }
                None => BucketStep::Want(wanted),
            },
            Held::Nothing | Held::Blanket(Blanket::Allow, _) => BucketStep::Want(wanted),
        }
    }

    /// Returns the time until the answer to the next report.
    fn horizon(&self, now: Instant) -> Duration {
        let next = self.reported_at.map(|at| after(at, HORIZON));
        next.map_or(HORIZON, |next| next.saturating_duration_since(now).max(DELAY))
    }

    /// Returns the hits to ask for.
    fn wanted(&self, terms: &LentTerms, horizon: Duration) -> u32 {
        let LentTerms { lease, at_once, .. } = terms;
        let idle = (lease.hits / IDLE_PART).min(at_once / (10 * FIRST_PART));
        let first = at_once / FIRST_PART;
        let demand = self.demand.within(horizon).unwrap_or(first.into());
        let hits = demand.max(idle.into()).max(1).min(lease.hits.into());
        u32::try_from(hits).unwrap_or(u32::MAX)
    }

    /// Returns the step after the result of a want. Hits that are not sent are in the second part.
    pub fn wanted_result(
        &mut self,
        result: WantResult,
        now: Instant,
        options: &QuotaOptions,
    ) -> (BucketStep, Option<Receipt>) {
        self.is_pending = false;
        let BucketTerms::Lent(terms) = self.terms else {
            // The terms have changed meanwhile.
            let unsent = match result {
                WantResult::Charged(loan) => Some(loan.receipt),
                WantResult::Denied(_) | WantResult::Failed => None,
            };
            return (BucketStep::Nothing, unsent);
        };
        let (step, unsent) = match result {
            WantResult::Charged(loan) => self.charged(loan, &terms, now, options),
            WantResult::Denied(retry_after) => (self.denied(retry_after, now), None),
            WantResult::Failed => (self.failed(&terms, now), None),
        };
        self.is_pending = matches!(step, BucketStep::Assign(_));
        (step, unsent)
    }

    fn charged(
        &mut self,
        loan: ChargedLoan,
        terms: &LentTerms,
        now: Instant,
        options: &QuotaOptions,
    ) -> (BucketStep, Option<Receipt>) {
        self.window_end = loan.window_rest.map(|rest| after(loan.charged_at, rest.into()));
        self.due = self.window_end;
        let is_worth_it = match self.held {
            // The new loan replaces what is left of the old one.
            Held::Loan { left, until } if until > after(now, RENEWAL) => loan.receipt.hits > left,
            Held::Loan { .. } | Held::Nothing | Held::Blanket(..) => true,
        };
        match loan_ttl(&loan, &terms.lease, now, options.guard) {
            0 => (BucketStep::Nothing, Some(loan.receipt)),
            _ if !is_worth_it => (BucketStep::Nothing, Some(loan.receipt)),
            ttl => (BucketStep::Assign(Assignment::Loan(loan, ttl)), None),
        }
    }

    fn denied(&mut self, retry_after: Option<Micros>, now: Instant) -> BucketStep {
        let retry = retry_after.map(|time| Duration::from(time).max(SHORTEST_RETRY));
        let retry_at = retry.map(|retry| after(now, retry.min(DENIAL_TTL[1])));
        let window_end = self.window_end.filter(|end| *end > now);
        self.due = [retry_at, window_end].into_iter().flatten().min();
        // The rest of a loan that the proxy has remains its own.
        match self.held {
            Held::Loan { until, .. } | Held::Blanket(Blanket::Deny, until)
                if until > after(now, RENEWAL) =>
            {
                BucketStep::Nothing
            }
            Held::Loan { .. } | Held::Nothing | Held::Blanket(..) => {
                let ttl = denial_ttl(retry.unwrap_or_default());
                BucketStep::Assign(Assignment::Blanket(Blanket::Deny, ttl))
            }
        }
    }

    fn failed(&mut self, terms: &LentTerms, now: Instant) -> BucketStep {
        self.due = Some(after(now, SHORTEST_RETRY));
        let is_left = match self.held {
            Held::Loan { until, .. } | Held::Blanket(_, until) => {
                until > after(now, 2 * SHORTEST_RETRY)
            }
            Held::Nothing => false,
        };
        match terms.on_failure {
            Some(blanket) if !is_left => {
                BucketStep::Assign(Assignment::Blanket(blanket, FAILURE_TTL.as_secs()))
            }
            Some(_) | None => BucketStep::Nothing,
        }
    }

    /// Returns an assignment as it is to be sent at `now`; `None` if it is too late for it.
    pub fn timed(
        &self,
        assignment: Assignment,
        now: Instant,
        options: &QuotaOptions,
    ) -> Option<Assignment> {
        match (assignment, self.terms) {
            (Assignment::Blanket(..), _) => Some(assignment),
            (Assignment::Loan(loan, _), BucketTerms::Lent(terms)) => {
                let ttl = loan_ttl(&loan, &terms.lease, now, options.guard);
                (ttl > 0).then_some(Assignment::Loan(loan, ttl))
            }
            (Assignment::Loan(..), _) => None,
        }
    }

    /// Records that an assignment was sent.
    pub fn sent(&mut self, assignment: Assignment, now: Instant, options: &QuotaOptions) {
        self.is_pending = false;
        self.held = match assignment {
            Assignment::Blanket(blanket, ttl) => {
                Held::Blanket(blanket, after(now, Duration::from_secs(ttl)))
            }
            Assignment::Loan(ChargedLoan { receipt, window_rest, .. }, ttl) => {
                let ttl = Duration::from_secs(ttl);
                let window: Option<Timestamp> = window_rest.map(|rest| receipt.at + rest);
                self.ledger.lend(receipt, window, ttl, now, options.guard);
                Held::Loan { until: after(now, ttl), left: receipt.hits }
            }
        };
    }

    /// Records that nothing can be sent now: the next step is soon.
    pub fn postpone(&mut self, now: Instant) {
        self.is_pending = false;
        let soon = after(now, POSTPONED);
        let due = self.due.filter(|due| *due > now);
        self.due = Some(due.map_or(soon, |due| due.min(soon)));
    }
}
