//! Threads on which requests over HTTP are decided, so that neither probes nor new gRPC connections
//! wait for them: parsing JSON is slow.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use tokio_util::task::AbortOnDropHandle;

use super::threads;

/// Capacity of the queue to the thread. The handlers bound how many requests are decided at a time.
const MAX_WAITING: usize = 16;
/// Response while the process shuts down.
pub(super) const ENDED: &str = "shutting down";

/// A decision, with what becomes of it.
type DecisionJob = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A handle of the thread, which ends when the last one is dropped.
#[derive(Clone)]
pub(super) struct DecisionThread {
    jobs: mpsc::Sender<DecisionJob>,
    _thread: Arc<AbortOnDropHandle<()>>,
}

impl DecisionThread {
    /// Starts a thread of this name, which calls `prepare` first.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(super) fn start(name: &'static str, prepare: fn()) -> io::Result<Self> {
        let (jobs, mut receiver) = mpsc::channel::<DecisionJob>(MAX_WAITING);
        let thread = threads::spawn(name, move || async move {
            prepare();
            while let Some(job) = receiver.recv().await {
                tokio::spawn(job);
            }
        })?;
        Ok(Self { jobs, _thread: Arc::new(AbortOnDropHandle::new(thread)) })
    }

    /// Runs `decide` on the thread; `None` if the process shuts down.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        decide: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        let (reply, replied) = oneshot::channel();
        let job = Box::pin(async move {
            // A client that is gone gets no reply.
            let _ = reply.send(decide.await);
        });
        self.jobs.send(job).await.ok()?;
        replied.await.ok()
    }
}
