//! Workers: one thread with a current-thread runtime per core. Connections are assigned to them
//! round-robin.
//!
//! Measured: on a shared multi-thread runtime each response is a separate write and costs twice the
//! CPU; if the kernel distributes connections (`SO_REUSEPORT`), the load on the cores is uneven.

use std::future::Future;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use super::listener::Listener;
use crate::http2::registry::Registry;
use crate::http2::socket::Accepted;
use crate::telemetry::log_throttle::LogThrottle;

/// Maximum number of accepted connections that wait for a worker.
const BACKLOG: usize = 256;
/// Pause after a failed accept, which is mostly caused by a lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The running workers.
pub struct Workers {
    queues: Vec<mpsc::Sender<Accepted>>,
    threads: Vec<JoinHandle<()>>,
    /// Makes workers send GOAWAY and finish pending calls.
    drain: CancellationToken,
    /// Makes workers drop pending calls.
    abort: CancellationToken,
}

impl Workers {
    /// Starts `count` workers. Each runs `serve` on its connections until there are no more; the
    /// token is cancelled when they should drain.
    ///
    /// # Errors
    /// A thread or a runtime cannot be created.
    pub fn start<F: Future<Output = ()>>(
        count: usize,
        serve: impl Fn(mpsc::Receiver<Accepted>, CancellationToken) -> F + Clone + Send + 'static,
    ) -> std::io::Result<Self> {
        let mut workers = Self {
            queues: vec![],
            threads: vec![],
            drain: CancellationToken::new(),
            abort: CancellationToken::new(),
        };
        for number in 0..count {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let (queue, incoming) = mpsc::channel(BACKLOG);
            // A child token has a lock of its own, so cores do not contend for it.
            let serve = serve.clone();
            let drain = workers.drain.child_token();
            let abort = workers.abort.clone();
            let thread = std::thread::Builder::new().name(format!("grpc-{number}"));
            // The future of a worker is created on its thread, so that it need not be `Send`.
            let thread = thread.spawn(move || {
                runtime.block_on(async move {
                    tokio::select! {
                        () = serve(incoming, drain) => {}
                        () = abort.cancelled_owned() => {
                            warn!("drain timed out; connections dropped");
                        }
                    }
                });
            })?;
            workers.threads.push(thread);
            workers.queues.push(queue);
        }
        Ok(workers)
    }

    /// Accepts connections and assigns them to the workers round-robin, until dropped. Connections
    /// beyond the bounds are closed.
    pub async fn accept(&self, listener: &Listener, registry: &Arc<Registry>) {
        let failed = LogThrottle::default();
        for queue in self.queues.iter().cycle() {
            let accepted = loop {
                match listener.accept().await {
                    Ok(carrier) => {
                        // A client that has left already has no address.
                        let registered = carrier.peer().map(|peer| registry.register(peer));
                        if let Ok(Some(registration)) = registered {
                            break Accepted { carrier, registration };
                        }
                    }
                    Err(error) => {
                        if let Some(times) = failed.due() {
                            warn!(%error, times, "failed to accept a connection");
                        }
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                }
            };
            if queue.send(accepted).await.is_err() {
                error!("worker has ended; connection dropped");
            }
        }
    }

    /// Closes all connections gracefully. Returns `true` if that completed within `timeout`;
    /// otherwise pending calls are dropped.
    pub async fn stop(self, timeout: Duration) -> bool {
        self.drain.cancel();
        drop(self.queues);
        let threads = self.threads;
        // A worker that panicked has ended; the others have calls to finish all the same.
        let mut joined = tokio::task::spawn_blocking(move || {
            threads.into_iter().for_each(|thread| drop(thread.join()));
        });
        if tokio::time::timeout(timeout, &mut joined).await.is_ok() {
            return true;
        }
        self.abort.cancel();
        let _ = joined.await;
        false
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[tokio::test]
    async fn a_worker_that_panics_does_not_end_the_wait_for_the_others() {
        let panicked = CancellationToken::new();
        let finished = Arc::new(AtomicBool::new(false));
        let workers = Workers::start(2, {
            let finished = Arc::clone(&finished);
            move |_, drain: CancellationToken| {
                let panicked = panicked.clone();
                let finished = Arc::clone(&finished);
                async move {
                    drain.cancelled().await;
                    if std::thread::current().name() == Some("grpc-0") {
                        let _panicked = panicked.drop_guard();
                        panic!("the first worker panics");
                    }
                    panicked.cancelled().await;
                    for _ in 0..10_000 {
                        tokio::task::yield_now().await;
                    }
                    finished.store(true, Ordering::Relaxed);
                }
            }
        });
        assert!(workers.unwrap().stop(Duration::from_secs(60)).await);
        assert!(finished.load(Ordering::Relaxed), "the second worker has finished its calls");
    }
}
