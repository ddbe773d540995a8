//! Decisions in JSON over HTTP.

use std::sync::Arc;

use bytes::Bytes;

use super::decisions::{DecisionThread, ENDED};
use crate::admin::{Decide, DecidePath, Decided};
use crate::grpc::json::{self, HoldPath};
use crate::grpc::rights::DomainRights;
use crate::grpc::service::{CallerAnswer, RefusalKind};
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
                return Decided::Forbidden(
                    "--allow disables decisions over HTTP, which does not identify clients; use gRPC".to_owned(),
                );
            }
            let decided = thread.run(async move { answer(&service, path, &body).await }).await;
            decided.unwrap_or_else(|| Decided::Undecided(ENDED.to_owned()))
        }
    });
    decide.charged_by(move |bytes| budget.hold(bytes).ok())
}

async fn answer(service: &WorkerService<impl Backend>, path: DecidePath, body: &[u8]) -> Decided {
    let rights = &DomainRights::All;
    let mut answer = Vec::new();
    let answered = match hold_path(path) {
        None => match json::request_text(body) {
            Ok(message) => service.answer_caller(&message, rights, &mut answer).await,
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
        (Ok(text), CallerAnswer::OverLimit { retry_after }) => {
            Decided::OverLimit { answer: text.to_string(), retry_after }
        }
        (Ok(text), CallerAnswer::Ok) => Decided::Ok(text.to_string()),
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
