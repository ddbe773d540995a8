//! `tollgate.v1.HoldService` as an implementation of tonic's generated trait.

use std::sync::Arc;

use tonic::{Request, Response, Status};

use super::proto::RateLimitResponse;
use super::proto::hold::hold_service_server::HoldService;
use super::proto::hold::{CancelRequest, CommitRequest, ExtendRequest, ReserveRequest};
use super::service::{HoldCall, Rls};
use super::tonic_call::TonicCall;
use crate::store::Store;

/// The service for tonic.
pub(super) struct HoldMethods<S>(pub(super) Arc<Rls<S>>);

impl<S: Store> HoldMethods<S> {
    async fn answer<T: Into<HoldCall>>(
        &self,
        request: Request<T>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let (metadata, extensions, message) = request.into_parts();
        let mut call = TonicCall::new(&self.0, &metadata, &extensions);
        let attributes = call.recording.as_mut().map(|recording| recording.attributes_mut());
        let mut answer = Vec::new();
        let answered =
            self.0.hold(message.into(), call.caller.as_caller(), attributes, &mut answer).await;
        call.finish(answered, &answer)
    }
}

#[tonic::async_trait]
impl<S: Store> HoldService for HoldMethods<S> {
    async fn reserve(
        &self,
        request: Request<ReserveRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        self.answer(request).await
    }

    async fn extend(
        &self,
        request: Request<ExtendRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        self.answer(request).await
    }

    async fn commit(
        &self,
        request: Request<CommitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        self.answer(request).await
    }

    async fn cancel(
        &self,
        request: Request<CancelRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        self.answer(request).await
    }
}
