//! Decisions for those who ask in JSON, over HTTP.

use std::sync::Arc;

use tokio::runtime::Handle;

use super::serving::Service;
use crate::admin::{Decide, Decided};
use crate::grpc::json;
use crate::grpc::rights::Rights;
use crate::grpc::service::{Answered, is_callers_fault};
use crate::settings::LimitSettings;

/// Decides by `service`. Nothing where clients of gRPC have rights of their own: HTTP does not know who asks, and would be the way
/// around them.
pub(super) fn decide(service: &Arc<Service>, limits: &LimitSettings, clients_have_rights: bool) -> Decide {
    let service = Arc::clone(service);
    // HTTP has a thread of its own, on which probes are answered: decisions are made beside it.
    let runtime = Handle::current();
    Decide::new(limits.message.max_bytes, move |body| {
        let service = Arc::clone(&service);
        let runtime = runtime.clone();
        async move {
            if clients_have_rights {
                return Decided::Forbidden("with --allow decisions are by gRPC, which knows who asks".to_owned());
            }
            let deciding = runtime.spawn(async move { answer(&service, &body).await });
            deciding.await.unwrap_or_else(|error| Decided::Undecided(error.to_string()))
        }
    })
}

async fn answer(service: &Service, body: &[u8]) -> Decided {
    let message = match json::request_text(body) {
        Ok(message) => message,
        Err(error) => return Decided::Invalid(error.to_string()),
    };
    let mut answer = Vec::new();
    let answered = match service.answer(&message, None, &Rights::All, None, &mut answer).await {
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
