//! A layer around a service that counts and times its calls, where somebody wants that; elsewhere it is not there.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use tonic::body::Body;
use tonic::codegen::{BoxFuture, Service, http};
use tonic::server::NamedService;

use crate::telemetry::stats::Stats;

/// A service whose calls are counted and timed.
#[derive(Clone, Debug)]
pub(super) struct Timed<S> {
    service: S,
    stats: Option<Arc<Stats>>,
}

impl<S> Timed<S> {
    /// `service`, with its calls counted in `stats`.
    pub(super) fn new(service: S, stats: Option<&Arc<Stats>>) -> Self {
        Self { service, stats: stats.cloned() }
    }
}

impl<S: NamedService> NamedService for Timed<S> {
    const NAME: &'static str = S::NAME;
}

type Answer = http::Response<Body>;

impl<S> Service<http::Request<Body>> for Timed<S>
where
    S: Service<http::Request<Body>, Response = Answer, Error = Infallible, Future = BoxFuture<Answer, Infallible>>,
{
    type Response = Answer;
    type Error = Infallible;
    type Future = BoxFuture<Answer, Infallible>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(context)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let method = self.stats.as_ref().and_then(|stats| stats.of_method(request.uri().path())).cloned();
        let Some(method) = method else { return self.service.call(request) };
        method.total_requests.add(1);
        let begun = Instant::now();
        let answer = self.service.call(request);
        Box::pin(async move {
            let answer = answer.await;
            method.response_time.record(begun.elapsed());
            answer
        })
    }
}
