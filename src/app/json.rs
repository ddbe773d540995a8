//! Decisions for those who ask in JSON, over HTTP.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::serving::Service;
use crate::admin::{Decide, Decided};
use crate::grpc::json;
use crate::grpc::proto::rate_limit_response::Code;
use crate::grpc::service::is_callers_fault;

/// Decides by `service`, each request within `timeout` and of at most `max_bytes`.
pub(super) fn decide(service: &Arc<Service>, timeout: Duration, max_bytes: usize) -> Decide {
    let service = Arc::clone(service);
    Decide::new(max_bytes, move |body| {
        let service = Arc::clone(&service);
        async move { answer(&service, &body, timeout).await }
    })
}

async fn answer(service: &Service, body: &[u8], timeout: Duration) -> Decided {
    let message = match json::request_text(body) {
        Ok(message) => message,
        Err(error) => return Decided::Invalid(error.to_string()),
    };
    let now = Instant::now();
    let answer = match service.answer(&message, now.checked_add(timeout).unwrap_or(now)).await {
        Ok(answer) => answer,
        Err(status) if is_callers_fault(&status) => return Decided::Invalid(status.message().to_owned()),
        Err(status) => return Decided::Undecided(status.message().to_owned()),
    };
    match json::response(&answer) {
        Ok(text) if answer.overall_code() == Code::OverLimit => Decided::OverLimit(text.to_string()),
        Ok(text) => Decided::Ok(text.to_string()),
        Err(error) => Decided::Undecided(error.to_string()),
    }
}
