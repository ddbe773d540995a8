//! Answers to callers that are no proxies: they receive the hits that remain of a limit that
//! denies, and the time of a retry.

use tonic::Status;

use super::{Caller, Rls};
use crate::grpc::response::{self, AnswerStyle};
use crate::limiter::Decision;
use crate::store::Store;

/// Overall code of an answer to a caller that is no proxy.
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
    pub(super) fn of(decision: &Decision<'_>) -> Self {
        if !decision.is_over_limit() {
            return Self::Ok;
        }
        Self::OverLimit { retry_after: response::retry_seconds(decision) }
    }
}

impl<S: Store> Rls<S> {
    /// Decides an encoded `RateLimitRequest` as [`answer`](Self::answer) does.
    ///
    /// # Errors
    /// Those of [`answer`](Self::answer).
    pub fn answer_caller(
        &self,
        message: &[u8],
        caller: Caller<'_>,
        answer: &mut Vec<u8>,
    ) -> impl Future<Output = Result<CallerAnswer, Status>> + Send {
        self.answer_with(message, caller, None, answer, write_to_caller)
    }
}

/// Encodes a decision, and returns its overall code.
fn write_to_caller(
    decision: &Decision<'_>,
    style: &AnswerStyle,
    answer: &mut Vec<u8>,
) -> CallerAnswer {
    response::write_to_caller(decision, style, answer);
    CallerAnswer::of(decision)
}
