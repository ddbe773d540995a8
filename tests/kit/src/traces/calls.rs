//! Calls of one store, for a comparison of several.

use prost::Message as _;
use tollgate::algorithm::amend::Amendment;
use tollgate::algorithm::hold::{HoldAction, HoldList, HoldRequest};
use tollgate::algorithm::judge::Hits;
use tollgate::algorithm::tallies::EntryTally;
use tollgate::algorithm::time::Timestamp;
use tollgate::algorithm::verdict::Role;
use tollgate::algorithm::{Charge, Receipt};
use tollgate::descriptor::{Descriptor, KeyBuffer, entries};
use tollgate::grpc::proto::rate_limit_response::Code;
use tollgate::grpc::proto::{RateLimitRequest, RateLimitResponse};
use tollgate::grpc::request::{self, RequestBounds};
use tollgate::grpc::response::{self, AnswerStyle};
use tollgate::limiter::{Decision, Status, Undecided};
use tollgate::policy::Imposes;
use tollgate::store::backend::Backend as _;
use tollgate::store::clock::instant;
use tollgate::store::loan::{LoanReturn, Returned};
use tollgate::store::{Check, Lender as _};

use super::TracedHoldCall;
use super::sides::{SideAnswer, SideLimiter, TEST_TIMEOUT, Touched, Tried};

const BOUNDS: RequestBounds = RequestBounds { descriptors: 256, entries: 32, all_entries: 2048 };

/// Charges in advance, or takes such a charge back.
pub(super) async fn lend(
    limiter: &SideLimiter,
    descriptor: &str,
    hits: Hits,
    mode: Charge,
    back: Option<Receipt>,
) -> Option<Receipt> {
    let snapshot = limiter.snapshot();
    let mut keys = KeyBuffer::default();
    let counter =
        snapshot.as_deref().unwrap().policies().counter("test", &entries(descriptor), &mut keys);
    let (rule, key) = counter.ok()?;
    let Imposes::Limit(limit) = rule.imposes() else { return None };
    // A ban has no hits to lease.
    if limit.is_ban() {
        return None;
    }
    let limit = &limit.charged(mode);
    let check =
        Check { key, limit, hits, role: Role::Enforce, recorded: &[], lease: None, hold: None };
    let deadline = instant() + TEST_TIMEOUT;
    let Some(receipt) = back else {
        return limiter.store().lend(&check, deadline).await.unwrap().receipt;
    };
    limiter.store().take_back(&check, receipt, deadline).await.unwrap();
    None
}

pub(super) async fn return_loan(
    limiter: &SideLimiter,
    descriptor: &str,
    back: LoanReturn,
) -> Result<Returned, String> {
    let snapshot = limiter.snapshot();
    let entries = entries(descriptor).into_iter().collect();
    let descriptor = Descriptor { entries, limit: None, hits: Hits::Charge(1), hold: None };
    let target = limiter.loan_target(snapshot.as_deref().unwrap(), "test", &descriptor).unwrap();
    let deadline = instant() + TEST_TIMEOUT;
    let returned = limiter.store().return_loan(&target.check(), back, deadline).await;
    returned.map_err(|error| error.to_string())
}

pub async fn tallies(limiter: &SideLimiter, descriptor: &str) -> Vec<EntryTally> {
    let snapshot = limiter.snapshot();
    let mut keys = KeyBuffer::default();
    let counter =
        snapshot.as_deref().unwrap().policies().counter("test", &entries(descriptor), &mut keys);
    match counter {
        Ok((_, key)) => limiter.store().tallies(&key).await.unwrap(),
        Err(_) => Vec::new(),
    }
}

pub(super) async fn open_holds(limiter: &SideLimiter, descriptor: &str) -> HoldList {
    let snapshot = limiter.snapshot();
    let mut keys = KeyBuffer::default();
    let counter =
        snapshot.as_deref().unwrap().policies().counter("test", &entries(descriptor), &mut keys);
    let Ok((rule, key)) = counter else { return HoldList::default() };
    let keeps_holds = match rule.imposes() {
        Imposes::Limit(limit) => limit.hold().is_some() && !limit.is_ban(),
        Imposes::Nothing | Imposes::Unlimited => false,
    };
    if !keeps_holds {
        return HoldList::default();
    }
    let touched = limiter.amend(rule, key, Amendment::Look, instant() + TEST_TIMEOUT).await;
    limiter.store().open_holds(&key, touched.unwrap().after.at).await.unwrap()
}

