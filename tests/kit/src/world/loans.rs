//! Loans in a history: what processes lent, what holders admitted and returned, and the claims that
//! follow.

use std::ops::Range;

use tollgate::grpc::proto::lease::lease_answer::Answer;
use tollgate::grpc::proto::lease::{ExchangeResponse, LeaseAnswer, LeaseResult};
use tonic::Code;

use super::claims::{Claim, CounterHistory, TAKEN_BACK_WITHIN_US};
use super::rules::Counting;
use super::run::RunningWorld;
use super::server::fleet::Moment;

/// Divisor of the period that bounds the time of a loan in a rolling period.
const ROLLING_LOANS: u64 = 20;
/// Granularity of timers.
const TIMER_US: u64 = 2_000;

/// An answer as a holder gets it: those to its wants, each with the number of its loan.
pub type Delivered = Vec<(LeaseAnswer, Option<usize>)>;

/// The return of a loan, as a holder sends it.
#[derive(Clone, Debug)]
pub struct ReturnRecord {
    pub loan: usize,
    pub counter: usize,
    pub receipt: Vec<u8>,
    pub unused: u32,
    pub used: u32,
}

/// Hits that a process lent, whether or not a holder learned of them.
#[derive(Clone, Debug)]
pub struct LoanRecord {
    pub counter: usize,
    pub hits: u64,
    /// Moments between which it was charged.
    pub charged: Range<Moment>,
    pub admitted: Vec<(Moment, u64)>,
    /// The moment at which a process answered that its return was accepted.
    pub accepted: Option<Moment>,
}

/// A want that reached a process: as many hits may have been charged for a while.
#[derive(Clone, Copy, Debug)]
pub struct WantRecord {
    pub counter: usize,
    pub hits: u64,
    pub begun: Moment,
    /// Set once the process has answered.
    pub ended: Option<Moment>,
}

/// All loans of a history.
#[derive(Debug, Default)]
pub struct LoanHistory {
    pub loans: Vec<LoanRecord>,
    wants: Vec<WantRecord>,
}

impl LoanHistory {
    /// Adds wants that have reached a process, and returns their numbers.
    pub fn ask(
        &mut self,
        begun: Moment,
        wants: impl Iterator<Item = (usize, u64)>,
    ) -> Range<usize> {
        let first = self.wants.len();
        let want = |(counter, hits)| WantRecord { counter, hits, begun, ended: None };
        self.wants.extend(wants.map(want));
        first..self.wants.len()
    }
}

impl RunningWorld {
    /// Records the end of an exchange at a process, and returns what it answers.
    pub(super) fn note_exchange(
        &self,
        holder: usize,
        process: usize,
        (begun, asked): (Moment, Range<usize>),
        returns: &[ReturnRecord],
        ended: Result<ExchangeResponse, Code>,
    ) -> Option<Delivered> {
        let now = self.shared.now();
        let mut chronicle = self.shared.chronicle.lock();
        let mut fleet = self.shared.fleet.lock();
        let mut text = format!("holder {holder} at process {process} since {begun}:");
        let Ok(response) = ended else {
            chronicle.note(now, &format!("{text} {ended:?}"));
            return None;
        };
        let mut delivered = Vec::new();
        for (number, answer) in asked.zip(response.answers) {
            let want = &mut chronicle.loans.wants[number];
            want.ended = Some(now);
            let counter = want.counter;
            let mut loan = None;
            if let Some(Answer::Loan(found)) = &answer.answer {
                loan = Some(chronicle.loans.loans.len());
                let hits = found.hits.into();
                text.push_str(&format!(" loan {} of c{counter}: {hits},", loan.unwrap_or(0)));
                chronicle.loans.loans.push(LoanRecord {
                    counter,
                    hits,
                    charged: begun..now,
                    admitted: Vec::new(),
                    accepted: None,
                });
            }
            let name = name_of(&answer);
            text.push_str(&format!(" c{counter} {name};"));
            fleet.count(&format!("loan {name}"));
            delivered.push((answer, loan));
        }
        for (back, result) in returns.iter().zip(response.results) {
            let result = LeaseResult::try_from(result).unwrap();
            text.push_str(&format!(" return of {} from loan {}: ", back.unused, back.loan));
            text.push_str(result.as_str_name());
            fleet.count(&format!("return {}", result.as_str_name()));
            // One that was repeated was accepted, if the first answer has not said so yet.
            if matches!(result, LeaseResult::Accepted | LeaseResult::Repeated) {
                let loan = &mut chronicle.loans.loans[back.loan];
                loan.accepted = loan.accepted.or(Some(now));
            }
        }
        chronicle.note(now, &text);
        Some(delivered)
    }
}

fn name_of(answer: &LeaseAnswer) -> &'static str {
    match &answer.answer {
        Some(Answer::Loan(_)) => "lent",
        Some(Answer::AskEachRequest(asks)) => asks.reason().as_str_name(),
        Some(Answer::Denial(_)) => "denied",
        Some(Answer::NotLeasable(_)) => "not leasable",
        None => "nothing",
    }
}

impl<'a> CounterHistory<'a> {
    /// Returns the loans of the counter.
    fn loans(&self) -> impl Iterator<Item = &'a LoanRecord> {
        let counter = self.counter;
        self.report.chronicle.loans.loans.iter().filter(move |loan| loan.counter == counter)
    }

    /// Returns what the loans of the counter claim.
    pub(super) fn claims_of_loans(&self) -> Vec<Claim> {
        let mut claims = Vec::new();
        for loan in self.loans() {
            let admitted = loan.admitted.iter();
            claims.extend(admitted.map(|&(at, hits)| Claim::Admitted {
                hits,
                begun: at,
                ended: at,
            }));
            claims.push(Claim::Lent {
                hits: loan.hits,
                admitted: loan.admitted.iter().map(|(_, hits)| hits).sum(),
                begun: loan.charged.start,
                until: loan.accepted,
            });
        }
        let wants = self.report.chronicle.loans.wants.iter();
        let is_gone = self.report.loans_lost == 0;
        for want in wants.filter(|want| want.counter == self.counter) {
            let ended = want.ended.filter(|_| is_gone);
            let until = ended.map(|ended| ended + TAKEN_BACK_WITHIN_US + self.stops_us());
            claims.push(Claim::Transient { hits: want.hits, begun: want.begun, until });
        }
        claims
    }

    /// Returns the hits of loans that may be admitted from a moment on, although they were charged
    /// before it.
    pub(super) fn lent_before(&self, from: Moment) -> u64 {
        let open = self.loans().filter(|loan| loan.charged.start < from);
        let admitted = open.flat_map(|loan| &loan.admitted).filter(|(at, _)| *at >= from);
        admitted.map(|(_, hits)| hits).sum()
    }

    /// Returns the hits of loans that were outstanding when a rolling period began, by the bound of
    /// their time and number; none of fixed windows.
    pub(super) fn outstanding(&self, from: Moment) -> u64 {
        if self.rule().counting == Counting::Fixed {
            return 0;
        }
        let longest = self.rule().period_us / ROLLING_LOANS + TIMER_US;
        let is_recent = |loan: &&LoanRecord| {
            let sent = loan.charged.start;
            sent < from && from < sent + longest
        };
        let admitted = self.loans().filter(is_recent).flat_map(|loan| &loan.admitted);
        let hits: u64 = admitted.filter(|(at, _)| *at >= from).map(|(_, hits)| hits).sum();
        hits.min(self.limit_max())
    }
}
