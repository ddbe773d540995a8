//! The gRPC services of a worker for its HTTP/2 connections: `ShouldRateLimit`, `Check`,
//! `HoldService`, `LeaseService`, RLQS, health, reflection.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Request, Response};
use http_body_util::BodyExt as _;
use tonic::Status;
use tonic::body::Body;
use tonic::codec::CompressionEncoding;
use tonic::codegen::Service as _;
use tonic::service::Routes;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::HealthService;

use super::PREFIX;
use super::call_headers;
use super::fast_path::{self, CallContext, CallHead, UnaryMethod, Work};
use super::health::Health;
use super::hold_service::HoldMethods;
use super::large_request;
use super::lease_service::LeaseMethods;
use super::proto::PROTOCOL;
use super::proto::auth::authorization_server::AuthorizationServer;
use super::proto::hold::hold_service_server::HoldServiceServer;
use super::proto::lease::lease_service_server::LeaseServiceServer;
use super::proto::rate_limit_service_server::RateLimitServiceServer;
use super::quota_service::QuotaService;
use super::rights::{Allowance, DomainRights, IsGateway};
use super::rls_service::RlsMethods;
use super::service::Rls;
use super::service::gateway::{CheckMethod, TrustedGateways};
use crate::http2::server::Client;
use crate::http2::{
    Answer, BodyError, Budget, BudgetExceeded, Exchange, HeaderFields, Refusal, RequestBody,
    ResponseFuture, Route, Service,
};
use crate::store::Store;
use crate::store::backend::Backend;
use crate::store::layer::Layered;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::statistics::CallTimer;

/// Maximum size of a message to health or reflection, in bytes: names of services and types.
const MAX_OTHER_MESSAGE: usize = 4 << 10;

/// Memory of a call of tonic's services in bytes, measured and rounded up: request, future and
/// body; for reflection also responses of 36 KB each, as messages and encoded.
const SERVICE_COST: usize = 16 << 10;
const REFLECTION_COST: usize = 160 << 10;

/// Beginning of the paths of `LeaseService`.
const LEASE_PATHS: &[u8] = b"/tollgate.v1.LeaseService/";
/// Maximum size of a message to `LeaseService`, in bytes: 256 wants and 256 returns with
/// descriptors of 40 bytes.
const MAX_LEASE_MESSAGE: usize = 64 << 10;
/// Memory of a call of `LeaseService` in bytes: a service's, the message as received and as
/// decoded, where an empty entry of 2 bytes takes 64. Items are charged when they are known.
const LEASE_COST: usize = SERVICE_COST + 33 * MAX_LEASE_MESSAGE;
/// Beginning of the paths of `HoldService`.
const HOLD_PATHS: &[u8] = b"/tollgate.v1.HoldService/";
/// Maximum size of a message to `HoldService`, in bytes: descriptors as those of a proxy, of one
/// piece of work.
const MAX_HOLD_MESSAGE: usize = 16 << 10;
/// Memory of a call of `HoldService` in bytes: a service's, the message as received and as
/// decoded. Large requests are charged for their descriptors as well.
const HOLD_COST: usize = SERVICE_COST + 6 * MAX_HOLD_MESSAGE;

/// The reflection service rejected the descriptor set.
#[derive(Debug, thiserror::Error)]
#[error("reflection: {0}")]
pub struct ServerError(#[from] tonic_reflection::server::Error);

/// Bounds of request messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageBounds {
    /// Maximum size in bytes.
    pub max_bytes: usize,
    /// Timeout for receiving a message.
    pub timeout: Duration,
}

/// Services offered to clients, and access to them.
#[derive(Clone, Debug)]
pub struct Offered {
    /// Bounds of request messages.
    pub bounds: MessageBounds,
    /// Domains that clients may request; all if empty.
    pub allowances: Arc<[Allowance]>,
    /// Peers whose attributes of HTTP requests are trusted.
    pub gateways: TrustedGateways,
    /// `true` if reflection is served.
    pub has_reflection: bool,
}

/// The services of a worker.
pub struct GrpcServices<S> {
    rls: Arc<Rls<S>>,
    routes: Routes,
    bounds: MessageBounds,
    allowances: Arc<[Allowance]>,
    gateways: TrustedGateways,
    budget: Arc<Budget>,
    metrics: Arc<Metrics>,
}

