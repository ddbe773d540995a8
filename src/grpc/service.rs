//! `ShouldRateLimit`.

use std::sync::Arc;

use tonic::{Request, Response, Status};

use super::convert::{self, AnswerStyle, RequestBounds};
use super::proto::rate_limit_service_server::RateLimitService;
use super::proto::{RateLimitRequest, RateLimitResponse};
use crate::limiter::{Limiter, Undecided};
use crate::store::Store;
use crate::telemetry::metrics::Metrics;

/// The service: a limiter that speaks RLS.
pub struct Rls<S> {
    limiter: Arc<Limiter<S>>,
    metrics: Arc<Metrics>,
    bounds: RequestBounds,
    style: AnswerStyle,
}

impl<S: Store> Rls<S> {
    /// A service that answers by `limiter`.
    pub fn new(limiter: Arc<Limiter<S>>, metrics: Arc<Metrics>, bounds: RequestBounds, style: AnswerStyle) -> Self {
        Self { limiter, metrics, bounds, style }
    }

    /// Answers one request.
    ///
    /// # Errors
    /// INVALID_ARGUMENT for what no proxy sends, UNAVAILABLE where nobody decided.
    pub async fn answer(&self, message: &RateLimitRequest) -> Result<RateLimitResponse, Status> {
        let request = convert::request(message, &self.bounds).map_err(|invalid| {
            self.metrics.invalid_requests.inc();
            Status::invalid_argument(invalid.to_string())
        })?;
        let snapshot = self.limiter.snapshot();
        let decision = self.limiter.decide(&snapshot, &request).await.map_err(unavailable)?;
        Ok(convert::response(&decision, self.style))
    }
}

/// One exhaustive match from the limiter's errors to the protocol's codes.
fn unavailable(undecided: Undecided) -> Status {
    match undecided {
        Undecided::NoPolicy | Undecided::Store(_) => Status::unavailable(undecided.to_string()),
    }
}

#[tonic::async_trait]
impl<S: Store> RateLimitService for Rls<S> {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        self.answer(request.get_ref()).await.map(Response::new)
    }
}
