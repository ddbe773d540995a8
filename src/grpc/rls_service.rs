//! `ShouldRateLimit` as an implementation of tonic's generated trait: the full protocol, including
//! compressed messages.
//!
//! Frequent calls take the [fast path](super::fast_path), which returns the same responses.

use std::sync::Arc;

use prost::Message as _;
use tonic::{Request, Response, Status};

use super::proto::rate_limit_service_server::RateLimitService;
use super::proto::{RateLimitRequest, RateLimitResponse};
use super::service::Rls;
use super::tonic_call::TonicCall;
use crate::store::Store;

/// The service for tonic.
pub(super) struct RlsMethods<S>(pub(super) Arc<Rls<S>>);

#[tonic::async_trait]
impl<S: Store> RateLimitService for RlsMethods<S> {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let (metadata, extensions, message) = request.into_parts();
        let mut call = TonicCall::new(&self.0, &metadata, &extensions);
        let message = message.encode_to_vec();
        let mut answer = Vec::new();
        let recording = call.recording.as_deref_mut();
        let answered =
            self.0.answer(&message, call.caller.as_caller(), recording, &mut answer).await;
        call.finish(answered, &answer)
    }
}
