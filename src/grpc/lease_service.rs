//! `tollgate.v1.LeaseService` as an implementation of tonic's generated trait.

use std::sync::Arc;

use tonic::{Request, Response, Status};

use super::fast_path::record_status;
use super::proto::lease::lease_service_server::LeaseService;
use super::proto::lease::{ExchangeRequest, ExchangeResponse};
use super::service::Rls;
use super::tonic_call::TonicCall;
use crate::store::backend::Backend;
use crate::store::layer::Layered;

/// The service for tonic.
pub(super) struct LeaseMethods<B>(pub(super) Arc<Rls<Layered<B>>>);

#[tonic::async_trait]
impl<B: Backend> LeaseService for LeaseMethods<B> {
    async fn exchange(
        &self,
        request: Request<ExchangeRequest>,
    ) -> Result<Response<ExchangeResponse>, Status> {
        let (metadata, extensions, message) = request.into_parts();
        let mut call = TonicCall::new(&self.0, &metadata, &extensions);
        let attributes = call.recording.as_mut().map(|recording| recording.attributes_mut());
        let answered = self.0.exchange(message, call.caller.as_caller(), attributes).await;
        record_status(call.recording, answered.as_ref().err());
        answered.map(Response::new)
    }
}