impl<B: Backend> GrpcServices<Layered<B>> {
    /// Creates services that decide with `rls`. `budget` is that of the connections.
    ///
    /// # Errors
    /// [`ServerError`]
    pub fn new(
        rls: Arc<Rls<Layered<B>>>,
        health: &Health,
        offered: Offered,
        budget: Arc<Budget>,
        metrics: Arc<Metrics>,
    ) -> Result<Self, ServerError> {
        let Offered { bounds, allowances, gateways, has_reflection } = offered;
        let rate_limits = RateLimitServiceServer::new(RlsMethods(Arc::clone(&rls)))
            .max_decoding_message_size(bounds.max_bytes)
            .accept_compressed(CompressionEncoding::Gzip);
        let health = HealthServer::new(HealthService::from_health_reporter(health.reporter()));
        let holds = HoldServiceServer::new(HoldMethods(Arc::clone(&rls)))
            .max_decoding_message_size(bounds.max_bytes.min(MAX_HOLD_MESSAGE));
        let check = AuthorizationServer::new(CheckMethod(Arc::clone(&rls)))
            .max_decoding_message_size(bounds.max_bytes)
            .accept_compressed(CompressionEncoding::Gzip);
        let leases = LeaseServiceServer::new(LeaseMethods(Arc::clone(&rls)))
            .max_decoding_message_size(bounds.max_bytes.min(MAX_LEASE_MESSAGE));
        let mut routes = Routes::new(rate_limits)
            .add_service(check)
            .add_service(holds)
            .add_service(leases)
            .add_service(QuotaService::new(Arc::clone(&rls), bounds.max_bytes))
            .add_service(health.max_decoding_message_size(MAX_OTHER_MESSAGE));
        if has_reflection {
            routes = routes
                .add_service(reflection().build_v1()?.max_decoding_message_size(MAX_OTHER_MESSAGE))
                .add_service(
                    reflection().build_v1alpha()?.max_decoding_message_size(MAX_OTHER_MESSAGE),
                );
        }
        Ok(Self { rls, routes: routes.prepare(), bounds, allowances, gateways, budget, metrics })
    }
}

impl<S: Store> GrpcServices<S> {
    /// Returns these services for the calls of one connection.
    pub fn for_client(&self, client: &Client) -> impl Service + use<S> {
        let certificate = client.certificate.as_deref().unwrap_or_default();
        let rights = DomainRights::of(&self.allowances, certificate, client.address);
        let is_gateway = IsGateway(self.gateways.include(client.address));
        let context = Arc::new(self.context(rights, is_gateway));
        let metrics = Arc::clone(&self.metrics);
        ClientServices { context, bounds: self.bounds, metrics, call: fast_path::answer }
    }
}

impl<S> GrpcServices<S> {
    /// Returns the state that the calls of a client with these rights share.
    pub(super) fn context(
        &self,
        rights: DomainRights,
        IsGateway(is_gateway): IsGateway,
    ) -> CallContext<S> {
        CallContext {
            rls: Arc::clone(&self.rls),
            routes: self.routes.clone(),
            rights,
            is_gateway,
            max_message: self.bounds.max_bytes,
            stats: self.metrics.stats().cloned(),
            budget: Arc::clone(&self.budget),
            metrics: Arc::clone(&self.metrics),
            work: Work::default(),
        }
    }
}

/// The services for the calls of one connection.
struct ClientServices<S, C> {
    context: Arc<CallContext<S>>,
    bounds: MessageBounds,
    metrics: Arc<Metrics>,
    /// [`fast_path::answer`], whose future type has no name. Boxing it would allocate per call.
    call: C,
}

