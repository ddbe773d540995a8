//! Work that goes on after a caller was answered: bounded, and waited for before the process ends.

use std::future::Future;

use tokio_util::task::TaskTracker;

/// Pieces of work under way at once: a store that is further behind will not catch up in time.
const MAX_PENDING: usize = 10_000;

/// Work under way.
#[derive(Debug, Default)]
pub(super) struct Background(TaskTracker);

impl Background {
    /// Begins `work`, unless too much is under way; says whether it did.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) -> bool {
        let has_room = self.0.len() < MAX_PENDING;
        if has_room {
            self.0.spawn(work);
        }
        has_room
    }

    /// Waits until none is under way.
    pub(super) async fn settled(&self) {
        self.0.close();
        self.0.wait().await;
        self.0.reopen();
    }
}
