//! `Authorization/Check` of Envoy's ext_authz: calls in place, and tonic's trait for others.

use std::sync::Arc;

use prost::Message as _;
use tonic::{Code, Request, Response, Status};
use tracing::warn;

use super::GatewayCall;
use super::check_request::{self, CheckedRequest};
use super::metadata::EncodedMetadata;
use crate::grpc::fast_path::record_status;
use crate::grpc::proto::auth::authorization_server::Authorization;
use crate::grpc::proto::auth::check_response::HttpResponse;
use crate::grpc::proto::auth::{CheckRequest, CheckResponse, DeniedHttpResponse, OkHttpResponse};
use crate::grpc::proto::envoy::config::core::v3::HeaderValueOption;
use crate::grpc::proto::envoy::r#type::v3::HttpStatus;
use crate::grpc::proto::{HeaderValue, google};
use crate::grpc::rights::IsGateway;
use crate::grpc::service::{Caller, Rls};
use crate::grpc::tonic_call::TonicCall;
use crate::problem::{GatewayAnswer, StatusCode};
use crate::store::Store;
use crate::telemetry::spans::SpanAttributes;

/// Path of the method.
pub(in crate::grpc) const PATH: &str = "/envoy.service.auth.v3.Authorization/Check";
/// Metadata of a call that names the mapping, unless the route does.
pub(in crate::grpc) const MAPPING: &str = "x-tollgate-mapping";

/// The service for tonic.
pub(in crate::grpc) struct CheckMethod<S>(pub(in crate::grpc) Arc<Rls<S>>);

/// The caller of a call.
#[derive(Clone, Copy, Debug)]
pub struct CheckCaller<'a> {
    /// `true` if its attributes are trusted.
    pub is_gateway: bool,
    /// The gateway itself.
    pub caller: Caller<'a>,
    /// Name of the mapping, unless the route sets it.
    pub mapping: Option<&'a [u8]>,
}

impl<S: Store> Rls<S> {
    /// Decides an encoded `CheckRequest`, and appends an encoded `CheckResponse` to `answer`.
    ///
    /// # Errors
    /// Those of [`decide_http`](Self::decide_http); PERMISSION_DENIED if the caller is no trusted
    /// gateway; INTERNAL if the message is malformed.
    pub async fn check(
        &self,
        message: &[u8],
        caller: CheckCaller<'_>,
        attributes: Option<&mut SpanAttributes>,
        answer: &mut Vec<u8>,
    ) -> Result<(), Status> {
        let CheckCaller { is_gateway, caller, mapping } = caller;
        if !is_gateway {
            self.metrics.clients.forbidden.inc();
            if let Some(times) = self.forbidden.due() {
                warn!(times, "Check refused: the peer is not in --gateways");
            }
            return Err(Status::permission_denied(
                "attributes are trusted only from --gateways, which do not include this peer",
            ));
        }
        let checked =
            check_request::read(message).map_err(|error| Status::internal(error.to_string()))?;
        let CheckedRequest { mapping: of_route, mut http, metadata } = checked;
        let metadata = EncodedMetadata(metadata);
        http.metadata = Some(&metadata);
        let name = of_route.or(mapping).map(String::from_utf8_lossy);
        let call = GatewayCall { mapping: name.as_deref(), http, caller };
        let answered = self.decide_http(call, attributes).await?;
        // A vector has room for any message.
        let _ = response(answered).encode(answer);
        Ok(())
    }
}

#[tonic::async_trait]
impl<S: Store> Authorization for CheckMethod<S> {
    async fn check(
        &self,
        request: Request<CheckRequest>,
    ) -> Result<Response<CheckResponse>, Status> {
        let (metadata, extensions, message) = request.into_parts();
        let mut call = TonicCall::new(&self.0, &metadata, &extensions);
        let caller = CheckCaller {
            is_gateway: extensions.get::<IsGateway>().is_some_and(|IsGateway(is)| *is),
            caller: call.caller.as_caller(),
            mapping: metadata.get(MAPPING).map(|name| name.as_encoded_bytes()),
        };
        let mut answer = Vec::new();
        let attributes = call.recording.as_mut().map(|recording| recording.attributes_mut());
        let answered =
            self.0.check(&message.encode_to_vec(), caller, attributes, &mut answer).await;
        record_status(call.recording, answered.as_ref().err());
        answered?;
        let answer = CheckResponse::decode(answer.as_slice());
        answer.map(Response::new).map_err(|error| Status::internal(error.to_string()))
    }
}

/// Returns an answer as a message.
fn response(answer: GatewayAnswer) -> CheckResponse {
    let headers = answer.headers.into_iter().map(option).collect();
    let (code, http) = match answer.denial {
        None => {
            let ok = OkHttpResponse { response_headers_to_add: headers, ..Default::default() };
            (Code::Ok, HttpResponse::OkResponse(ok))
        }
        Some(denial) => {
            let over_limit = denial.status == StatusCode::TOO_MANY_REQUESTS;
            let code = if over_limit { Code::ResourceExhausted } else { Code::PermissionDenied };
            let status = Some(HttpStatus { code: denial.status.as_u16().into() });
            let body = denial.body();
            (code, HttpResponse::DeniedResponse(DeniedHttpResponse { status, headers, body }))
        }
    };
    let status = google::rpc::Status { code: code.into(), ..Default::default() };
    CheckResponse { status: Some(status), http_response: Some(http) }
}

fn option((key, value): (String, String)) -> HeaderValueOption {
    let header = HeaderValue { key, value, ..Default::default() };
    HeaderValueOption { header: Some(header), ..Default::default() }
}
