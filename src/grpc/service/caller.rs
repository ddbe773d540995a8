//! Overall codes of answers.

use crate::grpc::response;
use crate::limiter::Decision;

/// Overall code of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallerAnswer {
    /// The request is admitted.
    Ok,
    /// The request is denied.
    OverLimit {
        /// Seconds after which a retry is worth it; `None` if it is never admitted.
        retry_after: Option<u64>,
    },
}

impl CallerAnswer {
    #[inline]
    pub(super) fn of(decision: &Decision<'_>) -> Self {
        if !decision.is_over_limit() {
            return Self::Ok;
        }
        Self::OverLimit { retry_after: response::retry_seconds(decision) }
    }
}
