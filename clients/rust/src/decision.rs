//! Decisions, and what a call without one becomes.

use std::time::Duration;

use tonic::Status;

use crate::generated::envoy::service::ratelimit::v3 as wire;

/// An answer of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    /// The service did not decide; see [`Decision::error`].
    Undecided,
    /// The request is within its limits, or has none.
    Ok,
    /// The service denied the request.
    OverLimit,
}

impl Code {
    /// Returns the name of the code, as in Envoy's protocol.
    pub fn name(self) -> &'static str {
        match self {
            Self::Undecided => "UNDECIDED",
            Self::Ok => "OK",
            Self::OverLimit => "OVER_LIMIT",
        }
    }

    fn of(code: wire::rate_limit_response::Code) -> Self {
        match code {
            wire::rate_limit_response::Code::OverLimit => Self::OverLimit,
            wire::rate_limit_response::Code::Ok | wire::rate_limit_response::Code::Unknown => {
                Self::Ok
            }
        }
    }
}

/// The result of a call without a decision. A decision of the service always applies, also one by
/// `on_store_error`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FailureMode {
    /// The call returns [`Error::NoDecision`]: only the service decides.
    #[default]
    Service,
    /// The request is allowed.
    Open,
    /// The request is denied.
    Closed,
}

/// The error of a call.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The service did not decide: it cannot be reached, was too late, or its store failed.
    #[error("no decision: {0}")]
    NoDecision(Status),
    /// The service refuses the request, which a retry does not change: it is not valid, or not
    /// permitted. The failure mode does not apply: a request that is never valid would never be
    /// limited.
    #[error("request rejected: {0}")]
    Rejected(Status),
    /// A reserve has at least 1 hit.
    #[error("a reserve has at least 1 hit, found 0")]
    NoHits,
}

impl Error {
    /// Returns the status of gRPC, if the call was sent.
    pub fn status(&self) -> Option<&Status> {
        match self {
            Self::NoDecision(status) | Self::Rejected(status) => Some(status),
            Self::NoHits => None,
        }
    }

    fn of(status: Status) -> Self {
        use tonic::Code::*;
        match status.code() {
            InvalidArgument | NotFound | AlreadyExists | PermissionDenied | Unauthenticated
            | FailedPrecondition | OutOfRange | Unimplemented => Self::Rejected(status),
            Ok | Cancelled | Unknown | DeadlineExceeded | ResourceExhausted | Aborted
            | Internal | Unavailable | DataLoss => Self::NoDecision(status),
        }
    }
}

/// The status of one descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DescriptorStatus {
    /// The answer for the descriptor.
    pub code: Code,
    /// The amount of the limit; `None` if no limit applies.
    pub limit: Option<u32>,
    /// The hits that remain; if over limit, fewer than were asked for.
    pub remaining: u32,
    /// The time until the counter is reset or, if over limit, until the hits may be admitted.
    pub reset_after: Duration,
}

/// The decision for a request. Being over the limit is a value, not an error.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Decision {
    /// `true` to continue. It is `true` in shadow mode, and by [`FailureMode::Open`] without a
    /// decision.
    pub allowed: bool,
    /// The answer of the service.
    pub code: Code,
    /// One status for each descriptor, in order; empty without a decision.
    pub statuses: Vec<DescriptorStatus>,
    /// The time after which to try again, if the request is over limit; `None` if it is unknown, or
    /// if a retry is never admitted.
    pub retry_after: Option<Duration>,
    /// Names and values of headers for the caller's own response, if the service sends them.
    pub headers: Vec<(String, String)>,
    /// The reason, if the service did not decide.
    pub error: Option<Error>,
}

impl Decision {
    /// Returns the value of the HTTP header `Retry-After`: whole seconds, rounded up; 1 without a
    /// decision, and `None` if the service says no time, since a retry is never admitted.
    pub fn retry_after_seconds(&self) -> Option<u64> {
        let without_decision = (self.code == Code::Undecided).then_some(Duration::ZERO);
        let wait = self.retry_after.or(without_decision)?;
        Some((wait.as_secs() + u64::from(wait.subsec_nanos() > 0)).max(1))
    }

