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
use crate::grpc::service::{Answered, CallStatus, RefusalKind};
use crate::operations::workers::WorkerService;
use crate::settings::LimitSettings;
use crate::store::backend::Backend;
use crate::transport::Budget;

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
    match path {
        DecidePath::RateLimit => decide_request(service, body).await,
        DecidePath::Reserve => hold(service, HoldPath::Reserve, body).await,
        DecidePath::Extend => hold(service, HoldPath::Extend, body).await,
        DecidePath::Commit => hold(service, HoldPath::Commit, body).await,
        DecidePath::Cancel => hold(service, HoldPath::Cancel, body).await,
        DecidePath::Exchange => exchange(service, body).await,
    }
}

async fn decide_request(service: &WorkerService<impl Backend>, body: &[u8]) -> Decided {
    let message = match json::request_text(body) {
        Ok(message) => message,
        Err(error) => return Decided::Invalid(error.to_string()),
    };
    let mut answer = Vec::new();
    let answered = service.answer(&message, None, &DomainRights::All, None, &mut answer).await;
    decided(answered, &answer)
}

async fn hold(service: &WorkerService<impl Backend>, path: HoldPath, body: &[u8]) -> Decided {
    let call = match json::hold_text(path, body) {
        Ok(call) => call,
        Err(error) => return Decided::Invalid(error.to_string()),
    };
    let mut answer = Vec::new();
    let answered = service.hold(call, None, &DomainRights::All, None, &mut answer).await;
    decided(answered, &answer)
}

async fn exchange(service: &WorkerService<impl Backend>, body: &[u8]) -> Decided {
    let call = match json::exchange_text(body) {
        Ok(call) => call,
        Err(error) => return Decided::Invalid(error.to_string()),
    };
    match service.exchange(call, None, &DomainRights::All, None).await {
        Ok(response) => match json::exchange_response(&response) {
            Ok(text) => Decided::Ok(text.to_string()),
            Err(error) => Decided::Undecided(error.to_string()),
        },
        Err(status) => refused(&status),
    }
}

/// Returns the outcome of an encoded `RateLimitResponse`.
fn decided(answered: Result<Answered, CallStatus>, answer: &[u8]) -> Decided {
    match answered.map(|answered| (json::response(answer), answered)) {
        Ok((Ok(text), Answered::OverLimit)) => Decided::OverLimit(text.to_string()),
        Ok((Ok(text), Answered::Ok)) => Decided::Ok(text.to_string()),
        Ok((Err(error), _)) => Decided::Undecided(error.to_string()),
        Err(status) => refused(&status),
    }
}

fn refused(status: &CallStatus) -> Decided {
    let why = status.message().to_owned();
    match RefusalKind::of(status) {
        RefusalKind::Invalid => Decided::Invalid(why),
        RefusalKind::NothingOpen => Decided::NotFound(why),
        RefusalKind::OtherOpen => Decided::Conflict(why),
        RefusalKind::Undecided => Decided::Undecided(why),
    }
}
