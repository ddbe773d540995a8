//! Loans in a history: what processes lent, what holders admitted and returned, and the claims that
//! follow.

use std::ops::Range;

use tollgate::algorithm::time::Timestamp;
use tollgate::grpc::proto::lease::lease_answer::Answer;
use tollgate::grpc::proto::lease::{
    ExchangeRequest, ExchangeResponse, LeaseAnswer, LeaseResult, Loan,
};
use tollgate::grpc::rights::DomainRights;
use tollgate::receipts::{LoanReceipt, ReceiptKeys, ReceiptOwner};
use tonic::Code;

use super::claims::{Claim, CounterHistory, TAKEN_BACK_WITHIN_US};
use super::proxy::ProxyDecision;
use super::rules::Counting;
use super::run::RunningWorld;
use super::server::fleet::Moment;

/// Divisor of the period that bounds the time of a loan in a rolling period.
const ROLLING_LOANS: u64 = 20;
/// Shortest time for which a proxy holds hits of a limit without windows, and the guard.
const SHORTEST_QUOTA_US: u64 = 7_000_000;
const GUARD_US: u64 = 2_000_000;
/// Granularity of timers.
const TIMER_US: u64 = 2_000;

/// An answer as a holder gets it: those to its wants, each with the number of its loan.
pub type Delivered = Vec<(LeaseAnswer, Option<usize>)>;

/// A call of a holder.
#[derive(Clone)]
pub struct SentExchange {
    pub holder: usize,
    pub sent: Moment,
    pub request: ExchangeRequest,
    /// The counters of its wants.
    pub wants: Vec<usize>,
    pub returns: Vec<ReturnRecord>,
}

/// The return of a loan, as a holder sends it.
#[derive(Clone, Debug)]
pub struct ReturnRecord {
    pub loan: usize,
    /// The counter that it names.
    pub counter: usize,
    pub receipt: Vec<u8>,
    pub unused: u32,
    pub used: u32,
}

/// Hits that a process lent, whether or not a holder learned of them.
#[derive(Clone, Debug)]
pub struct LoanRecord {
    pub borrower: Borrower,
    pub counter: usize,
    pub hits: u64,
    /// Moments between which it was charged.
    pub charged: Range<Moment>,
    pub admitted: Vec<(Moment, u64)>,
    /// The moment at which a process answered that its return was accepted.
    pub accepted: Option<Moment>,
}

/// The borrower of a loan.
#[derive(Clone, Copy, Debug)]
pub enum Borrower {
    /// A holder, with the moment at which it sent the call, and the instant of the charge by the
    /// receipt.
    Holder { sent: Moment, charged_at: Timestamp },
    /// A proxy, which returns nothing by itself.
    Proxy,
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
    /// Counters whose requests of one hit a process denied between two moments.
    pub denials: Vec<(usize, Range<Moment>)>,
    /// Loans whose return was accepted for another counter.
    pub returned_elsewhere: Vec<usize>,
    /// Requests that proxies allowed without a loan.
    pub allowed_without: Vec<(usize, Moment)>,
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

impl LoanHistory {
    /// Records a loan that leaves for a proxy, and returns its number.
    pub fn lend_to_proxy(&mut self, counter: usize, hits: u64, charged: Range<Moment>) -> usize {
        self.loans.push(LoanRecord {
            borrower: Borrower::Proxy,
            counter,
            hits,
            charged,
            admitted: Vec::new(),
            accepted: None,
        });
        self.loans.len() - 1
    }

    /// Records the request of a proxy.
    pub fn note_request(&mut self, counter: usize, decision: ProxyDecision, at: Moment) {
        match decision {
            ProxyDecision::Lent(loan) => self.loans[loan].admitted.push((at, 1)),
            ProxyDecision::Allowed => self.allowed_without.push((counter, at)),
            ProxyDecision::First | ProxyDecision::Denied => {}
        }
    }

