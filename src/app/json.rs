//! Decisions in JSON over HTTP.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};
use tokio_util::task::AbortOnDropHandle;

use super::serving::WorkerService;
use super::threads;
use crate::admin::{Decide, Decided};
use crate::grpc::json;
use crate::grpc::rights::DomainRights;
use crate::grpc::service::{Answered, is_callers_fault};
use crate::settings::LimitSettings;
use crate::transport::Budget;

/// Capacity of the queue to the thread. `Decide` bounds how many requests are decided concurrently.
const MAX_WAITING: usize = 16;
/// Response while the process shuts down.
const ENDED: &str = "shutting down";

/// A body with the channel for its response.
type JsonRequest = (Bytes, oneshot::Sender<Decided>);

/// Decides requests with `service`. Bodies are charged to `budget`.
///
/// Refuses all requests if gRPC clients have individual rights: HTTP does not authenticate clients,
/// and would bypass those rights.
///
/// # Errors
/// The thread cannot be started.
pub(super) fn decide(
    service: &Arc<WorkerService>,
    limits: &LimitSettings,
    budget: Arc<Budget>,
    clients_have_rights: bool,
) -> io::Result<Decide> {
    let service = Arc::clone(service);
    let (asking, mut asked) = mpsc::channel::<JsonRequest>(MAX_WAITING);
    // Parsing JSON is slow. Neither probes nor new gRPC connections should wait for it.
    let thread = threads::spawn("json", move || async move {
        while let Some((body, reply)) = asked.recv().await {
            let service = Arc::clone(&service);
            tokio::spawn(async move { reply.send(answer(&service, &body).await) });
        }
    })?;
    let thread = AbortOnDropHandle::new(thread);
    let decide = Decide::new(limits.message.max_bytes, move |body| {
        // The thread ends when the last handle is dropped.
        let _ = &thread;
        let asking = asking.clone();
        async move {
            if clients_have_rights {
                return Decided::Forbidden(
                    "--allow disables decisions over HTTP, which does not identify clients; use gRPC".to_owned(),
                );
            }
            let (reply, replied) = oneshot::channel();
            if asking.send((body, reply)).await.is_err() {
                return Decided::Undecided(ENDED.to_owned());
            }
            replied.await.unwrap_or_else(|_| Decided::Undecided(ENDED.to_owned()))
        }
    });
    Ok(decide.charged_by(move |bytes| budget.hold(bytes).ok()))
}

async fn answer(service: &WorkerService, body: &[u8]) -> Decided {
    let message = match json::request_text(body) {
        Ok(message) => message,
        Err(error) => return Decided::Invalid(error.to_string()),
    };
    let mut answer = Vec::new();
    let answered = match service.answer(&message, None, &DomainRights::All, None, &mut answer).await {
        Ok(answered) => answered,
        Err(status) if is_callers_fault(&status) => return Decided::Invalid(status.message().to_owned()),
        Err(status) => return Decided::Undecided(status.message().to_owned()),
    };
    match (json::response(&answer), answered) {
        (Ok(text), Answered::OverLimit) => Decided::OverLimit(text.to_string()),
        (Ok(text), Answered::Ok) => Decided::Ok(text.to_string()),
        (Err(error), _) => Decided::Undecided(error.to_string()),
    }
}
