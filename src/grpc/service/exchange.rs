//! The exchange of `LeaseService`: hits lent to clients, and hits that they return.
//!
//! All wants and returns of a call reach the store together. The process keeps nothing of them:
//! whatever a later call needs is in the receipts.

use std::time::Instant;

use futures_util::future::{join, join_all};
use tonic::Status;

use super::{Caller, Rls};
use crate::algorithm::quota::Report;
use crate::algorithm::time::Micros;
use crate::algorithm::{Limit, Receipt};
use crate::descriptor::Descriptor;
use crate::descriptor::hold::is_reserved;
use crate::grpc::large_request;
use crate::grpc::proto::lease::ask_each_request::Reason as AskReason;
use crate::grpc::proto::lease::lease_answer::Answer;
use crate::grpc::proto::lease::not_leasable::Reason as NotLeasableReason;
use crate::grpc::proto::lease::{
    AskEachRequest, CounterReport, Denial, ExchangeRequest, ExchangeResponse, LeaseAnswer,
    LeaseResult, LeaseReturn, Loan, NotLeasable,
};
use crate::grpc::proto::{RateLimitDescriptor, RateLimitRequest};
use crate::limiter::{Live, LoanTarget, Undecided};
use crate::policy::NoLoan;
use crate::receipts::{CounterDigest, LoanReceipt, ReceiptOwner, generation};
use crate::store::backend::Backend;
use crate::store::clock::instant;
use crate::store::layer::Layered;
use crate::store::layer::loans::{Lending, LoanBlock};
use crate::store::loan::{LoanReturn, Returned};
use crate::telemetry::spans::SpanAttributes;

/// Maximum wants, and maximum returns, of a call.
const MAX_ITEMS: usize = 256;
/// Memory of a want or a return during its store call, with its answer, in bytes.
const ITEM_COST: usize = 6 << 10;
/// Number of nanoseconds in a microsecond, and of microseconds in a second.
const NANOS: u64 = 1_000;
const SECOND: u64 = 1_000_000;

/// Kinds of answers and results, as labels of metrics.
const ANSWERS: [&str; 6] =
    ["block", "too_few_wanted", "near_limit", "store_failed", "denied", "not_leasable"];
const RESULTS: [&str; 6] =
    ["accepted", "repeated", "late", "other_counter", "invalid_receipt", "failed"];

/// Lists of a call.
const WANTS: &str = "wants";
const RETURNS: &str = "returns";

/// Reason why a call is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum InvalidExchange {
    #[error("{list} must have at most {MAX_ITEMS} items, found {found}")]
    TooMany { list: &'static str, found: usize },
    #[error("wants and returns must not both be empty")]
    Empty,
    #[error("descriptor must be set, missing in {list}[{number}]")]
    NoDescriptor { list: &'static str, number: usize },
    #[error(
        "a descriptor must have entries only, and no operation on a hold, found in {list}[{number}]"
    )]
    NotPlain { list: &'static str, number: usize },
}

/// A call under way, by one policy snapshot.
struct ExchangeCall<'a, B> {
    rls: &'a Rls<Layered<B>>,
    live: &'a Live,
    owner: ReceiptOwner<'a>,
    deadline: Instant,
}

impl<S> Rls<S> {
    /// Creates the series of the metrics of exchanges at zero.
    pub(super) fn show_exchanges(&self) {
        self.metrics.loans.show_kinds(&ANSWERS, &RESULTS);
        self.metrics.loans.quotas.show_kinds(&super::quotas::ENDS);
    }
}

impl<B: Backend> Rls<Layered<B>> {
    /// Answers a call of `Exchange`.
    ///
    /// # Errors
    /// PERMISSION_DENIED if the caller may not use the domain, INVALID_ARGUMENT for an invalid
    /// message, RESOURCE_EXHAUSTED while large requests use up their memory budget, UNAVAILABLE if
    /// no policy is loaded. A store that fails is an answer to each want.
    pub async fn exchange(
        &self,
        mut call: ExchangeRequest,
        caller: Caller<'_>,
        attributes: Option<&mut SpanAttributes>,
    ) -> Result<ExchangeResponse, Status> {
        let now = instant();
        let deadline = self.deadline(now, caller.time);
        let message = take_request(&mut call).map_err(|invalid| self.invalid_call(&invalid))?;
        let request = self.read_decoded(&message, caller.rights, attributes)?;
        let _request = large_request::hold(caller.account, &request, 0)?;
        let items = request.descriptors.len() * ITEM_COST;
        let _items = large_request::hold_bytes(caller.account, items)?;
        let snapshot = self.limiter.snapshot();
        let live = snapshot.as_deref().ok_or_else(|| self.unavailable(&Undecided::NoPolicy))?;
        self.metrics.loans.exchanges.inc();
        let client = caller.rights.to_string();
        let owner = ReceiptOwner { domain: request.domain, client: &client };
        let exchange = ExchangeCall { rls: self, live, owner, deadline };
        let (wanted, returned) =
            request.descriptors.split_at_checked(call.wants.len()).unwrap_or_default();
        let answers = wanted.iter().zip(&call.wants);
        let answers = answers.map(|(descriptor, want)| exchange.answer(descriptor, want.hits));
        let results = returned.iter().zip(&call.returns);
        let results = results.map(|(descriptor, back)| exchange.take_back(descriptor, back));
        let (answers, results) = join(join_all(answers), join_all(results)).await;
        self.latency.record(instant().duration_since(now));
        let results = results.into_iter().map(i32::from).collect();
        Ok(ExchangeResponse { answers, results })
    }
}

