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
