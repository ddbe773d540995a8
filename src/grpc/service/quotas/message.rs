//! The messages of a stream, cut from its body.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use tonic::Status;
use tonic::body::Body;

use crate::grpc::PREFIX;
use crate::http2::{Budget, BudgetHold};

/// A reader of messages within a maximum size.
#[derive(Debug)]
pub(super) struct ReportReader {
    body: Body,
    max: usize,
    budget: Arc<Budget>,
    unread: Vec<u8>,
    /// Memory of a message that has not arrived in full.
    held: Option<BudgetHold>,
}

impl ReportReader {
    pub(super) fn new(body: Body, max: usize, budget: Arc<Budget>) -> Self {
        Self { body, max, budget, unread: Vec::new(), held: None }
    }

    /// Returns the next message; `None` at the end of the body. May be cancelled: what has arrived
    /// is kept.
    ///
    /// # Errors
    /// The message is compressed or too large, or the client has reset the stream.
    pub(super) async fn next(&mut self) -> Result<Option<Vec<u8>>, Status> {
        loop {
            if let Some(message) = self.take()? {
                return Ok(Some(message));
            }
            let Some(frame) = self.body.frame().await else { return Ok(None) };
            let data: Option<Bytes> = frame?.into_data().ok();
            self.unread.extend_from_slice(&data.unwrap_or_default());
        }
    }

    /// Returns `true` if a part of a message has arrived.
    pub(super) fn is_arriving(&self) -> bool {
        !self.unread.is_empty()
    }

    fn take(&mut self) -> Result<Option<Vec<u8>>, Status> {
        let Some((&[compressed, ref length @ ..], rest)) =
            self.unread.split_first_chunk::<PREFIX>()
        else {
            return Ok(None);
        };
        let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
        if compressed != 0 {
            return Err(Status::unimplemented("compressed messages are not supported"));
        }
        if length > self.max {
            let text = format!("message exceeds the limit of {} bytes", self.max);
            return Err(Status::out_of_range(text));
        }
        if rest.len() < length {
            if self.held.is_none() {
                let held = self.budget.hold(length);
                self.held =
                    Some(held.map_err(|error| Status::resource_exhausted(error.to_string()))?);
            }
            return Ok(None);
        }
        self.held = None;
        let after = self.unread.split_off(PREFIX + length);
        let mut message = std::mem::replace(&mut self.unread, after);
        message.drain(..PREFIX);
        Ok(Some(message))
    }
}
