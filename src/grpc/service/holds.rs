//! The operations of `HoldService`: a request like one of `ShouldRateLimit`, with one operation on
//! a hold for all its descriptors.
//!
//! Callers are trusted with their IDs, so a retry can be distinguished from a second request: the
//! store compares a reserve with the open holds of its ID, in one step with the charge.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tonic::Status;

use super::{Caller, CallerAnswer, Rls};
use crate::algorithm::hold::{HoldAction, HoldEffect, HoldRequest, MAX_ID, MAX_RECEIPTS};
use crate::algorithm::judge::Hits;
use crate::algorithm::quota::MIN_TTL;
use crate::algorithm::time::Micros;
use crate::descriptor::hold::is_reserved;
use crate::descriptor::{Descriptor, KeyBuffer, OwnedKey, Request};
use crate::grpc::large_request;
use crate::grpc::proto::hold::{CancelRequest, CommitRequest, ExtendRequest, ReserveRequest};
use crate::grpc::proto::{RateLimitDescriptor, RateLimitRequest};
use crate::grpc::response::{self, Receiver};
use crate::limiter::{Decision, Snapshot};
use crate::store::Store;
use crate::store::clock::instant;
use crate::telemetry::spans::SpanAttributes;

/// Timeout for reversing the charges of an earlier attempt.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(2);
/// Number of nanoseconds in a microsecond.
const NANOS: u64 = 1_000;
/// Number of nanoseconds in a second.
const SECOND: u64 = 1_000_000_000;

/// A call of `HoldService`.
#[derive(Clone, Debug, PartialEq)]
pub struct HoldCall {
    domain: String,
    descriptors: Vec<RateLimitDescriptor>,
    id: String,
    method: HoldMethod,
    ttl: Option<prost_types::Duration>,
}

/// A method of `HoldService`, with its hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldMethod {
    /// Charges an estimate.
    Reserve(u32),
    /// Gives open holds a new TTL.
    Extend,
    /// Ends the oldest hold with its cost.
    Commit(u32),
    /// Ends the oldest hold, and takes its hits back.
    Cancel,
}

/// Reason why a call of `HoldService` is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum InvalidHold {
    #[error("id must have 1 to {MAX_ID} bytes, found {found}")]
    Id { found: usize },
    #[error("hits must be at least 1, found 0")]
    NoHits,
    #[error("hits_addend and is_negative_hits must not be set, found in descriptor {descriptor}")]
    OwnHits { descriptor: usize },
    #[error("the last entry must not be an operation on a hold, found in descriptor {descriptor}")]
    Operation { descriptor: usize },
    #[error(
        "ttl must have seconds of at least 0 and nanos of 0 to 999999999, found {seconds} s and {nanos} ns"
    )]
    MalformedTtl { seconds: i64, nanos: i32 },
    #[error("ttl must be at least {MIN_TTL}, found {seconds} s and {nanos} ns")]
    ShortTtl { seconds: i64, nanos: i32 },
    #[error("ttl must be at most that of the rule, {longest}, found {found}")]
    LongTtl { longest: Micros, found: Micros },
    #[error(
        "at most {MAX_RECEIPTS} descriptors may have one counter, since an ID has as many holds there; descriptor {descriptor} is one more"
    )]
    SharedCounter { descriptor: usize },
}

impl From<ReserveRequest> for HoldCall {
    fn from(request: ReserveRequest) -> Self {
        let ReserveRequest { domain, descriptors, id, hits, ttl } = request;
        Self { domain, descriptors, id, method: HoldMethod::Reserve(hits), ttl }
    }
}

impl From<ExtendRequest> for HoldCall {
    fn from(request: ExtendRequest) -> Self {
        let ExtendRequest { domain, descriptors, id, ttl } = request;
        Self { domain, descriptors, id, method: HoldMethod::Extend, ttl }
    }
}

impl From<CommitRequest> for HoldCall {
    fn from(request: CommitRequest) -> Self {
        let CommitRequest { domain, descriptors, id, hits } = request;
        Self { domain, descriptors, id, method: HoldMethod::Commit(hits), ttl: None }
    }
}

impl From<CancelRequest> for HoldCall {
    fn from(request: CancelRequest) -> Self {
        let CancelRequest { domain, descriptors, id } = request;
        Self { domain, descriptors, id, method: HoldMethod::Cancel, ttl: None }
    }
}

