//! The service that is verified, over gRPC.

use std::time::Duration;

use crate::algorithm::time::Micros;
use crate::grpc::client::{ClientError, RateLimitClient};
use crate::grpc::proto::rate_limit_descriptor::Entry;
use crate::grpc::proto::rate_limit_response::{Code, DescriptorStatus, RateLimit};
use crate::grpc::proto::{RateLimitDescriptor, RateLimitRequest, RateLimitResponse};
use crate::grpc::units::UNITS;
use crate::verify::service::{LimitStatus, ServiceDecision, VerifiedService, VerifyRequest};

impl VerifiedService for RateLimitClient {
    type Error = ClientError;

    async fn decide(
        &mut self,
        request: VerifyRequest,
        deadline: Duration,
    ) -> Result<ServiceDecision, ClientError> {
        let response = self.should_rate_limit_within(request.into(), deadline).await?;
        Ok((&response).into())
    }
}

impl From<VerifyRequest> for RateLimitRequest {
    fn from(VerifyRequest { domain, entries, hits }: VerifyRequest) -> Self {
        let entries = entries.into_iter().map(|(key, value)| Entry {
            key: key.into_bytes().into(),
            value: value.into_bytes().into(),
        });
        let descriptor = RateLimitDescriptor {
            entries: entries.collect(),
            hits_addend: Some(hits),
            ..Default::default()
        };
        Self { domain, descriptors: vec![descriptor], hits_addend: 0 }
    }
}

impl From<&RateLimitResponse> for ServiceDecision {
    fn from(response: &RateLimitResponse) -> Self {
        Self {
            is_denied: response.overall_code == i32::from(Code::OverLimit),
            status: response.statuses.first().and_then(limit_status),
        }
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
