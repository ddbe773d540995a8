//! The background tasks of the process, by name, and their end.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};
use tracing::debug;

/// Timeout for the tasks that finish by themselves.
const FINISH_TIMEOUT: Duration = Duration::from_secs(1);

/// A background task.
struct NamedTask {
    name: &'static str,
    handle: JoinHandle<()>,
}

/// The background tasks of the process.
#[derive(Default)]
pub(super) struct Tasks {
    /// Tasks without an end, which are aborted.
    endless: Vec<NamedTask>,
    /// Tasks that finish once `ended` is cancelled.
    finishing: Vec<NamedTask>,
    ended: CancellationToken,
}

impl Tasks {
    /// Returns the token that is cancelled when tasks are to finish.
    pub(super) fn token(&self) -> &CancellationToken {
        &self.ended
    }

    /// Returns a future that completes when tasks are to finish.
    pub(super) fn end(&self) -> WaitForCancellationFutureOwned {
        self.ended.clone().cancelled_owned()
    }

    /// Spawns a task without an end.
    pub(super) fn spawn(
        &mut self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        self.add(name, tokio::spawn(task));
    }

    /// Adds a task without an end.
    pub(super) fn add(&mut self, name: &'static str, handle: JoinHandle<()>) {
        self.endless.push(NamedTask { name, handle });
    }

    /// Adds a task that finishes after [`Self::end`].
    pub(super) fn add_finishing(&mut self, name: &'static str, handle: JoinHandle<()>) {
        self.finishing.push(NamedTask { name, handle });
    }

    /// Aborts the tasks without an end.
    pub(super) fn abort_endless(&mut self) {
        self.endless.drain(..).for_each(|task| task.handle.abort());
    }

    /// Lets the other tasks finish, and waits for them for a bounded time.
    pub(super) async fn finish(self) {
        self.ended.cancel();
        let all = async {
            for NamedTask { name, handle } in self.finishing {
                if let Err(error) = handle.await {
                    debug!(name, %error, "background task failed");
                }
            }
        };
        if tokio::time::timeout(FINISH_TIMEOUT, all).await.is_err() {
            debug!("background tasks did not finish in time");
        }
    }
}
