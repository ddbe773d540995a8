//! `RateLimitQuotaService`, over the body of its call: messages are read and responses written
//! without tonic, which would decode reports in full, and queue what cannot be sent at once.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::task::{Context, Poll};

use http::{HeaderValue, Request, Response, header};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service;
use tonic::server::NamedService;

use super::rights::DomainRights;
use super::service::Rls;
use crate::http2::Delivery;
use crate::store::backend::Backend;
use crate::store::layer::Layered;

/// Path of the only method.
const PATH: &str = "/envoy.service.rate_limit_quota.v3.RateLimitQuotaService/StreamRateLimitQuotas";
const CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/grpc");

/// The service for tonic's router.
pub(super) struct QuotaService<B> {
    rls: Arc<Rls<Layered<B>>>,
    max_message: usize,
}

impl<B> QuotaService<B> {
    pub(super) fn new(rls: Arc<Rls<Layered<B>>>, max_message: usize) -> Self {
        Self { rls, max_message }
    }
}

impl<B> Clone for QuotaService<B> {
    fn clone(&self) -> Self {
        Self { rls: Arc::clone(&self.rls), max_message: self.max_message }
    }
}

impl<B> NamedService for QuotaService<B> {
    const NAME: &'static str = "envoy.service.rate_limit_quota.v3.RateLimitQuotaService";
}

impl<B: Backend> Service<Request<Body>> for QuotaService<B> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        ready(Ok(self.answer(request)))
    }
}

impl<B: Backend> QuotaService<B> {
    fn answer(&self, request: Request<Body>) -> Response<Body> {
        if request.uri().path() != PATH {
            return Status::unimplemented("").into_http();
        }
        let (head, body) = request.into_parts();
        let Some(delivery) = head.extensions.get::<Delivery>().cloned() else {
            return Status::internal("the connection has no deliveries").into_http();
        };
        let rights = head.extensions.get::<DomainRights>().cloned();
        let rights = rights.unwrap_or_else(DomainRights::none);
        let rls = Arc::clone(&self.rls);
        let mut response = Response::new(rls.open_quotas(rights, delivery, body, self.max_message));
        response.headers_mut().insert(header::CONTENT_TYPE, CONTENT_TYPE);
        response
    }
}
