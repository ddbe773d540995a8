//! The service that is verified, over gRPC.

use std::time::Duration;

use crate::algorithm::time::Micros;
use crate::descriptor::hold::SETTLE;
use crate::grpc::client::{ClientError, HoldMessage, RateLimitClient};
use crate::grpc::proto::hold::{CancelRequest, CommitRequest, ExtendRequest, ReserveRequest};
use crate::grpc::proto::rate_limit_descriptor::Entry;
use crate::grpc::proto::rate_limit_response::{Code, DescriptorStatus, RateLimit};
use crate::grpc::proto::{RateLimitDescriptor, RateLimitRequest, RateLimitResponse};
use crate::grpc::units::UNITS;
use crate::verify::history::{CallAction, HoldEnd};
use crate::verify::service::{
    DescriptorDecision, LimitStatus, ServiceDecision, VerifiedService, VerifyRequest,
};

impl VerifiedService for RateLimitClient {
    type Error = ClientError;

    async fn decide(
        &mut self,
        request: VerifyRequest,
        deadline: Duration,
    ) -> Result<ServiceDecision, ClientError> {
        let VerifyRequest { domain, mut descriptors, action, hits, hold: id } = request;
        let hits_addend = (action == CallAction::Charge).then_some(hits);
        if action.end() == Some(HoldEnd::Settle) {
            for entries in &mut descriptors {
                entries.push((SETTLE.to_owned(), id.clone()));
            }
        }
        let descriptors = descriptors.into_iter().map(|entries| descriptor(entries, hits_addend));
        let descriptors = descriptors.collect();
        // The hits of a run are few.
        let hits = u32::try_from(hits).unwrap_or(u32::MAX);
        let message = match action {
            CallAction::Charge
            | CallAction::End { by: HoldEnd::Settle, .. }
            | CallAction::EndAgain { by: HoldEnd::Settle, .. } => {
                let request = RateLimitRequest { domain, descriptors, hits_addend: 0 };
                let response = self.should_rate_limit_within(request, deadline).await?;
                return Ok((&response).into());
            }
            CallAction::Reserve { .. } | CallAction::Repeat { .. } => {
                HoldMessage::Reserve(ReserveRequest { domain, descriptors, id, hits, ttl: None })
            }
            CallAction::Extend { .. } => {
                HoldMessage::Extend(ExtendRequest { domain, descriptors, id, ttl: None })
            }
            CallAction::End { by: HoldEnd::Commit, .. }
            | CallAction::EndAgain { by: HoldEnd::Commit, .. } => {
                HoldMessage::Commit(CommitRequest { domain, descriptors, id, hits })
            }
            CallAction::End { by: HoldEnd::Cancel, .. }
            | CallAction::EndAgain { by: HoldEnd::Cancel, .. } => {
                HoldMessage::Cancel(CancelRequest { domain, descriptors, id })
            }
        };
        let response = self.hold_within(message, deadline).await?;
        Ok((&response).into())
    }
}

fn descriptor(entries: Vec<(String, String)>, hits_addend: Option<u64>) -> RateLimitDescriptor {
    let entries = entries.into_iter().map(|(key, value)| Entry {
        key: key.into_bytes().into(),
        value: value.into_bytes().into(),
    });
    RateLimitDescriptor { entries: entries.collect(), hits_addend, ..Default::default() }
}

impl From<&RateLimitResponse> for ServiceDecision {
    fn from(response: &RateLimitResponse) -> Self {
        let over_limit = i32::from(Code::OverLimit);
        let descriptors = response.statuses.iter().map(|status| DescriptorDecision {
            is_denied: status.code == over_limit,
            status: limit_status(status),
        });
        Self { is_denied: response.overall_code == over_limit, descriptors: descriptors.collect() }
    }
}

/// Returns the status of a limit; `None` if there is no limit.
fn limit_status(status: &DescriptorStatus) -> Option<LimitStatus> {
    let limit = status.current_limit.as_ref()?;
    let reset = status.duration_until_reset.as_ref();
    Some(LimitStatus {
        amount: limit.requests_per_unit,
        period: reported_period(limit),
        remaining: status.limit_remaining.into(),
        reset: reset.and_then(|reset| u64::try_from(reset.seconds).ok()),
    })
}

/// Returns the period of a reported limit; `None` if its unit is unknown.
fn reported_period(limit: &RateLimit) -> Option<Micros> {
    let (_, seconds) = UNITS.iter().find(|(unit, _)| i32::from(*unit) == limit.unit)?;
    let multiplier = limit.unit_multiplier.unwrap_or(1).into();
    Some(Micros::from_secs(seconds.saturating_mul(multiplier)))
}
