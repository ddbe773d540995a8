//! The statuses of calls whose messages the connection refuses.

use std::sync::Arc;
use std::time::Duration;

use tonic::Status;

use crate::http2::{BodyError, BudgetExceeded, Refusal};
use crate::telemetry::metrics::Metrics;

/// Counts refusals of messages, and explains them.
#[derive(Clone, Debug)]
pub(super) struct Refusals {
    metrics: Arc<Metrics>,
    /// Timeout for receiving a message.
    timeout: Duration,
}

impl Refusals {
    pub(super) fn new(metrics: Arc<Metrics>, timeout: Duration) -> Self {
        Self { metrics, timeout }
    }

    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Returns the status of a refused call, and counts it.
    pub(super) fn status(&self, refusal: Refusal) -> Status {
        let clients = &self.metrics.clients;
        match refusal {
            Refusal::MessageTooLarge { max } => {
                clients.oversized_messages.inc();
                Status::out_of_range(format!("message exceeds the limit of {max} bytes"))
            }
            Refusal::BodyTooSlow => {
                clients.slow_calls.inc();
                let timeout = self.timeout;
                Status::deadline_exceeded(format!("message not received within {timeout:?}"))
            }
            Refusal::BudgetExceeded => {
                clients.slow_calls.inc();
                Status::resource_exhausted(BudgetExceeded.to_string())
            }
        }
    }

    /// Returns the status of a call whose body has ended early.
    pub(super) fn of_body(&self, error: BodyError) -> Status {
        match error {
            BodyError::Refused(refusal) => self.status(refusal),
            BodyError::Cancelled => Status::cancelled(error.to_string()),
            BodyError::Truncated => Status::internal(error.to_string()),
        }
    }
}
