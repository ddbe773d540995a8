//! Dedicated threads for tasks that must not delay other tasks or be delayed by them.

use std::convert::Infallible;
use std::future::Future;
use std::io;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;

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
    // Begun by the runtime are those of `spawn_blocking` alone.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
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