    fn note_return(&mut self, back: &ReturnRecord, result: LeaseResult, now: Moment) {
        // One that was repeated was accepted, if the first answer has not said so yet.
        if !matches!(result, LeaseResult::Accepted | LeaseResult::Repeated) {
            return;
        }
        let loan = &mut self.loans[back.loan];
        if loan.counter == back.counter {
            loan.accepted = loan.accepted.or(Some(now));
        } else {
            self.returned_elsewhere.push(back.loan);
        }
    }
}

impl RunningWorld {
    /// Records the end of an exchange at a process, and returns what it answers.
    pub(super) fn note_exchange(
        &self,
        process: usize,
        (begun, asked): (Moment, Range<usize>),
        call: &SentExchange,
        ended: Result<ExchangeResponse, Code>,
    ) -> Option<Delivered> {
        let now = self.shared.now();
        let mut chronicle = self.shared.chronicle.lock();
        let mut fleet = self.shared.fleet.lock();
        let mut text = format!("holder {} at process {process} since {begun}:", call.holder);
        let Ok(response) = ended else {
            chronicle.note(now, &format!("{text} {ended:?}"));
            return None;
        };
        let mut delivered = Vec::new();
        for (number, answer) in asked.zip(response.answers) {
            let want = &mut chronicle.loans.wants[number];
            want.ended = Some(now);
            let counter = want.counter;
            let name = name_of(&answer);
            let mut loan = None;
            match &answer.answer {
                Some(Answer::Loan(found)) => {
                    loan = Some(chronicle.loans.loans.len());
                    let record = LoanRecord::of(counter, call.sent, begun..now, found);
                    let number = loan.unwrap_or(0);
                    text.push_str(&format!(" loan {number} of c{counter}: {},", record.hits));
                    chronicle.loans.loans.push(record);
                }
                Some(Answer::Denial(_)) => chronicle.loans.denials.push((counter, begun..now)),
                _ => {}
            }
            text.push_str(&format!(" c{counter} {name};"));
            fleet.count(&format!("loan {name}"));
            delivered.push((answer, loan));
        }
        for (back, result) in call.returns.iter().zip(response.results) {
            let result = LeaseResult::try_from(result).unwrap();
            text.push_str(&format!(" return of {} from loan {}: ", back.unused, back.loan));
            text.push_str(result.as_str_name());
            fleet.count(&format!("return {}", result.as_str_name()));
            chronicle.loans.note_return(back, result, now);
        }
        chronicle.note(now, &text);
        Some(delivered)
    }
}

impl LoanRecord {
    fn of(counter: usize, sent: Moment, charged: Range<Moment>, loan: &Loan) -> Self {
        let owner = ReceiptOwner { domain: "world", client: &DomainRights::All.to_string() };
        let receipt = LoanReceipt::decode(&loan.receipt, &ReceiptKeys::default(), owner);
        Self {
            borrower: Borrower::Holder { sent, charged_at: receipt.unwrap().charge.at },
            counter,
            hits: loan.hits.into(),
            charged,
            admitted: Vec::new(),
            accepted: None,
        }
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
    pub(super) fn loans(&self) -> impl Iterator<Item = &'a LoanRecord> {
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
                until: self.counts_until(loan),
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

    /// Returns the moment from which unused hits of a loan certainly do not count.
    fn counts_until(&self, loan: &LoanRecord) -> Option<Moment> {
        let is_in_period = !self.rule().is_long() && !self.has_gcra();
        match loan.borrower {
            Borrower::Holder { .. } => loan.accepted,
            // A sliding window counts its oldest bucket whole.
            Borrower::Proxy if is_in_period => {
                let period = self.rule().period_us;
                Some(loan.charged.end + period + period / 50)
            }
            Borrower::Proxy => None,
        }
    }

    /// Returns the hits of proxies that may count without a loan that left for one.
    pub(super) fn of_proxies(&self) -> u64 {
        if self.rule().quota_ttl_s.is_none() {
            return 0;
        }
        let counts = self.report.quotas;
        counts.stranded + counts.afterwards
    }

    /// Returns the hits of proxies that certainly came back: those of the only counter that has
    /// any.
    pub(super) fn returned_by_proxies(&self) -> u64 {
        let plan = &self.report.plan;
        let has_quota = |counter: &usize| plan.rule_of(*counter).quota_ttl_s.is_some();
        let mut counters = (0..plan.counters.len()).filter(has_quota);
        let is_only = counters.next() == Some(self.counter) && counters.next().is_none();
        if is_only { self.report.quotas.returned } else { 0 }
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
        let of_holder = self.rule().period_us / ROLLING_LOANS + TIMER_US;
        let is_recent = |loan: &&LoanRecord| {
            let longest = match loan.borrower {
                Borrower::Holder { .. } => of_holder,
                Borrower::Proxy => loan.charged.end - loan.charged.start + self.quota_us(),
            };
            let sent = loan.charged.start;
            sent < from && from < sent + longest
        };
        let admitted = self.loans().filter(is_recent).flat_map(|loan| &loan.admitted);
        let hits: u64 = admitted.filter(|(at, _)| *at >= from).map(|(_, hits)| hits).sum();
        hits.min(self.limit_max())
    }

    /// Returns the longest time for which a proxy admits the hits of a loan, from when it is sent:
    /// its time to live, and the guard within which it arrives.
    pub(super) fn quota_us(&self) -> u64 {
        let rule = self.rule();
        let ttl = 1_000_000 * rule.quota_ttl_s.unwrap_or_default();
        let part = (rule.period_us / ROLLING_LOANS).max(SHORTEST_QUOTA_US);
        let has_windows = self.report.versions().any(|of| rule.counting_of(of) == Counting::Fixed);
        let longest = if has_windows { ttl } else { ttl.min(part) };
        longest + GUARD_US
    }
}
