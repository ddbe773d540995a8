//! One thread and current-thread runtime a core, with connections dealt to them in turn.
//!
//! Measured: on a shared multi-thread runtime each answer is a write of its own and costs twice the CPU; with the kernel dealing
//! connections (SO_REUSEPORT) cores are used unevenly.

use std::future::Future;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use super::listener::Listener;
use crate::transport::permits::ConnectionPermits;
use crate::transport::socket::Accepted;

/// Accepted connections that may wait for a worker.
const BACKLOG: usize = 256;
/// Pause after a failed accept, which is mostly a lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Running workers.
pub struct Workers {
    queues: Vec<mpsc::Sender<Accepted>>,
    threads: Vec<JoinHandle<()>>,
    /// Send GOAWAY, finish what is under way.
    drain: CancellationToken,
    /// Drop what is under way.
    abort: CancellationToken,
}

impl Workers {
    /// Starts `count` workers, each of which runs `serve` on its connections until there are no more. The token tells when they shall
    /// end.
    ///
    /// # Errors
    /// Where threads or runtimes cannot be had.
    pub fn start<F: Future<Output = ()>>(
        count: usize,
        serve: impl Fn(mpsc::Receiver<Accepted>, CancellationToken) -> F + Clone + Send + 'static,
    ) -> std::io::Result<Self> {
        let mut workers =
            Self { queues: vec![], threads: vec![], drain: CancellationToken::new(), abort: CancellationToken::new() };
        for number in 0..count {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let (queue, incoming) = mpsc::channel(BACKLOG);
            // A token of its own, whose lock no other core takes.
            let (serve, drain, abort) = (serve.clone(), workers.drain.child_token(), workers.abort.clone());
            // Made on its own thread, so that what a worker runs need not be able to leave it.
            let work = move || async move {
                tokio::select! {
                    () = serve(incoming, drain) => {}
                    () = abort.cancelled_owned() => warn!("connections were cut off at the end of the drain"),
                }
            };
            let thread = std::thread::Builder::new().name(format!("grpc-{number}"));
            workers.threads.push(thread.spawn(move || runtime.block_on(work()))?);
            workers.queues.push(queue);
        }
        Ok(workers)
    }

    /// Accepts connections and deals them to the workers in turn, until dropped. Those without a permit are closed.
    pub async fn accept(&self, listener: &Listener, permits: &ConnectionPermits) {
        for queue in self.queues.iter().cycle() {
            let accepted = loop {
                match listener.accept().await.map(|carrier| (carrier, permits.take())) {
                    Ok((carrier, Some(permit))) => break Accepted { carrier, permit },
                    Ok((_, None)) => {}
                    Err(error) => {
                        warn!(%error, "a connection could not be accepted");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                }
            };
            if queue.send(accepted).await.is_err() {
                error!("a worker has ended; its connection is dropped");
            }
        }
    }

    /// Ends all connections, gracefully within `timeout`; says whether that was enough.
    pub async fn stop(self, timeout: Duration) -> bool {
        self.drain.cancel();
        drop(self.queues);
        let threads = self.threads;
        let mut joined = tokio::task::spawn_blocking(move || threads.into_iter().all(|thread| thread.join().is_ok()));
        if tokio::time::timeout(timeout, &mut joined).await.is_ok() {
            return true;
        }
        self.abort.cancel();
        let _ = joined.await;
        false
    }
}