/// Lists the open holds of a counter without reading it first, which would find its node.
pub async fn open_holds_at(limiter: &SideLimiter, descriptor: &str, at: Timestamp) -> HoldList {
    let snapshot = limiter.snapshot();
    let mut keys = KeyBuffer::default();
    let counter =
        snapshot.as_deref().unwrap().policies().counter("test", &entries(descriptor), &mut keys);
    limiter.store().open_holds(&counter.unwrap().1, at).await.unwrap()
}

pub(super) async fn amend(
    limiter: &SideLimiter,
    descriptor: &str,
    amendment: Amendment,
) -> Touched {
    let snapshot = limiter.snapshot();
    let mut keys = KeyBuffer::default();
    let counter =
        snapshot.as_deref().unwrap().policies().counter("test", &entries(descriptor), &mut keys);
    let (rule, key) = counter.map_err(|none| none.to_string())?;
    let amended = limiter.amend(rule, key, amendment, instant() + TEST_TIMEOUT).await;
    amended.map_err(|error| error.to_string())
}

pub(super) async fn decide(limiter: &SideLimiter, message: &RateLimitRequest) -> SideAnswer {
    let message = message.encode_to_vec();
    let request = request::read(&message, &BOUNDS).unwrap();
    let snapshot = limiter.snapshot();
    let decided = limiter.decide(&snapshot, &request, instant() + TEST_TIMEOUT).await;
    answer(limiter, decided).await
}

/// Performs an operation on the holds of an ID.
pub(super) async fn hold(
    limiter: &SideLimiter,
    message: &RateLimitRequest,
    call: &TracedHoldCall,
) -> SideAnswer {
    let message = message.encode_to_vec();
    let mut request = request::read(&message, &BOUNDS).unwrap();
    let TracedHoldCall { id, action, hits, ttl } = *call;
    for descriptor in &mut request.descriptors {
        let reserves = matches!(action, HoldAction::Reserve | HoldAction::ReserveOnce);
        descriptor.hits = if reserves { Hits::Charge(hits) } else { Hits::Refund(0) };
        descriptor.hold = Some(Box::new(HoldRequest { id: id.as_bytes(), action, ttl }));
    }
    let snapshot = limiter.snapshot();
    let deadline = instant() + TEST_TIMEOUT;
    let decided = if action == HoldAction::Look {
        limiter.peek(&snapshot, &request, deadline).await
    } else {
        limiter.decide(&snapshot, &request, deadline).await
    };
    answer(limiter, decided).await
}

async fn answer(limiter: &SideLimiter, decided: Result<Decision<'_>, Undecided>) -> SideAnswer {
    // Charges are taken back after a failure as well.
    limiter.store().settled().await;
    let decision = decided.map_err(|undecided| undecided.to_string())?;
    let times: Vec<_> = decision.statuses().iter().map(times).collect();
    let effect = |status: &Status<'_>| status.hold_effect().unwrap_or_default();
    let effects = decision.statuses().iter().map(effect).collect();
    let mut answer = Vec::new();
    response::write(&decision, &AnswerStyle::default(), response::Receiver::Proxy, &mut answer);
    let mut response = RateLimitResponse::decode(answer.as_slice()).unwrap();
    for (status, [retry_after, _]) in response.statuses.iter_mut().zip(&times) {
        // Of hits that never fit, by the clock of the process: that of a server may be another.
        if status.code() == Code::OverLimit && retry_after.is_none() {
            status.duration_until_reset = None;
        }
    }
    Ok((response, times, effects))
}

pub(super) async fn peek(limiter: &SideLimiter, message: &RateLimitRequest) -> Tried {
    let message = message.encode_to_vec();
    let mut request = request::read(&message, &BOUNDS).unwrap();
    for descriptor in &mut request.descriptors {
        let (Hits::Charge(hits) | Hits::Peek(hits) | Hits::Refund(hits)) = descriptor.hits;
        descriptor.hits = Hits::Peek(hits);
    }
    let snapshot = limiter.snapshot();
    let decided = limiter.peek(&snapshot, &request, instant() + TEST_TIMEOUT).await;
    let decision = decided.map_err(|undecided| undecided.to_string())?;
    let status = |status: &Status<'_>| (status.is_over_limit(), status.left(), times(status));
    Ok((decision.is_over_limit(), decision.statuses().iter().map(status).collect()))
}

fn times(status: &Status<'_>) -> [Option<u64>; 2] {
    [status.retry_after(), status.reset_after()].map(|time| time.map(|time| time.get()))
}
