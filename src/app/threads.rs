//! Threads of their own for work that must not wait for others, or that others must not wait for.

use std::convert::Infallible;
use std::future::Future;
use std::io;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Runs `work` on a thread with a runtime of its own, until it ends or the handle is aborted.
///
/// # Errors
/// The system has no thread or no runtime to give.
pub(super) fn spawn<F: Future<Output = ()>>(
    name: &str,
    work: impl FnOnce() -> F + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let (alive, aborted) = oneshot::channel::<Infallible>();
    let (running, ended) = oneshot::channel::<Infallible>();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                () = work() => {}
                _ = aborted => {}
            }
        });
        // Dropped, it would wait for what is still being rendered or compiled.
        runtime.shutdown_background();
        drop(running);
    })?;
    Ok(tokio::spawn(async move {
        let _alive = alive;
        // Ends with an error, since nothing is ever sent.
        let _ = ended.await;
    }))
}
