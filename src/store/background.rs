//! Work that goes on after a caller was answered: bounded, and waited for before the process ends.

use std::future::Future;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio_util::task::TaskTracker;

use super::StoreError;

/// Pieces of work under way at once: a store that is further behind will not catch up in time.
const MAX_PENDING: usize = 10_000;

/// Waits before a store that was away is asked again: they double from the first to the longest.
const FIRST_WAIT: Duration = Duration::from_millis(10);
const LONGEST_WAIT: Duration = Duration::from_millis(200);

/// Work under way.
#[derive(Clone, Debug, Default)]
pub(super) struct Background(TaskTracker);

impl Background {
    /// Begins `work`, unless too much is under way or the runtime is gone; returns whether it did.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> bool {
        match Handle::try_current() {
            Ok(runtime) if self.0.len() < MAX_PENDING => {
                self.0.spawn_on(work, &runtime);
                true
            }
            Ok(_) | Err(_) => false,
        }
    }

    /// Waits until none is under way.
    pub(super) async fn settled(&self) {
        self.0.close();
        self.0.wait().await;
        self.0.reopen();
    }
}

/// Calls the store, and again until `deadline` if nothing was sent to it. After any other error the call may have been carried out,
/// or never will be.
pub(super) async fn until_sent<T, F>(deadline: Instant, mut call: impl FnMut() -> F) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let mut wait = FIRST_WAIT;
    loop {
        match call().await {
            Err(StoreError::Unavailable) if Instant::now().checked_add(wait).is_some_and(|next| next < deadline) => {
                tokio::time::sleep(wait).await;
            }
            called => return called,
        }
        wait = wait.saturating_mul(2).min(LONGEST_WAIT);
    }
}
