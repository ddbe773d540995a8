//! Decisions for those who ask in JSON, over HTTP.

use std::sync::Arc;

use super::serving::Service;
use crate::admin::{Decide, Decided};
use crate::grpc::json;
use crate::grpc::service::{Answered, is_callers_fault};

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
    let mut answer = Vec::new();
    let answered = match service.answer(&message, None, &mut answer).await {
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
