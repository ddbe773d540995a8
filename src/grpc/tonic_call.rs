//! A call of one of tonic's services: what its metadata says, and how its answer is returned.

use std::sync::Arc;
use std::time::Duration;

use http::Extensions;
use prost::Message as _;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Response, Status};

use super::call_headers::{CALLER, receiver_of, timeout_of};
use super::fast_path::record_status;
use super::proto::RateLimitResponse;
use super::response::Receiver;
use super::rights::DomainRights;
use super::service::{Caller, Rls};
use crate::http2::{Budget, CallAccount};
use crate::store::Store;
use crate::telemetry::spans::Recording;

/// A call under way.
pub(super) struct TonicCall {
    pub(super) caller: TonicCaller,
    /// The recording of a call that is traced.
    pub(super) recording: Option<Box<Recording>>,
}

/// The caller, as its connection and its metadata describe it.
pub(super) struct TonicCaller {
    time: Option<Duration>,
    /// None if the connection does not say.
    rights: DomainRights,
    /// One without memory if the connection does not say.
    account: CallAccount,
    receiver: Receiver,
}

impl TonicCaller {
    pub(super) fn as_caller(&self) -> Caller<'_> {
        let Self { time, ref rights, ref account, receiver } = *self;
        Caller { rights, account, time, receiver }
    }
}

impl TonicCall {
    pub(super) fn new<S: Store>(
        rls: &Rls<S>,
        metadata: &MetadataMap,
        extensions: &Extensions,
    ) -> Self {
        let tracer = rls.tracer();
        let without_memory = || CallAccount::new(Arc::new(Budget::new(0)));
        let caller = TonicCaller {
            time: header(metadata, "grpc-timeout").and_then(timeout_of),
            rights: extensions.get::<DomainRights>().cloned().unwrap_or_else(DomainRights::none),
            account: extensions.get::<CallAccount>().cloned().unwrap_or_else(without_memory),
            receiver: receiver_of(header(metadata, CALLER)),
        };
        Self {
            caller,
            recording: tracer.and_then(|tracer| tracer.begin(|name| header(metadata, name))),
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

fn header<'m>(metadata: &'m MetadataMap, name: &str) -> Option<&'m [u8]> {
    metadata.get(name).map(MetadataValue::as_encoded_bytes)
}
