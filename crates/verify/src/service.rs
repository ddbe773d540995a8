//! The service that is verified, as its clients see it.

use std::fmt::Display;
use std::time::Duration;

use tollgate_core::algorithm::time::Micros;

use crate::history::CallAction;

/// A connection to the service.
pub trait VerifiedService {
    /// An error of the service or of the connection.
    type Error: Display;

    /// Sends a request, with a deadline that the service is informed of.
    fn decide(
        &mut self,
        request: VerifyRequest,
        deadline: Duration,
    ) -> impl Future<Output = Result<ServiceDecision, Self::Error>>;
}

/// A request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyRequest {
    /// Domain of the policy.
    pub domain: String,
    /// Descriptors, each with the keys and values of its entries.
    pub descriptors: Vec<Vec<(String, String)>>,
    /// Effect on the counters.
    pub action: CallAction,
    /// Hits to charge at each counter; of a commit, the cost.
    pub hits: u64,
    /// ID of the hold; empty without one.
    pub hold: String,
}

/// The decision on a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceDecision {
    /// `true` if the request was denied.
    pub is_denied: bool,
    /// The decision on each descriptor, in order.
    pub descriptors: Vec<DescriptorDecision>,
}

/// The decision on a descriptor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DescriptorDecision {
    /// `true` if its limit denied the hits.
    pub is_denied: bool,
    /// The status of its limit; `None` if the service reports none, as without its store.
    pub status: Option<LimitStatus>,
}

/// The status of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitStatus {
    /// Hits per period.
    pub amount: u32,
    /// Length of the period; `None` if it is unknown.
    pub period: Option<Micros>,
    /// Remaining hits.
    pub remaining: u64,
    /// Time until the reset, in seconds rounded down; `None` if it is unknown.
    pub reset: Option<u64>,
}
