//! The composition root: the only module that names every concrete type.
//!
//! A process has five phases: `prepare` binds listeners and loads policies, and reports all
//! errors together; `build` makes the parts of the service; `serve` opens the ports; at shutdown
//! the service drains, and stops.
//!
//! | file | subject |
//! |---|---|
//! | `prepare`, `build`, `serve`, `running` | the phases of a process, in order |
//! | `cannot_start` | the errors of the first phase |
//! | `ports`, `listener`, `connection_limits` | listeners, and the bounds of their connections |
//! | `workers`, `serving`, `connection_log` | the gRPC service, one per core; its connections |
//! | `http`, `plain_pages`, `rights` | HTTP: its servers, pages, tokens |
//! | `certificates` | certificates of listeners |
//! | `decisions`, `json`, `forward_auth`, `openapi` | decisions over HTTP |
//! | `policies`, `policy_watch`, `control_plane`, `candidates` | sources of policies |
//! | `parts`, `stores`, `statistics`, `observation`, `spans` | what a service uses |
//! | `operations` | what operators can see and change |
//! | `readiness` | when the process is ready |
//! | `loan_keys`, `secret_files` | keys that sign receipts of loans; secrets that others can read |
//! | `tasks`, `threads` | background tasks, and their end |

mod build;
mod candidates;
mod cannot_start;
mod certificates;
mod connection_limits;
mod connection_log;
mod control_plane;
mod decisions;
mod forward_auth;
mod http;
mod json;
pub mod listener;
mod loan_keys;
mod observation;
mod openapi;
mod operations;
mod parts;
mod plain_pages;
mod policies;
mod policy_watch;
mod ports;
mod prepare;
mod readiness;
mod rights;
mod running;
mod secret_files;
mod serve;
mod serving;
mod spans;
mod statistics;
mod stores;
mod tasks;
mod threads;
pub mod workers;

use std::future::Future;

use self::build::{Built, build};
pub use self::cannot_start::CannotStart;
pub use self::prepare::{Prepared, prepare};
pub use self::stores::{OpenStore, StoreParts};
use crate::operations::Backend;
use crate::settings::{Settings, ShutdownSettings};

/// Serves with the store that the settings select until `shutdown` completes, then drains.
///
/// # Errors
/// A thread or a runtime cannot be created, or a listener fails to listen.
pub async fn run(
    settings: Settings,
    prepared: Prepared,
    shutdown: impl Future<Output = ()>,
) -> std::io::Result<()> {
    let open = stores::selected(&settings.store);
    run_over(open, settings, prepared, shutdown).await
}

/// Serves with any store, of which `open` creates a handle for each runtime.
///
/// # Errors
/// As for [`run`].
pub async fn run_over<B: Backend>(
    open: OpenStore<B>,
    settings: Settings,
    prepared: Prepared,
    shutdown: impl Future<Output = ()>,
) -> std::io::Result<()> {
    let ShutdownSettings { delay, timeout } = settings.shutdown;
    secret_files::announce(&settings);
    let built = build(open, settings, prepared).await?;
    let Built { operators, callers, probed, mut running } = built;
    operators.serve(&mut running.tasks)?;
    tokio::select! {
        served = callers.serve(&mut running) => served?,
        () = probed.drain(shutdown, delay) => {}
    }
    running.stop(timeout).await;
    Ok(())
}