    pub(crate) fn admitted(statuses: Vec<DescriptorStatus>) -> Self {
        Self {
            allowed: true,
            code: Code::Ok,
            statuses,
            retry_after: None,
            headers: Vec::new(),
            error: None,
        }
    }

    pub(crate) fn undecided(allowed: bool, error: Option<Error>) -> Self {
        Self { allowed, code: Code::Undecided, error, ..Self::admitted(Vec::new()) }
    }

    /// Returns the decision of a response.
    ///
    /// # Errors
    /// It has no known code, and only the service decides.
    pub(crate) fn of_response(
        response: wire::RateLimitResponse,
        mode: FailureMode,
        shadow: bool,
    ) -> Result<Self, Error> {
        if response.overall_code() == wire::rate_limit_response::Code::Unknown {
            let found = response.overall_code;
            let status = Status::internal(format!("the answer has the unknown code {found}"));
            return Self::of_failure(status, mode, shadow);
        }
        let code = Code::of(response.overall_code());
        let statuses: Vec<_> = response.statuses.iter().map(descriptor_status).collect();
        let denied = statuses.iter().filter(|status| status.code == Code::OverLimit);
        let waits = denied.map(|status| status.reset_after);
        // The wait for one of them may be never over, or unknown.
        let is_known = waits.clone().all(|wait| !wait.is_zero());
        let retry_after = waits.max().filter(|_| is_known);
        let headers = response.response_headers_to_add.into_iter();
        Ok(Self {
            allowed: shadow || code == Code::Ok,
            code,
            retry_after: retry_after.filter(|_| code == Code::OverLimit),
            statuses,
            headers: headers.map(|header| (header.key, header.value)).collect(),
            error: None,
        })
    }

    /// Returns the decision for a call that failed.
    ///
    /// # Errors
    /// Only the service decides, or it refuses the request.
    pub(crate) fn of_failure(
        status: Status,
        mode: FailureMode,
        shadow: bool,
    ) -> Result<Self, Error> {
        let error = Error::of(status);
        if shadow {
            return Ok(Self::undecided(true, Some(error)));
        }
        if matches!(error, Error::Rejected(_)) || mode == FailureMode::Service {
            return Err(error);
        }
        Ok(Self::undecided(mode == FailureMode::Open, Some(error)))
    }
}

fn descriptor_status(status: &wire::rate_limit_response::DescriptorStatus) -> DescriptorStatus {
    DescriptorStatus {
        code: Code::of(status.code()),
        limit: status.current_limit.as_ref().map(|limit| limit.requests_per_unit),
        remaining: status.limit_remaining,
        reset_after: duration(status.duration_until_reset.as_ref()),
    }
}

/// Returns a duration of the protocol; 0 if it is absent or negative.
pub(crate) fn duration(found: Option<&prost_types::Duration>) -> Duration {
    found.and_then(|found| Duration::try_from(*found).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_the_longest_wait_of_those_that_deny_in_whole_seconds_rounded_up() {
        use wire::rate_limit_response::{Code, DescriptorStatus as Status};
        let status = |code: Code, nanos| Status {
            code: code.into(),
            duration_until_reset: Some(prost_types::Duration { seconds: 2, nanos }),
            ..Status::default()
        };
        let ok = Status {
            duration_until_reset: Some(prost_types::Duration { seconds: 60, nanos: 0 }),
            ..status(Code::Ok, 0)
        };
        let statuses = vec![status(Code::OverLimit, 0), status(Code::OverLimit, 1), ok];
        let overall_code = Code::OverLimit.into();
        let response = wire::RateLimitResponse {
            overall_code,
            statuses,
            ..wire::RateLimitResponse::default()
        };
        let decision = Decision::of_response(response, FailureMode::Service, false).unwrap();
        assert_eq!(decision.retry_after, Some(Duration::new(2, 1)));
        assert_eq!(decision.retry_after_seconds(), Some(3));
        assert_eq!(Decision::undecided(false, None).retry_after_seconds(), Some(1));
    }
}
