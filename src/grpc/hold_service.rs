//! `tollgate.v1.HoldService` as an implementation of tonic's generated trait.

use std::sync::Arc;

use prost::Message as _;
use tonic::{Request, Response, Status};

use super::call::record_status;
use super::proto::RateLimitResponse;
use super::proto::hold::hold_service_server::HoldService;
use super::proto::hold::{CancelRequest, CommitRequest, ExtendRequest, ReserveRequest};
use super::rights::DomainRights;
use super::service::{HoldCall, Rls, budget};
use crate::store::Store;

/// The service for tonic.
pub(super) struct HoldMethods<S>(pub(super) Arc<Rls<S>>);

impl<S: Store> HoldMethods<S> {
    async fn answer<T: Into<HoldCall>>(
        &self,
        request: Request<T>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let (metadata, extensions, message) = request.into_parts();
        let header =
            |name: &str| metadata.get(name).map(tonic::metadata::MetadataValue::as_encoded_bytes);
        let time = header("grpc-timeout").and_then(budget);
        let rights = extensions.get::<DomainRights>().cloned().unwrap_or_else(DomainRights::none);
        let mut recording = self.0.tracer().and_then(|tracer| tracer.begin(header));
        let attributes = recording.as_mut().map(|recording| recording.attributes_mut());
        let mut answer = Vec::new();
        let answered = self.0.hold(message.into(), time, &rights, attributes, &mut answer).await;
        record_status(recording, answered.as_ref().err());
        answered?;
        let answer = RateLimitResponse::decode(answer.as_slice());
        answer.map(Response::new).map_err(|error| Status::internal(error.to_string()))
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
