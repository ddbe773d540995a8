//! The decision that a request would get now.

use super::OperationError;
use super::workers::WorkerService;
use crate::algorithm::time::Micros;
use crate::descriptor::Request;
use crate::grpc::request::RequestBounds;
use crate::limiter::{Status, StatusKind};
use crate::store::backend::Backend;

/// The decision that a request would get now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptedRequest {
    /// `true` if the request would be admitted.
    pub would_admit: bool,
    /// The status of each descriptor, in order.
    pub statuses: Vec<AttemptedStatus>,
}

/// The status that a descriptor would get now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptedStatus {
    /// Path of the rule, if one applies.
    pub rule: Option<String>,
    /// The result of the descriptor.
    pub kind: StatusKind,
    /// Amount of the window that binds.
    pub limit: Option<u32>,
    /// Maximum hits that a request would be admitted with, before the hits of this one.
    pub remaining: Option<u64>,
    /// Time until the counter resets.
    pub reset_after: Option<Micros>,
}

pub(super) async fn attempt(
    service: &WorkerService<impl Backend>,
    request: &Request<'_>,
    bounds: RequestBounds,
) -> Result<AttemptedRequest, OperationError> {
    let entries = request.descriptors.iter().map(|descriptor| descriptor.entries.len());
    bounds.check(request.domain, entries)?;
    let limiter = service.limiter();
    let snapshot = limiter.snapshot();
    let decision = limiter.peek(&snapshot, request, super::deadline()).await?;
    Ok(AttemptedRequest {
        would_admit: !decision.is_over_limit(),
        statuses: decision.statuses().iter().map(attempted).collect(),
    })
}

fn attempted(status: &Status<'_>) -> AttemptedStatus {
    AttemptedStatus {
        rule: status.rule().map(|rule| rule.path().to_owned()),
        kind: status.kind(),
        limit: status.limit().map(|applied| applied.amount),
        remaining: status.left(),
        reset_after: status.reset_after(),
    }
}
