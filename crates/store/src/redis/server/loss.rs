//! The loss of a connection.

use std::time::Duration;

use tokio::time::Instant;

/// Time after the loss of a connection for which calls wait for its replacement, within their
/// deadlines, although an attempt to connect has failed; later calls fail immediately.
const RECONNECT_TIMEOUT: Duration = Duration::from_millis(50);

/// The last loss of a connection, or the start of the first attempt to connect.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loss {
    at: Instant,
    has_failed_attempt: bool,
}

impl Loss {
    pub(super) fn now() -> Self {
        Self { at: Instant::now(), has_failed_attempt: false }
    }

    pub(super) fn record_failed_attempt(&mut self) {
        self.has_failed_attempt = true;
    }

    /// Returns the time until which a call with this deadline waits for another connection. The
    /// first attempt is waited for, since it ends within the connect timeout.
    pub(super) fn wait_until(self, deadline: Instant) -> Instant {
        if !self.has_failed_attempt {
            return deadline;
        }
        self.at.checked_add(RECONNECT_TIMEOUT).unwrap_or(self.at).min(deadline)
    }

    /// Returns `true` while calls wait for another connection.
    pub(super) fn may_soon_be_over(self) -> bool {
        !self.has_failed_attempt || self.at.elapsed() < RECONNECT_TIMEOUT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn calls_wait_for_the_first_attempt_and_only_briefly_for_later_ones() {
        let mut loss = Loss::now();
        let deadline = Instant::now() + Duration::from_secs(1);
        tokio::time::advance(RECONNECT_TIMEOUT * 2).await;
        assert!(loss.may_soon_be_over());
        assert_eq!(loss.wait_until(deadline), deadline);
        loss.record_failed_attempt();
        assert!(!loss.may_soon_be_over());
        assert!(loss.wait_until(deadline) < Instant::now());
    }
}