impl<B: Backend> ExchangeCall<'_, B> {
    /// Answers a want.
    async fn answer(&self, descriptor: &Descriptor<'_>, hits: u32) -> LeaseAnswer {
        let limiter = &self.rls.limiter;
        let target = limiter.loan_target(self.live, self.owner.domain, descriptor);
        let found = target.as_ref().ok_or(NoLoan::NoLimit);
        let found = found.and_then(|target| target.lease().map(|lease| (target, lease)));
        let (target, lease) = match found {
            Ok(found) => found,
            Err(reason) => {
                self.rls.metrics.loans.count_answer("not_leasable");
                let reason = reason_of(reason).into();
                let answer = Some(Answer::NotLeasable(NotLeasable { reason }));
                return LeaseAnswer { generation: 0, answer };
            }
        };
        let loans = limiter.store().loans();
        let lending = loans.lend(&target.check(), &lease, hits, self.deadline).await;
        let (kind, answer) = match lending {
            Ok(Lending::Block(block)) => ("block", Answer::Loan(self.loan(target, &block))),
            Ok(Lending::TooFew(None)) => {
                ("too_few_wanted", ask_each_request(AskReason::TooFewWanted, None))
            }
            Ok(Lending::TooFew(Some(report))) => {
                let counter = counter_of(target.limit(), &report);
                ("near_limit", ask_each_request(AskReason::NearLimit, Some(counter)))
            }
            // A limit in shadow mode denies nothing.
            Ok(Lending::Denied(report, _)) if limiter.is_shadow(target.rule()) => {
                let counter = counter_of(target.limit(), &report);
                ("near_limit", ask_each_request(AskReason::NearLimit, Some(counter)))
            }
            Ok(Lending::Denied(report, valid_for)) => {
                limiter.record_loan_denial(self.live, target, descriptor, valid_for);
                let counter = Some(counter_of(target.limit(), &report));
                let valid_for = Some(duration(valid_for));
                ("denied", Answer::Denial(Denial { valid_for, counter }))
            }
            Err(error) => {
                self.rls.metrics.store.store_error(error.kind());
                ("store_failed", ask_each_request(AskReason::StoreFailed, None))
            }
        };
        self.rls.metrics.loans.count_answer(kind);
        let counter = CounterDigest::of(target.rule().domain(), target.key());
        let generation = generation(counter, target.limit(), &lease);
        LeaseAnswer { generation, answer: Some(answer) }
    }

    fn loan(&self, target: &LoanTarget<'_>, block: &LoanBlock) -> Loan {
        let LoanBlock { receipt: charge, usable_for, report } = *block;
        target.count_lent(charge.hits, charge.at + usable_for);
        let receipt = LoanReceipt {
            counter: CounterDigest::of(target.rule().domain(), target.key()),
            charge,
            usable_for,
            number: (self.rls.loan_numbers)(),
        };
        Loan {
            hits: u32::try_from(charge.hits).unwrap_or(u32::MAX),
            receipt: receipt.encode(&self.rls.receipt_keys, self.owner),
            usable_for: Some(duration(usable_for)),
            counter: Some(counter_of(target.limit(), &report)),
        }
    }

    /// Accepts a return.
    async fn take_back(&self, descriptor: &Descriptor<'_>, back: &LeaseReturn) -> LeaseResult {
        let result = self.result_of(descriptor, back).await;
        self.rls.metrics.loans.count_return(match result {
            LeaseResult::Accepted => "accepted",
            LeaseResult::Repeated => "repeated",
            LeaseResult::Late => "late",
            LeaseResult::OtherCounter => "other_counter",
            LeaseResult::InvalidReceipt => "invalid_receipt",
            LeaseResult::Failed | LeaseResult::Unspecified => "failed",
        });
        result
    }

    async fn result_of(&self, descriptor: &Descriptor<'_>, back: &LeaseReturn) -> LeaseResult {
        let LeaseReturn { receipt, unused, used, .. } = back;
        let [unused, used] = [*unused, *used].map(u64::from);
        let receipt = LoanReceipt::decode(receipt, &self.rls.receipt_keys, self.owner);
        let Ok(LoanReceipt { counter, charge, usable_for, number }) = receipt else {
            return LeaseResult::InvalidReceipt;
        };
        // Two numbers of 32 bits.
        if unused + used > charge.hits {
            return LeaseResult::InvalidReceipt;
        }
        let limiter = &self.rls.limiter;
        let Some(target) = limiter.loan_target(self.live, self.owner.domain, descriptor) else {
            return LeaseResult::OtherCounter;
        };
        let own = CounterDigest::of(target.rule().domain(), target.key());
        if own != counter || target.limit().is_ban() {
            return LeaseResult::OtherCounter;
        }
        let unused_hits = Receipt { hits: unused, ..charge };
        let returned = LoanReturn { unused: unused_hits, number, usable_for };
        let loans = limiter.store().loans();
        match loans.take_back(&target.check(), returned, self.deadline).await {
            Ok(Returned::Accepted) => {
                target.count_returned(used, unused, charge.at + usable_for);
                LeaseResult::Accepted
            }
            Ok(Returned::Repeated) => LeaseResult::Repeated,
            Ok(Returned::Late) => LeaseResult::Late,
            Err(error) => {
                self.rls.metrics.store.store_error(error.kind());
                LeaseResult::Failed
            }
        }
    }
}

