//! Decisions in JSON over HTTP.

use std::fmt::Display;
use std::sync::Arc;

use bytes::Bytes;

use super::decisions::{DecisionThread, ENDED};
use crate::admin::{Decide, DecidePath, Decided};
use crate::grpc::json::{self, HoldPath, JsonError};
use crate::grpc::service::gateway::json_problem_of;
use crate::grpc::service::{CallStatus, CallerAnswer};
use crate::http2::{Budget, CallAccount};
use crate::operations::workers::WorkerService;
use crate::problem::{HttpProblem, StatusCode};
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
                let why = "--allow disables decisions over HTTP, which does not identify clients; use gRPC";
                return Err(HttpProblem::new(StatusCode::FORBIDDEN, why));
            }
            let decided = thread.run(async move { answer(&service, path, &body).await }).await;
            decided.unwrap_or_else(|| Err(undecided(ENDED)))
        }
    });
    // All bodies together leave three quarters of the memory to others.
    let account = CallAccount::new(budget);
    decide.charged_by(move |bytes| account.hold(bytes).ok())
}

async fn answer(
    service: &WorkerService<impl Backend>,
    path: DecidePath,
    body: &[u8],
) -> Result<Decided, HttpProblem> {
    match path {
        DecidePath::RateLimit => decide_request(service, body).await,
        DecidePath::Reserve => hold(service, HoldPath::Reserve, body).await,
        DecidePath::Extend => hold(service, HoldPath::Extend, body).await,
        DecidePath::Commit => hold(service, HoldPath::Commit, body).await,
        DecidePath::Cancel => hold(service, HoldPath::Cancel, body).await,
        DecidePath::Exchange => exchange(service, body).await,
    }
}

async fn decide_request(
    service: &WorkerService<impl Backend>,
    body: &[u8],
) -> Result<Decided, HttpProblem> {
    let message = json::request_text(body).map_err(invalid)?;
    let mut answer = Vec::new();
    let answered = service.answer(&message, service.http_caller(), None, &mut answer).await;
    decided(answered, &answer)
}

async fn hold(
    service: &WorkerService<impl Backend>,
    path: HoldPath,
    body: &[u8],
) -> Result<Decided, HttpProblem> {
    let call = json::hold_text(path, body).map_err(invalid)?;
    let mut answer = Vec::new();
    let answered = service.hold(call, service.http_caller(), None, &mut answer).await;
    decided(answered, &answer)
}

async fn exchange(
    service: &WorkerService<impl Backend>,
    body: &[u8],
) -> Result<Decided, HttpProblem> {
    let call = json::exchange_text(body).map_err(invalid)?;
    let response = service.exchange(call, service.http_caller(), None).await;
    let response = response.map_err(|status| json_problem_of(&status))?;
    let text = json::exchange_response(&response).map_err(undecided)?;
    Ok(Decided { answer: text.to_string(), is_over_limit: false, retry_after: None })
}

/// Returns the outcome of an encoded `RateLimitResponse`.
fn decided(
    answered: Result<CallerAnswer, CallStatus>,
    answer: &[u8],
) -> Result<Decided, HttpProblem> {
    let (is_over_limit, retry_after) = match answered.map_err(|status| json_problem_of(&status))? {
        CallerAnswer::OverLimit { retry_after } => (true, retry_after),
        CallerAnswer::Ok => (false, None),
    };
    let text = json::response(answer).map_err(undecided)?;
    Ok(Decided { answer: text.to_string(), is_over_limit, retry_after })
}

fn invalid(error: JsonError) -> HttpProblem {
    let status = match error {
        JsonError::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
        JsonError::Shape(_) | JsonError::Message(_) | JsonError::Unknown(_) => {
            StatusCode::BAD_REQUEST
        }
    };
    HttpProblem::new(status, error.to_string())
}

fn undecided(error: impl Display) -> HttpProblem {
    HttpProblem::new(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
}
