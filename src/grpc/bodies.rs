//! Messages that come in pieces: how large one may be, how much of them may wait for the rest, and for how long.
//!
//! A message comes in one piece nearly always. What a client can hold here by never sending the last byte is bounded: in time,
//! and in bytes by all calls of a worker together.

use std::cmp::Ordering;
use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{self, AtomicUsize};
use std::task::Poll;
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use h2::RecvStream;
use tokio::time::timeout;
use tonic::Status;

use crate::telemetry::metrics::Metrics;

/// What stands before a message: whether it is compressed (1), and its length (4).
pub(super) const HEADER: usize = 5;
/// Bytes of messages that wait for the rest, of all calls of a worker.
const MAX_WAITING: usize = 32 << 20;

/// The bodies of all calls of a worker.
pub(super) struct Bodies {
    max_message: usize,
    max_waiting: usize,
    /// Time for a message to come.
    time: Duration,
    waiting: AtomicUsize,
    metrics: Arc<Metrics>,
}

impl Bodies {
    pub(super) fn new(max_message: usize, time: Duration, metrics: Arc<Metrics>) -> Self {
        // One message is never too much.
        let max_waiting = MAX_WAITING.max(max_message.saturating_mul(2));
        Self { max_message, max_waiting, time, waiting: AtomicUsize::new(0), metrics }
    }

    /// The one message of a call, without what stands before it.
    pub(super) async fn read(&self, body: &mut RecvStream) -> Result<Bytes, Status> {
        let mut reading = pin!(self.read_all(body));
        // Nearly always all of it is here, and nobody has to look at the clock.
        let at_once = poll_fn(|cx| match reading.as_mut().poll(cx) {
            Poll::Ready(read) => Poll::Ready(Some(read)),
            Poll::Pending => Poll::Ready(None),
        });
        if let Some(read) = at_once.await {
            return read;
        }
        timeout(self.time, reading).await.unwrap_or_else(|_| {
            self.metrics.guard.slow_calls.inc();
            Err(Status::deadline_exceeded(format!("the message did not come within {:?}", self.time)))
        })
    }

    async fn read_all(&self, body: &mut RecvStream) -> Result<Bytes, Status> {
        let mut all = next(body).await?.unwrap_or_default();
        let mut pieces = Pieces { bodies: self, bytes: BytesMut::new() };
        loop {
            let whole = whole(if pieces.bytes.is_empty() { &all } else { &pieces.bytes }, self.max_message)?;
            if !whole && pieces.bytes.is_empty() {
                pieces.add(&all)?;
            }
            match next(body).await? {
                Some(_) if whole => return Err(Status::internal("a call has one message, found more")),
                Some(piece) => pieces.add(&piece)?,
                None if whole => break,
                None => return Err(Status::internal("a call has one message, found none that is whole")),
            }
        }
        if !pieces.bytes.is_empty() {
            all = pieces.take();
        }
        all.advance(HEADER);
        Ok(all)
    }
}

/// The pieces of a message that have come.
struct Pieces<'a> {
    bodies: &'a Bodies,
    bytes: BytesMut,
}

impl Pieces<'_> {
    /// Adds one, if there is room for it in what all calls may hold.
    fn add(&mut self, piece: &[u8]) -> Result<(), Status> {
        let waiting = &self.bodies.waiting;
        let held = waiting.fetch_add(piece.len(), atomic::Ordering::Relaxed).saturating_add(piece.len());
        self.bytes.extend_from_slice(piece);
        if held > self.bodies.max_waiting {
            self.bodies.metrics.guard.slow_calls.inc();
            return Err(Status::resource_exhausted("too many messages wait for their rest"));
        }
        Ok(())
    }

    fn take(mut self) -> Bytes {
        self.give_back();
        std::mem::take(&mut self.bytes).freeze()
    }

    fn give_back(&self) {
        self.bodies.waiting.fetch_sub(self.bytes.len(), atomic::Ordering::Relaxed);
    }
}

impl Drop for Pieces<'_> {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// The next bytes of a stream, which may then send as many more. Empty ones are none.
async fn next(body: &mut RecvStream) -> Result<Option<Bytes>, Status> {
    while let Some(piece) = body.data().await {
        let piece = piece.map_err(|error| Status::cancelled(error.to_string()))?;
        // An error is about a stream that has ended.
        let _ = body.flow_control().release_capacity(piece.len());
        if !piece.is_empty() {
            return Ok(Some(piece));
        }
    }
    Ok(None)
}

/// Whether `bytes`, from the beginning of a stream, are a whole message with what stands before it.
fn whole(bytes: &[u8], max_bytes: usize) -> Result<bool, Status> {
    let Some((&[compressed, ref length @ ..], message)) = bytes.split_first_chunk::<HEADER>() else { return Ok(false) };
    if compressed != 0 {
        return Err(Status::internal("a message is marked as compressed, without a grpc-encoding"));
    }
    let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
    if length > max_bytes {
        return Err(Status::out_of_range(format!("a message has at most {max_bytes} bytes, found {length}")));
    }
    match message.len().cmp(&length) {
        Ordering::Less => Ok(false),
        Ordering::Equal => Ok(true),
        Ordering::Greater => Err(Status::internal("a call has one message, found more")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_whole_when_its_length_says_so() {
        assert!(!whole(&[], 9).unwrap());
        assert!(!whole(&[0, 0, 0, 0], 9).unwrap());
        assert!(whole(&[0, 0, 0, 0, 0], 9).unwrap());
        assert!(!whole(&[0, 0, 0, 0, 2, 7], 9).unwrap());
        assert!(whole(&[0, 0, 0, 0, 2, 7, 8], 9).unwrap());
    }

    #[test]
    fn what_is_no_message_is_refused_at_its_first_bytes() {
        let code = |bytes: &[u8]| whole(bytes, 9).unwrap_err().code();
        assert_eq!(code(&[0, 0, 0, 0, 2, 7, 8, 9]), tonic::Code::Internal);
        assert_eq!(code(&[1, 0, 0, 0, 2]), tonic::Code::Internal);
        assert_eq!(code(&[0, 0, 0, 0, 10]), tonic::Code::OutOfRange);
        assert_eq!(code(&[0, 255, 255, 255, 255]), tonic::Code::OutOfRange);
    }
}
