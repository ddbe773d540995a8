//! Decisions in JSON over HTTP.

use std::sync::Arc;

use bytes::Bytes;

use super::decisions::{DecisionThread, ENDED};
use crate::admin::{Decide, DecideAnswer, DecidePath};
use crate::grpc::json::{self, HoldPath};
use crate::grpc::rights::DomainRights;
use crate::grpc::service::{CallStatus, CallerAnswer, RefusalKind};
use crate::http2::Budget;
use crate::operations::workers::WorkerService;
use crate::settings::LimitSettings;
use crate::store::backend::Backend;

/// Decides requests with `service` on `thread`. Bodies are charged to `budget`.
///
/// Refuses all requests if gRPC clients have individual rights: HTTP does not authenticate clients,
/// and would bypass those rights.
pub(super) fn decide(
    service: &Arc<WorkerService<impl Backend>>,
    thread: DecisionThread,
    limits: &LimitSettings,
    budget: Arc<Budget>,
    clients_have_rights: bool,
) -> Decide {
    let service = Arc::clone(service);
    let decide = Decide::new(limits.message.max_bytes, move |path, body: Bytes| {
        let service = Arc::clone(&service);
        let thread = thread.clone();
        async move {
            if clients_have_rights {
                return DecideAnswer::Forbidden(
                    "--allow disables decisions over HTTP, which does not identify clients; use gRPC".to_owned(),
                );
            }
            let decided = thread.run(async move { answer(&service, path, &body).await }).await;
            decided.unwrap_or_else(|| DecideAnswer::Undecided(ENDED.to_owned()))
        }
    });
    decide.charged_by(move |bytes| budget.hold(bytes).ok())
}

async fn answer(
    service: &WorkerService<impl Backend>,
    path: DecidePath,
    body: &[u8],
) -> DecideAnswer {
    match path {
        DecidePath::RateLimit => decide_request(service, body).await,
        DecidePath::Reserve => hold(service, HoldPath::Reserve, body).await,
        DecidePath::Extend => hold(service, HoldPath::Extend, body).await,
        DecidePath::Commit => hold(service, HoldPath::Commit, body).await,
        DecidePath::Cancel => hold(service, HoldPath::Cancel, body).await,
        DecidePath::Exchange => exchange(service, body).await,
    }
}

async fn decide_request(service: &WorkerService<impl Backend>, body: &[u8]) -> DecideAnswer {
    let message = match json::request_text(body) {
        Ok(message) => message,
        Err(error) => return DecideAnswer::Invalid(error.to_string()),
    };
    let mut answer = Vec::new();
    let answered = service.answer_caller(&message, &DomainRights::All, &mut answer).await;
    decided(answered, &answer)
}

async fn hold(service: &WorkerService<impl Backend>, path: HoldPath, body: &[u8]) -> DecideAnswer {
    let call = match json::hold_text(path, body) {
        Ok(call) => call,
        Err(error) => return DecideAnswer::Invalid(error.to_string()),
    };
    let mut answer = Vec::new();
    let answered = service.hold(call, None, &DomainRights::All, None, &mut answer).await;
    decided(answered, &answer)
}

async fn exchange(service: &WorkerService<impl Backend>, body: &[u8]) -> DecideAnswer {
    let call = match json::exchange_text(body) {
        Ok(call) => call,
        Err(error) => return DecideAnswer::Invalid(error.to_string()),
    };
    match service.exchange(call, None, &DomainRights::All, None).await {
        Ok(response) => match json::exchange_response(&response) {
            Ok(text) => DecideAnswer::Ok(text.to_string()),
            Err(error) => DecideAnswer::Undecided(error.to_string()),
        },
        Err(status) => refused(&status),
    }
}

/// Returns the outcome of an encoded `RateLimitResponse`.
fn decided(answered: Result<CallerAnswer, CallStatus>, answer: &[u8]) -> DecideAnswer {
    match answered.map(|answered| (json::response(answer), answered)) {
        Ok((Ok(text), CallerAnswer::OverLimit { retry_after })) => {
            DecideAnswer::OverLimit { answer: text.to_string(), retry_after }
        }
        Ok((Ok(text), CallerAnswer::Ok)) => DecideAnswer::Ok(text.to_string()),
        Ok((Err(error), _)) => DecideAnswer::Undecided(error.to_string()),
        Err(status) => refused(&status),
    }
}

fn refused(status: &CallStatus) -> DecideAnswer {
    let why = status.message().to_owned();
    match RefusalKind::of(status) {
        RefusalKind::Invalid => DecideAnswer::Invalid(why),
        RefusalKind::NothingOpen => DecideAnswer::NotFound(why),
        RefusalKind::OtherOpen => DecideAnswer::Conflict(why),
        RefusalKind::Undecided => DecideAnswer::Undecided(why),
    }
}
