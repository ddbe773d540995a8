//! Decisions for those who ask in JSON, over HTTP.

use std::sync::Arc;

use super::serving::Service;
use crate::admin::{Decide, Decided};
use crate::grpc::json;
use crate::grpc::proto::rate_limit_response::Code;
use crate::grpc::service::is_callers_fault;

/// Decides by `service`, requests of at most `max_bytes`.
pub(super) fn decide(service: &Arc<Service>, max_bytes: usize) -> Decide {
    let service = Arc::clone(service);
    Decide::new(max_bytes, move |body| {
        let service = Arc::clone(&service);
        async move { answer(&service, &body).await }
    })
}

async fn answer(service: &Service, body: &[u8]) -> Decided {
    let message = match json::request_text(body) {
        Ok(message) => message,
        Err(error) => return Decided::Invalid(error.to_string()),
    };
    let answer = match service.answer_within(&message, None).await {
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