impl<S: Store, C> ClientServices<S, C> {
    /// Serves a call with tonic's services.
    async fn answer_by_tonic(
        context: Arc<CallContext<S>>,
        request: Request<RequestBody>,
    ) -> Answer<Body> {
        if let Err(error) = call_headers::check_request(request.method(), request.headers()) {
            let response = error.response();
            // Protocol errors in the rest of the request belong to HTTP/2 and take precedence. The
            // connection bounds the time for it.
            let mut body = request.into_body();
            while let Some(Ok(_)) = body.frame().await {}
            return Answer::Response(Box::new(response));
        }
        let uri = request.uri().clone();
        let timer = context.stats.as_ref().and_then(|stats| stats.begin(request.uri().path()));
        let mut request = request.map(|body| {
            Body::new(body.map_err(|error: BodyError| Status::cancelled(error.to_string())))
        });
        request.extensions_mut().insert(context.rights.clone());
        request.extensions_mut().insert(IsGateway(context.is_gateway));
        let Ok(mut response) = context.routes.clone().call(request).await;
        timer.into_iter().for_each(CallTimer::answered);
        if is_unknown_method(response.headers()) {
            response = call_headers::unknown_method(uri.path());
        }
        Answer::Response(Box::new(response))
    }
}

impl<S, C, F> Service for ClientServices<S, C>
where
    S: Store,
    C: Fn(Arc<CallContext<S>>, CallHead, Exchange) -> F + Send + 'static,
    F: Future<Output = Answer<Body>> + Send,
{
    type Head = CallHead;
    type Unary = F;
    type Body = Body;

    fn route(&self, fields: &HeaderFields) -> Route<CallHead> {
        // The query is not part of the method name.
        let path = fields.path().split(|byte| *byte == b'?').next().unwrap_or_default();
        let method = fields.get(b":method").unwrap_or_default();
        let content_type = fields.get(b"content-type");
        let checked = call_headers::check(method, content_type, fields.get(b"grpc-timeout"));
        let Some(method) = UnaryMethod::of(path).filter(|_| checked.is_ok()) else {
            return Route::Stream { cost: cost_of(fields.path()) };
        };
        let head = CallHead::read(method, fields, self.context.rls.tracer().is_some());
        Route::Unary { head, max_body: self.bounds.max_bytes.saturating_add(PREFIX) }
    }

    fn unary(&self, head: CallHead, exchange: Exchange) -> Self::Unary {
        (self.call)(Arc::clone(&self.context), head, exchange)
    }

    fn stream(&self, request: Request<RequestBody>) -> ResponseFuture<Body> {
        Box::pin(Self::answer_by_tonic(Arc::clone(&self.context), request))
    }

    fn unary_heap(&self, body: &[u8]) -> usize {
        large_request::heap_of(body)
    }

    fn take_work(&self) -> usize {
        self.context.work.take()
    }

    fn refuse(&self, refusal: Refusal) -> Response<Body> {
        let status = match refusal {
            Refusal::BodyTooLarge => {
                self.metrics.clients.oversized_messages.inc();
                Status::out_of_range(format!(
                    "message exceeds the limit of {} bytes",
                    self.bounds.max_bytes
                ))
            }
            Refusal::BodyTooSlow => {
                self.metrics.clients.slow_calls.inc();
                too_slow(self.bounds.timeout)
            }
            Refusal::BudgetExceeded => {
                self.metrics.clients.slow_calls.inc();
                Status::resource_exhausted(BudgetExceeded.to_string())
            }
        };
        status.into_http()
    }
}

/// Returns the builder of a reflection service.
fn reflection() -> tonic_reflection::server::Builder<'static> {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(PROTOCOL)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
}

/// Returns the memory of a call of one of tonic's services, by its path.
fn cost_of(path: &[u8]) -> usize {
    if path.starts_with(b"/grpc.reflection.") {
        REFLECTION_COST
    } else if path.starts_with(HOLD_PATHS) {
        HOLD_COST
    } else if path.starts_with(LEASE_PATHS) {
        LEASE_COST
    } else {
        SERVICE_COST
    }
}

/// Returns `true` if tonic rejected an unknown method: with a status but no message.
fn is_unknown_method(headers: &HeaderMap) -> bool {
    let is_unimplemented = headers.get(Status::GRPC_STATUS).is_some_and(|code| code == "12");
    is_unimplemented && !headers.contains_key(Status::GRPC_MESSAGE)
}

fn too_slow(timeout: Duration) -> Status {
    Status::deadline_exceeded(format!("message not received within {timeout:?}"))
}
