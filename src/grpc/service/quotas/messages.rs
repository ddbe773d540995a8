//! The messages of a stream, and the turns in which a session works on them.

use bytes::Bytes;
use http_body_util::BodyExt as _;
use tonic::Status;

use crate::grpc::PREFIX;
use crate::grpc::refusal::Refusals;
use crate::http2::{CallAccount, RequestBody};

/// Work after which a session waits for the other calls of its connection, in bytes of messages.
const TURN_WORK: usize = 16 << 10;

/// Work of a field of a message, of a bucket in it, and of a bucket that is looked at, as bytes
/// that take as long: of the 16 KiB of a turn, a session handles 128 buckets.
pub(super) const OF_FIELD: usize = 8;
pub(super) const OF_REPORT: usize = 128;
pub(super) const OF_BUCKET: usize = 128;

/// The messages of a proxy.
#[derive(Debug)]
pub(super) struct ReportMessages {
    pub(super) body: RequestBody,
    pub(super) refusals: Refusals,
}

impl ReportMessages {
    /// Returns the next message; `None` at the end of the body. May be cancelled: what has arrived
    /// is kept.
    ///
    /// # Errors
    /// The message is compressed or refused, or the client has reset the stream.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        let frame = self.body.frame().await.transpose();
        let frame = frame.map_err(|error| self.refusals.of_body(error))?;
        let Some(mut message) = frame.and_then(|frame| frame.into_data().ok()) else {
            return Ok(None);
        };
        if message.first().is_some_and(|compressed| *compressed != 0) {
            return Err(Status::unimplemented("compressed messages are not supported"));
        }
        Ok(Some(message.split_off(PREFIX.min(message.len()))))
    }

    /// Returns `true` if a part of a message has arrived.
    pub(super) fn is_arriving(&self) -> bool {
        self.body.is_arriving()
    }
}

/// The turns of a session.
#[derive(Debug)]
pub(super) struct SessionTurn {
    account: CallAccount,
    done: usize,
}

impl SessionTurn {
    pub(super) fn new(account: CallAccount) -> Self {
        Self { account, done: 0 }
    }

    /// Records work, and waits for the next turn if this one is over.
    pub(super) async fn spend(&mut self, work: usize) {
        self.done = self.done.saturating_add(work);
        if self.done >= TURN_WORK {
            self.account.add_work(std::mem::take(&mut self.done));
            tokio::task::yield_now().await;
        }
    }
}
