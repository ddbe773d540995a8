//! Dedicated threads for tasks that must not delay other tasks or be delayed by them.

use std::convert::Infallible;
use std::future::Future;
use std::io;

use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tracing::error;

/// Nice value of threads for long tasks, so that decisions run first if cores are scarce.
const WORK_NICE: i32 = 10;

/// Lowers the priority of this thread, if the system allows it.
fn lower_priority() {
    // Linux applies it to the calling thread alone.
    let _ = rustix::process::nice(WORK_NICE);
}

/// Runs `work` on a thread with a runtime of its own, until it ends or the handle is aborted.
///
/// # Errors
/// The thread or its runtime cannot be created.
pub(super) fn spawn<F: Future<Output = ()>>(
    name: &str,
    work: impl FnOnce() -> F + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let (alive, aborted) = oneshot::channel::<Infallible>();
    let (running, ended) = oneshot::channel::<Infallible>();
    // Starts one thread for `spawn_blocking`. By default the runtime starts another if the thread
    // of the last task is not idle yet, up to 512, and the allocator keeps some MiB for each.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(1)
        .on_thread_start(lower_priority)
        .build()?;
    std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                () = work() => {}
                _ = aborted => {}
            }
        });
        // Dropping the runtime would wait for blocking tasks, such as rendering or compilation.
        runtime.shutdown_background();
        drop(running);
    })?;
    Ok(tokio::spawn(async move {
        let _alive = alive;
        // Always completes with an error, since no value is ever sent.
        let _ = ended.await;
    }))
}

/// Serves a listener on a thread with a runtime of its own, until `serve` ends or the handle is
/// aborted.
///
/// # Errors
/// As for [`spawn`].
pub(super) fn serve<F: Future<Output = ()>>(
    name: &'static str,
    listener: TcpListener,
    serve: impl FnOnce(TcpListener) -> F + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    // A listener belongs to the runtime that it was made in.
    let listener = listener.into_std()?;
    spawn(name, move || async move {
        match TcpListener::from_std(listener) {
            Ok(listener) => serve(listener).await,
            Err(error) => error!(%error, "failed to serve {name}"),
        }
    })
}

#[cfg(test)]
mod tests {
    use std::thread::ThreadId;

    use super::*;

    #[tokio::test]
    async fn blocking_tasks_of_a_thread_share_one_other() {
        let (sender, found) = oneshot::channel::<Vec<ThreadId>>();
        let work = || async {
            let tasks: Vec<_> = (0..8)
                .map(|_| tokio::task::spawn_blocking(|| std::thread::current().id()))
                .collect();
            let mut threads = Vec::new();
            for task in tasks {
                threads.extend(task.await);
            }
            let _ = sender.send(threads);
        };
        spawn("test", work).unwrap().await.unwrap();
        let threads = found.await.unwrap();
        assert_eq!(threads, [threads[0]; 8]);
    }
}