/// Takes the domain and descriptors of a call as a request, which is checked as those of
/// `ShouldRateLimit` are: first those of the wants, then those of the returns.
fn take_request(call: &mut ExchangeRequest) -> Result<RateLimitRequest, InvalidExchange> {
    let ExchangeRequest { domain, wants, returns } = call;
    for (list, found) in [(WANTS, wants.len()), (RETURNS, returns.len())] {
        if found > MAX_ITEMS {
            return Err(InvalidExchange::TooMany { list, found });
        }
    }
    if wants.is_empty() && returns.is_empty() {
        return Err(InvalidExchange::Empty);
    }
    let wanted = wants.iter_mut().map(|want| want.descriptor.take()).enumerate();
    let wanted = wanted.map(|(number, one)| plain(one, WANTS, number));
    let returned = returns.iter_mut().map(|back| back.descriptor.take()).enumerate();
    let returned = returned.map(|(number, one)| plain(one, RETURNS, number));
    let descriptors = wanted.chain(returned).collect::<Result<_, _>>()?;
    Ok(RateLimitRequest { domain: std::mem::take(domain), descriptors, hits_addend: 0 })
}

/// Returns a descriptor of which a client may hold hits: one that neither sets a limit or hits nor
/// operates on a hold.
fn plain(
    descriptor: Option<RateLimitDescriptor>,
    list: &'static str,
    number: usize,
) -> Result<RateLimitDescriptor, InvalidExchange> {
    let descriptor = descriptor.ok_or(InvalidExchange::NoDescriptor { list, number })?;
    let RateLimitDescriptor { entries, limit, hits_addend, is_negative_hits } = &descriptor;
    let operates_on_hold = entries.last().is_some_and(|entry| is_reserved(&entry.key));
    if limit.is_some() || hits_addend.is_some() || *is_negative_hits || operates_on_hold {
        return Err(InvalidExchange::NotPlain { list, number });
    }
    Ok(descriptor)
}

/// Returns the answer that no hits are lent.
fn ask_each_request(reason: AskReason, counter: Option<CounterReport>) -> Answer {
    Answer::AskEachRequest(AskEachRequest { reason: reason.into(), counter })
}

fn reason_of(reason: NoLoan) -> NotLeasableReason {
    match reason {
        NoLoan::NoLimit => NotLeasableReason::NoLimit,
        NoLoan::NoLease => NotLeasableReason::NoLease,
        NoLoan::Ban => NotLeasableReason::Ban,
        NoLoan::Quota => NotLeasableReason::QuotaMode,
        NoLoan::Records => NotLeasableReason::Records,
        NoLoan::Replaces => NotLeasableReason::Replaces,
        NoLoan::TooSmall => NotLeasableReason::TooSmall,
    }
}

fn counter_of(limit: &Limit, report: &Report) -> CounterReport {
    let window = limit.windows().get(usize::from(report.window));
    CounterReport {
        limit: window.map(|window| window.limit()).unwrap_or_default(),
        period: window.map(|window| duration(window.period())),
        remaining: report.remaining,
        reset_after: report.reset_after.map(duration),
    }
}

fn duration(time: Micros) -> prost_types::Duration {
    let us = time.get();
    let nanos = us % SECOND * NANOS;
    prost_types::Duration {
        seconds: i64::try_from(us / SECOND).unwrap_or(i64::MAX),
        nanos: i32::try_from(nanos).unwrap_or_default(),
    }
}
