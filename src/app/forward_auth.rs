//! Decisions at `/auth/NAME`, on requests that gateways describe by headers.

use std::sync::Arc;

use super::decisions::{DecisionThread, ENDED};
use crate::admin::{ForwardAuth, ForwardedRequest};
use crate::grpc::service::gateway::{GatewayCall, TrustedGateways, problem_of};
use crate::operations::workers::WorkerService;
use crate::policy::requests::GatewayRequest;
use crate::problem::{GatewayAnswer, HttpProblem, StatusCode};
use crate::store::backend::Backend;

/// Decides requests of `gateways` with `service`.
///
/// Refuses all requests if gRPC clients have individual rights, as JSON does.
pub(super) fn decide(
    service: &Arc<WorkerService<impl Backend>>,
    thread: DecisionThread,
    gateways: TrustedGateways,
    clients_have_rights: bool,
) -> ForwardAuth {
    let service = Arc::clone(service);
    ForwardAuth::new(move |request: ForwardedRequest| {
        let refused = refusal(&gateways, clients_have_rights, &request);
        let service = Arc::clone(&service);
        let thread = thread.clone();
        async move {
            if let Some(refused) = refused {
                return GatewayAnswer::denied(refused);
            }
            let decided = thread.run(async move { answer(&service, &request).await }).await;
            decided.unwrap_or_else(|| {
                GatewayAnswer::denied(HttpProblem::new(StatusCode::SERVICE_UNAVAILABLE, ENDED))
            })
        }
    })
}

fn refusal(
    gateways: &TrustedGateways,
    clients_have_rights: bool,
    request: &ForwardedRequest,
) -> Option<HttpProblem> {
    let why = if clients_have_rights {
        "--allow disables decisions over HTTP, which does not identify clients; use gRPC"
    } else if gateways.include(Some(request.peer)) {
        return None;
    } else {
        "attributes are trusted only from --gateways, which do not include this peer"
    };
    Some(HttpProblem::new(StatusCode::FORBIDDEN, why))
}

async fn answer(
    service: &WorkerService<impl Backend>,
    request: &ForwardedRequest,
) -> GatewayAnswer {
    let headers = request.headers.iter();
    let http = GatewayRequest {
        method: request.method.as_bytes(),
        host: request.host.as_bytes(),
        target: request.target.as_bytes(),
        headers: headers
            .map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()))
            .collect(),
        ..GatewayRequest::default()
    };
    let mapping = Some(request.mapping.as_str());
    let call = GatewayCall { mapping, http, caller: service.http_gateway() };
    let answer = service.decide_http(call, None).await;
    answer.unwrap_or_else(|status| GatewayAnswer::denied(problem_of(&status)))
}
