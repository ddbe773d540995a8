//! `ShouldRateLimit` as an implementation of tonic's generated trait: the full protocol, including
//! compressed messages.
//!
//! Frequent calls take the fast path of [`call`](super::call), which returns the same responses.

use std::sync::Arc;

use prost::Message as _;
use tonic::{Request, Response, Status};

use super::call::record_status;
use super::proto::rate_limit_service_server::RateLimitService;
use super::proto::{RateLimitRequest, RateLimitResponse};
use super::rights::DomainRights;
use super::service::{Rls, budget};
use crate::store::Store;

/// The service for tonic.
pub(super) struct Method<S>(pub(super) Arc<Rls<S>>);

#[tonic::async_trait]
impl<S: Store> RateLimitService for Method<S> {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let (metadata, extensions, message) = request.into_parts();
        let header =
            |name: &str| metadata.get(name).map(tonic::metadata::MetadataValue::as_encoded_bytes);
        let time = header("grpc-timeout").and_then(budget);
        let rights = extensions.get::<DomainRights>().cloned().unwrap_or_else(DomainRights::none);
        let mut recording = self.0.tracer().and_then(|tracer| tracer.begin(header));
        let message = message.encode_to_vec();
        let mut answer = Vec::new();
        let answered =
            self.0.answer(&message, time, &rights, recording.as_deref_mut(), &mut answer).await;
        record_status(recording, answered.as_ref().err());
        answered?;
        let answer = RateLimitResponse::decode(answer.as_slice());
        answer.map(Response::new).map_err(|error| Status::internal(error.to_string()))
    }
}
