//! A call of one of tonic's services: what its metadata says, and how its answer is returned.

use std::time::Duration;

use http::Extensions;
use prost::Message as _;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Response, Status};

use super::call::record_status;
use super::proto::RateLimitResponse;
use super::rights::DomainRights;
use super::service::{Rls, budget};
use crate::store::Store;
use crate::telemetry::spans::Recording;

/// A call under way.
pub(super) struct ServiceCall {
    /// The caller's timeout.
    pub(super) time: Option<Duration>,
    /// Domains that the caller may use; none if the connection does not say.
    pub(super) rights: DomainRights,
    /// The recording of a call that is traced.
    pub(super) recording: Option<Box<Recording>>,
}

impl ServiceCall {
    pub(super) fn new<S: Store>(
        rls: &Rls<S>,
        metadata: &MetadataMap,
        extensions: &Extensions,
    ) -> Self {
        let header = |name: &str| metadata.get(name).map(MetadataValue::as_encoded_bytes);
        Self {
            time: header("grpc-timeout").and_then(budget),
            rights: extensions.get::<DomainRights>().cloned().unwrap_or_else(DomainRights::none),
            recording: rls.tracer().and_then(|tracer| tracer.begin(header)),
        }
    }

    /// Returns the response to the call from the encoded `answer`.
    pub(super) fn finish<T>(
        self,
        answered: Result<T, Status>,
        answer: &[u8],
    ) -> Result<Response<RateLimitResponse>, Status> {
        record_status(self.recording, answered.as_ref().err());
        answered?;
        let answer = RateLimitResponse::decode(answer);
        answer.map(Response::new).map_err(|error| Status::internal(error.to_string()))
    }
}
