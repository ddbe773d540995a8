//! Reasons for which the connection refuses a call without its service.

/// Reason for refusing a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A message is larger than its route allows.
    MessageTooLarge {
        /// Maximum size in bytes.
        max: usize,
    },
    /// The body, or a message of it, did not arrive in time.
    BodyTooSlow,
    /// The memory budget is exhausted.
    BudgetExceeded,
}
