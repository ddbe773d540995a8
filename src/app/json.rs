//! Decisions in JSON over HTTP.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::AbortOnDropHandle;

use super::threads;
use crate::admin::{Decide, DecidePath, Decided};
use crate::grpc::json::{self, HoldPath};
use crate::grpc::rights::DomainRights;
use crate::grpc::service::{Answered, RefusalKind};
use crate::http2::Budget;
use crate::operations::workers::WorkerService;
use crate::settings::LimitSettings;
use crate::store::backend::Backend;

/// Capacity of the queue to the thread. `Decide` bounds how many requests are decided concurrently.
const MAX_WAITING: usize = 16;
/// Response while the process shuts down.
const ENDED: &str = "shutting down";

/// A body with the channel for its response.
type JsonRequest = (DecidePath, Bytes, oneshot::Sender<Decided>);

/// Decides requests with `service`. Bodies are charged to `budget`.
///
/// Refuses all requests if gRPC clients have individual rights: HTTP does not authenticate clients,
/// and would bypass those rights.
///
/// # Errors
/// The thread cannot be started.
pub(super) fn decide(
    service: &Arc<WorkerService<impl Backend>>,
    limits: &LimitSettings,
    budget: Arc<Budget>,
    clients_have_rights: bool,
) -> io::Result<Decide> {
    let service = Arc::clone(service);
    let (sender, mut receiver) = mpsc::channel::<JsonRequest>(MAX_WAITING);
    // Parsing JSON is slow. Neither probes nor new gRPC connections should wait for it.
    let thread = threads::spawn("json", move || async move {
        json::prepare();
        while let Some((path, body, reply)) = receiver.recv().await {
            let service = Arc::clone(&service);
            tokio::spawn(async move { reply.send(answer(&service, path, &body).await) });
        }
    })?;
    let thread = AbortOnDropHandle::new(thread);
    let decide = Decide::new(limits.message.max_bytes, move |path, body| {
        // The thread ends when the last handle is dropped.
        let _ = &thread;
        let sender = sender.clone();
        async move {
            if clients_have_rights {
                return Decided::Forbidden(
                    "--allow disables decisions over HTTP, which does not identify clients; use gRPC".to_owned(),
                );
            }
            let (reply, replied) = oneshot::channel();
            if sender.send((path, body, reply)).await.is_err() {
                return Decided::Undecided(ENDED.to_owned());
            }
            replied.await.unwrap_or_else(|_| Decided::Undecided(ENDED.to_owned()))
        }
    });
    Ok(decide.charged_by(move |bytes| budget.hold(bytes).ok()))
}

async fn answer(service: &WorkerService<impl Backend>, path: DecidePath, body: &[u8]) -> Decided {
    let rights = &DomainRights::All;
    let mut answer = Vec::new();
    let answered = match hold_path(path) {
        None => match json::request_text(body) {
            Ok(message) => service.answer(&message, None, rights, None, &mut answer).await,
            Err(error) => return Decided::Invalid(error.to_string()),
        },
        Some(path) => match json::hold_text(path, body) {
            Ok(call) => service.hold(call, None, rights, None, &mut answer).await,
            Err(error) => return Decided::Invalid(error.to_string()),
        },
    };
    let answered = match answered {
        Ok(answered) => answered,
        Err(status) => {
            let why = status.message().to_owned();
            return match RefusalKind::of(&status) {
                RefusalKind::Invalid => Decided::Invalid(why),
                RefusalKind::NothingOpen => Decided::NotFound(why),
                RefusalKind::OtherOpen => Decided::Conflict(why),
                RefusalKind::Undecided => Decided::Undecided(why),
            };
        }
    };
    match (json::response(&answer), answered) {
        (Ok(text), Answered::OverLimit) => Decided::OverLimit(text.to_string()),
        (Ok(text), Answered::Ok) => Decided::Ok(text.to_string()),
        (Err(error), _) => Decided::Undecided(error.to_string()),
    }
}

/// Returns the method of `HoldService` that a path stands for; `None` for a decision.
fn hold_path(path: DecidePath) -> Option<HoldPath> {
    match path {
        DecidePath::RateLimit => None,
        DecidePath::Reserve => Some(HoldPath::Reserve),
        DecidePath::Extend => Some(HoldPath::Extend),
        DecidePath::Commit => Some(HoldPath::Commit),
        DecidePath::Cancel => Some(HoldPath::Cancel),
    }
}