impl<S: Store> Rls<S> {
    /// Performs an operation on holds, appends an encoded `RateLimitResponse` to `answer` and
    /// returns its overall code.
    ///
    /// # Errors
    /// Errors of [`answer`](Self::answer); ALREADY_EXISTS if other hits of the ID are open;
    /// NOT_FOUND if there is nothing to extend.
    pub async fn hold(
        &self,
        call: HoldCall,
        caller: Caller<'_>,
        attributes: Option<&mut SpanAttributes>,
        answer: &mut Vec<u8>,
    ) -> Result<CallerAnswer, Status> {
        let now = instant();
        let deadline = self.deadline(now, caller.time);
        let ttl = call.check().map_err(|invalid| self.invalid_call(&invalid))?;
        let HoldCall { domain, descriptors, id, method, .. } = call;
        let message = RateLimitRequest { domain, descriptors, hits_addend: 0 };
        let request = self.read_decoded(&message, caller.rights, attributes)?;
        let _held = large_request::hold(caller.account, &request, 0)?;
        let snapshot = self.limiter.snapshot();
        let id = id.as_bytes();
        let decision = match method {
            HoldMethod::Reserve(hits) => {
                check_counters(&snapshot, &request)
                    .map_err(|invalid| self.invalid_call(&invalid))?;
                self.reserve(&snapshot, &request, (id, ttl, hits), deadline).await?
            }
            HoldMethod::Extend => self.extend(&snapshot, &request, (id, ttl), deadline).await?,
            HoldMethod::Commit(hits) => {
                self.end(&snapshot, &request, (id, HoldAction::CommitEach(hits)), deadline).await?
            }
            HoldMethod::Cancel => {
                self.end(&snapshot, &request, (id, HoldAction::Cancel), deadline).await?
            }
        };
        response::write(&decision, &self.style, Receiver::Caller, answer);
        self.latency.record(instant().duration_since(now));
        Ok(CallerAnswer::of(&decision))
    }

    async fn reserve<'a, 'r>(
        &self,
        snapshot: &'a Snapshot,
        request: &Request<'r>,
        (id, ttl, hits): (&'r [u8], Option<Micros>, u32),
        deadline: Instant,
    ) -> Result<Decision<'a>, Status> {
        if ttl.is_some() {
            self.check_ttl(ttl, &self.open_hits(snapshot, request, id, deadline).await?)?;
        }
        let reserve = HoldRequest { id, action: HoldAction::ReserveOnce, ttl };
        let reserving = with_hold(request, Hits::Charge(hits), reserve);
        let decision = self.decide_hold(snapshot, &reserving, deadline).await?;
        if has_effect(&decision, HoldEffect::Conflict) {
            return Err(Status::already_exists(
                "the id already has an open hold with a different number of hits",
            ));
        }
        if decision.is_over_limit() && has_effect(&decision, HoldEffect::Held) {
            // An earlier attempt, which was not decided, was charged at some of the counters. The
            // caller will not send another one, so this is not given up at its deadline.
            let until = deadline.max(instant() + CANCEL_TIMEOUT);
            self.end(snapshot, request, (id, HoldAction::Cancel), until).await?;
        }
        Ok(decision)
    }

    async fn extend<'a, 'r>(
        &self,
        snapshot: &'a Snapshot,
        request: &Request<'r>,
        (id, ttl): (&'r [u8], Option<Micros>),
        deadline: Instant,
    ) -> Result<Decision<'a>, Status> {
        if ttl.is_some() {
            self.check_ttl(ttl, &self.open_hits(snapshot, request, id, deadline).await?)?;
        }
        let extend = HoldRequest { id, action: HoldAction::Extend, ttl };
        let request = with_hold(request, Hits::Refund(0), extend);
        let decision = self.decide_hold(snapshot, &request, deadline).await?;
        if has_effect(&decision, HoldEffect::Extended) {
            return Ok(decision);
        }
        let mut statuses = decision.statuses().iter();
        if statuses.any(|status| status.hold().is_some() && status.hold_effect().is_none()) {
            return Err(Status::unavailable("no decision: the store failed"));
        }
        Err(Status::not_found("the id has no open holds"))
    }

    async fn end<'a, 'r>(
        &self,
        snapshot: &'a Snapshot,
        request: &Request<'r>,
        (id, action): (&'r [u8], HoldAction),
        deadline: Instant,
    ) -> Result<Decision<'a>, Status> {
        let request = with_hold(request, Hits::Refund(0), HoldRequest { id, action, ttl: None });
        self.decide_hold(snapshot, &request, deadline).await
    }

    /// Returns the open hits of an ID at each counter.
    async fn open_hits<'a, 'r>(
        &self,
        snapshot: &'a Snapshot,
        request: &Request<'r>,
        id: &'r [u8],
        deadline: Instant,
    ) -> Result<Decision<'a>, Status> {
        let looks = HoldRequest { id, action: HoldAction::Look, ttl: None };
        let request = with_hold(request, Hits::Refund(0), looks);
        let found = self.limiter.peek(snapshot, &request, deadline).await;
        found.map_err(|undecided| self.unavailable(&undecided))
    }

    async fn decide_hold<'a>(
        &self,
        snapshot: &'a Snapshot,
        request: &Request<'_>,
        deadline: Instant,
    ) -> Result<Decision<'a>, Status> {
        let decision = self.limiter.decide(snapshot, request, deadline).await;
        if let Some(log) = &self.request_log {
            log.log(snapshot, request, decision.as_ref());
        }
        decision.map_err(|undecided| self.unavailable(&undecided))
    }

    /// Checks a TTL against those of the rules.
    fn check_ttl(&self, ttl: Option<Micros>, found: &Decision<'_>) -> Result<(), Status> {
        let Some(ttl) = ttl else { return Ok(()) };
        let holds = found.statuses().iter().filter_map(|status| status.hold());
        match holds.map(|hold| hold.ttl).min().filter(|longest| ttl > *longest) {
            Some(longest) => Err(self.invalid_call(&InvalidHold::LongTtl { longest, found: ttl })),
            None => Ok(()),
        }
    }
}

