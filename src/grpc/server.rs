//! The gRPC services of a worker for its HTTP/2 connections: `ShouldRateLimit`, `Check`,
//! `HoldService`, `LeaseService`, RLQS, health, reflection.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Request, Response, header};
use http_body_util::BodyExt as _;
use tonic::Status;
use tonic::body::Body;
use tonic::codec::CompressionEncoding;
use tonic::codegen::Service as _;
use tonic::service::Routes;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::HealthService;

use super::call_headers;
use super::fast_path::{self, CallContext, CallHead};
use super::health::Health;
use super::hold_service::HoldMethods;
use super::large_request;
use super::lease_service::LeaseMethods;
use super::methods::{self, MAX_HOLD_MESSAGE, MAX_LEASE_MESSAGE, MAX_OTHER_MESSAGE, SERVICE_COST};
use super::proto::PROTOCOL;
use super::proto::auth::authorization_server::AuthorizationServer;
use super::proto::hold::hold_service_server::HoldServiceServer;
use super::proto::lease::lease_service_server::LeaseServiceServer;
use super::proto::rate_limit_service_server::RateLimitServiceServer;
use super::refusal::Refusals;
use super::rights::{Allowance, DomainRights, IsGateway};
use super::rls_service::RlsMethods;
use super::service::Rls;
use super::service::gateway::{CheckMethod, TrustedGateways};
use super::service::quotas::{self, QuotaCaller};
use crate::http2::server::Client;
use crate::http2::{
    Answer, CallAccount, Delivery, Exchange, HeaderFields, Refusal, RequestBody, ResponseFuture,
    Route, Service,
};
use crate::store::backend::Backend;
use crate::store::layer::Layered;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::statistics::CallTimer;

/// Content type of the answers that tonic does not write.
const CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/grpc");

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
    metrics: Arc<Metrics>,
}

impl<B: Backend> GrpcServices<Layered<B>> {
    /// Creates services that decide with `rls`.
    ///
    /// # Errors
    /// [`ServerError`]
    pub fn new(
        rls: Arc<Rls<Layered<B>>>,
        health: &Health,
        offered: Offered,
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
            .add_service(health.max_decoding_message_size(MAX_OTHER_MESSAGE));
        if has_reflection {
            routes = routes
                .add_service(reflection().build_v1()?.max_decoding_message_size(MAX_OTHER_MESSAGE))
                .add_service(
                    reflection().build_v1alpha()?.max_decoding_message_size(MAX_OTHER_MESSAGE),
                );
        }
        Ok(Self { rls, routes: routes.prepare(), bounds, allowances, gateways, metrics })
    }
}

impl<B: Backend> GrpcServices<Layered<B>> {
    /// Returns these services for the calls of one connection, which charge `account`.
    pub fn for_client(&self, client: &Client, account: CallAccount) -> impl Service + use<B> {
        let certificate = client.certificate.as_deref().unwrap_or_default();
        let rights = DomainRights::of(&self.allowances, certificate, client.address);
        let is_gateway = IsGateway(self.gateways.include(client.address));
        let context = Arc::new(self.context(rights, is_gateway, account));
        ClientServices { context, call: fast_path::answer }
    }
}

impl<S> GrpcServices<S> {
    /// Returns the state that the calls of a client with these rights share.
    pub(super) fn context(
        &self,
        rights: DomainRights,
        IsGateway(is_gateway): IsGateway,
        account: CallAccount,
    ) -> CallContext<S> {
        CallContext {
            rls: Arc::clone(&self.rls),
            routes: self.routes.clone(),
            rights,
            is_gateway,
            max_message: self.bounds.max_bytes,
            stats: self.metrics.stats().cloned(),
            refusals: Refusals::new(Arc::clone(&self.metrics), self.bounds.timeout),
            metrics: Arc::clone(&self.metrics),
            account,
        }
    }
}

/// The services for the calls of one connection.
struct ClientServices<S, C> {
    context: Arc<CallContext<S>>,
    /// [`fast_path::answer`], whose future type has no name. Boxing it would allocate per call.
    call: C,
}

impl<B: Backend, C> ClientServices<Layered<B>, C> {
    /// Serves a general call.
    async fn answer(
        context: Arc<CallContext<Layered<B>>>,
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
        let timer = context.stats.as_ref().and_then(|stats| stats.begin(request.uri().path()));
        let response = if request.uri().path() == quotas::PATH {
            Self::open_quotas(&context, request)
        } else {
            Self::answer_by_tonic(&context, request).await
        };
        timer.into_iter().for_each(CallTimer::answered);
        Answer::Response(Box::new(response))
    }

    /// Opens a stream of RLQS, whose messages are read and written without tonic, which would
    /// decode reports in full, and queue what cannot be sent at once.
    fn open_quotas(
        context: &CallContext<Layered<B>>,
        request: Request<RequestBody>,
    ) -> Response<Body> {
        let (head, body) = request.into_parts();
        let Some(delivery) = head.extensions.get::<Delivery>().cloned() else {
            return Status::internal("the connection has no deliveries").into_http();
        };
        let proxy = QuotaCaller {
            rights: context.rights.clone(),
            delivery,
            account: context.account.clone(),
            message_timeout: context.refusals.timeout(),
        };
        let mut response = Response::new(Arc::clone(&context.rls).open_quotas(proxy, body));
        response.headers_mut().insert(header::CONTENT_TYPE, CONTENT_TYPE);
        response
    }

    async fn answer_by_tonic(
        context: &CallContext<Layered<B>>,
        request: Request<RequestBody>,
    ) -> Response<Body> {
        let uri = request.uri().clone();
        let refusals = context.refusals.clone();
        let mut request =
            request.map(|body| Body::new(body.map_err(move |error| refusals.of_body(error))));
        context.describe_to(request.extensions_mut());
        let Ok(response) = context.routes.clone().call(request).await;
        if is_unknown_method(response.headers()) {
            return call_headers::unknown_method(uri.path());
        }
        response
    }
}

impl<B, C, F> Service for ClientServices<Layered<B>, C>
where
    B: Backend,
    C: Fn(Arc<CallContext<Layered<B>>>, CallHead, Exchange) -> F + Send + 'static,
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
        if call_headers::check(method, content_type, fields.get(b"grpc-timeout")).is_err() {
            return Route::Bytes { cost: SERVICE_COST };
        }
        let is_traced = self.context.rls.tracer().is_some();
        let head = |method| CallHead::read(method, fields, is_traced);
        methods::route(path, self.context.max_message, head)
            .unwrap_or(Route::Bytes { cost: SERVICE_COST })
    }

    fn unary(&self, head: CallHead, exchange: Exchange) -> Self::Unary {
        (self.call)(Arc::clone(&self.context), head, exchange)
    }

    fn general(&self, request: Request<RequestBody>) -> ResponseFuture<Body> {
        Box::pin(Self::answer(Arc::clone(&self.context), request))
    }

    fn unary_heap(&self, body: &[u8]) -> usize {
        large_request::heap_of(body)
    }

    fn refuse(&self, refusal: Refusal) -> Response<Body> {
        self.context.refusals.status(refusal).into_http()
    }
}

/// Returns the builder of a reflection service.
fn reflection() -> tonic_reflection::server::Builder<'static> {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(PROTOCOL)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
}

/// Returns `true` if tonic rejected an unknown method: with a status but no message.
fn is_unknown_method(headers: &HeaderMap) -> bool {
    let is_unimplemented = headers.get(Status::GRPC_STATUS).is_some_and(|code| code == "12");
    is_unimplemented && !headers.contains_key(Status::GRPC_MESSAGE)
}
