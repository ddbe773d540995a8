//! Background work that continues after the response: bounded, and awaited at shutdown.

use std::future::Future;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;
use tollgate_core::backoff::Backoff;

use super::StoreError;
use super::clock::instant;

/// Maximum number of pending tasks. A store with a longer backlog will not catch up in time.
const MAX_PENDING: usize = 10_000;

/// Waits while the store is unavailable.
const FIRST_WAIT: Duration = Duration::from_millis(10);
const LONGEST_WAIT: Duration = Duration::from_millis(200);

/// Tracker of background tasks.
#[derive(Clone, Debug, Default)]
pub(super) struct Background(TaskTracker);

impl Background {
    /// Spawns `work` and returns `true`, unless too many tasks are pending or the runtime is gone.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> bool {
        match Handle::try_current() {
            Ok(runtime) if self.0.len() < MAX_PENDING => {
                self.0.spawn_on(work, &runtime);
                true
            }
            Ok(_) | Err(_) => false,
        }
    }

    /// Waits until no task is pending.
    pub(super) async fn settled(&self) {
        self.0.close();
        self.0.wait().await;
        self.0.reopen();
    }
}

/// Calls the store, and retries until `deadline` while nothing was sent to it. After any other
/// error the call may have been executed, or never will be.
pub(super) async fn until_sent<T, F>(
    deadline: Instant,
    mut call: impl FnMut() -> F,
) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
    loop {
        let wait = backoff.next(1.0);
        match call().await {
            Err(StoreError::Unavailable)
                if instant().checked_add(wait).is_some_and(|next| next < deadline) =>
            {
                tokio::time::sleep(wait).await;
            }
            called => return called,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio_util::sync::CancellationToken;

    use super::*;

    #[tokio::test]
    async fn work_is_refused_beyond_a_bound_and_begins_again_after_it_is_awaited() {
        let background = Background::default();
        let end = CancellationToken::new();
        let done = Arc::new(AtomicUsize::new(0));
        let spawn = || {
            let end = end.clone();
            let done = Arc::clone(&done);
            background.spawn(async move {
                end.cancelled().await;
                done.fetch_add(1, Ordering::Relaxed);
            })
        };
        assert!((0..MAX_PENDING).all(|_| spawn()));
        assert!(!spawn());
        end.cancel();
        background.settled().await;
        assert_eq!(done.load(Ordering::Relaxed), MAX_PENDING);
        assert!(spawn());
        background.settled().await;
        assert_eq!(done.load(Ordering::Relaxed), MAX_PENDING + 1);
    }

    /// Returns the last result of a call, and how often it was made in which time: until it has
    /// failed in this way so many times.
    async fn calls(
        fails: usize,
        error: StoreError,
        until: Duration,
    ) -> (Result<(), StoreError>, usize, Duration) {
        let begun = instant();
        let count = AtomicUsize::new(0);
        let call = || {
            let number = count.fetch_add(1, Ordering::Relaxed);
            async move { if number < fails { Err(error) } else { Ok(()) } }
        };
        let called = until_sent(begun.checked_add(until).unwrap(), call).await;
        let time = instant().saturating_duration_since(begun);
        (called, count.into_inner(), time)
    }

    #[tokio::test(start_paused = true)]
    async fn only_calls_that_were_not_sent_are_made_again_and_until_the_deadline() {
        let [at_once, second] = [0, 1].map(Duration::from_secs);
        let down = StoreError::Unavailable;
        assert_eq!(calls(0, down, second).await, (Ok(()), 1, at_once));
        for error in [StoreError::Late, StoreError::Lost, StoreError::Refused] {
            assert_eq!(calls(9, error, second).await, (Err(error), 1, at_once));
        }
        let (called, count, time) = calls(3, down, second).await;
        assert_eq!((called, count), (Ok(()), 4));
        assert!((FIRST_WAIT * 3..LONGEST_WAIT * 3).contains(&time), "{time:?}");
        let (called, count, time) = calls(usize::MAX, down, second).await;
        assert_eq!(called, Err(down));
        assert!(count > 4 && time < second, "{count} calls in {time:?}");
        assert!(time + LONGEST_WAIT >= second, "{time:?}");
        let first = Backoff::new(FIRST_WAIT, LONGEST_WAIT).next(1.0);
        assert_eq!(calls(9, down, first).await, (Err(down), 1, at_once), "none at the deadline");
    }
}