impl HoldCall {
    /// Checks what no valid call has, and returns the TTL.
    fn check(&self) -> Result<Option<Micros>, InvalidHold> {
        let found = self.id.len();
        if !(1..=MAX_ID).contains(&found) {
            return Err(InvalidHold::Id { found });
        }
        if self.method == HoldMethod::Reserve(0) {
            return Err(InvalidHold::NoHits);
        }
        for (number, descriptor) in self.descriptors.iter().enumerate() {
            if descriptor.hits_addend.is_some() || descriptor.is_negative_hits {
                return Err(InvalidHold::OwnHits { descriptor: number });
            }
            if descriptor.entries.last().is_some_and(|entry| is_reserved(&entry.key)) {
                return Err(InvalidHold::Operation { descriptor: number });
            }
        }
        self.ttl.as_ref().map(ttl_of).transpose()
    }
}

fn ttl_of(ttl: &prost_types::Duration) -> Result<Micros, InvalidHold> {
    let prost_types::Duration { seconds, nanos } = *ttl;
    let malformed = InvalidHold::MalformedTtl { seconds, nanos };
    let short = InvalidHold::ShortTtl { seconds, nanos };
    let Ok(seconds) = u64::try_from(seconds) else { return Err(malformed) };
    let nanos = u64::try_from(nanos).ok().filter(|nanos| *nanos < SECOND).ok_or(malformed)?;
    // Rounded up, so that a fraction above a maximum is above it.
    let micros = nanos.div_ceil(NANOS);
    let length = Micros::new(Micros::from_secs(seconds).get().saturating_add(micros));
    if length >= MIN_TTL { Ok(length) } else { Err(short) }
}

/// Returns `true` if an operation had an effect at one of its counters.
fn has_effect(decision: &Decision<'_>, effect: HoldEffect) -> bool {
    decision.statuses().iter().any(|status| status.hold_effect() == Some(effect))
}

/// Returns the request with one operation for all its descriptors.
fn with_hold<'a>(request: &Request<'a>, hits: Hits, hold: HoldRequest<'a>) -> Request<'a> {
    let descriptors = request.descriptors.iter().map(|descriptor| Descriptor {
        hits,
        hold: Some(Box::new(hold)),
        ..descriptor.clone()
    });
    Request { domain: request.domain, descriptors: descriptors.collect() }
}

/// Checks that a reserve makes a hold of each of its charges: an ID has few at one counter, and the
/// others would be charged again by a retry. Permits have no such bound.
fn check_counters(snapshot: &Snapshot, request: &Request<'_>) -> Result<(), InvalidHold> {
    let several = snapshot.as_deref().filter(|_| request.descriptors.len() > MAX_RECEIPTS);
    let Some(live) = several else { return Ok(()) };
    let mut counts = HashMap::<OwnedKey, usize>::new();
    let descriptors = request.descriptors.iter().enumerate();
    for (number, descriptor) in descriptors.filter(|(_, one)| one.limit.is_none()) {
        let mut keys = KeyBuffer::default();
        let found = live.policies().counter(request.domain, &descriptor.entries, &mut keys);
        let Ok((rule, key)) = found else { continue };
        let has_records =
            rule.limit().is_some_and(|limit| limit.hold().is_some() && limit.in_flight().is_none());
        if has_records {
            let count = counts.entry(key.into()).or_default();
            *count += 1;
            if *count > MAX_RECEIPTS {
                return Err(InvalidHold::SharedCounter { descriptor: number });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ttl_is_a_valid_duration_and_a_fraction_of_a_microsecond_counts() {
        let ttl = |seconds, nanos| ttl_of(&prost_types::Duration { seconds, nanos });
        assert_eq!(ttl(600, 0), Ok(Micros::from_secs(600)));
        assert_eq!(ttl(600, 1), Ok(Micros::new(600_000_001)));
        for (seconds, nanos) in [(1, -1), (-1, 0), (-1, -1), (1, 1_000_000_000), (1, i32::MAX)] {
            let error = ttl(seconds, nanos).unwrap_err().to_string();
            assert!(error.contains(&format!("found {seconds} s and {nanos} ns")), "{error}");
        }
    }
}
