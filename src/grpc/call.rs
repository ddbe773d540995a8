//! One call of `ShouldRateLimit` on its stream of HTTP/2: its message read, decided and answered, in gRPC's framing.
//!
//! What tonic would do, for one unary method without compression.

use std::cmp::Ordering;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use h2::RecvStream;
use h2::server::SendResponse;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use tonic::Status;
use tonic::metadata::{MetadataMap, MetadataValue};
use tracing::debug;

use super::service::{Rls, budget};
use crate::store::Store;
use crate::telemetry::stats::Call;

/// The method's path.
pub(super) const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// What stands before a message: whether it is compressed (1), and its length (4).
const HEADER: usize = 5;
/// Room for the answer to a usual request.
const USUAL_ANSWER: usize = 128;
const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
const OK: HeaderValue = HeaderValue::from_static("0");

/// Answers a call, unless its caller waits no more.
pub(super) async fn answer<S: Store>(
    rls: Arc<Rls<S>>,
    max_message_bytes: usize,
    asked: Result<Asked, Status>,
    mut respond: SendResponse<Bytes>,
    timer: Option<Call>,
) {
    let mut decided = pin!(decide(&rls, max_message_bytes, asked));
    let decided = poll_fn(|cx| match decided.as_mut().poll(cx) {
        Poll::Ready(decided) => Poll::Ready(Some(decided)),
        Poll::Pending => respond.poll_reset(cx).map(|_| None),
    });
    let sent = match decided.await {
        Some(Ok(answer)) => send(&mut respond, answer),
        Some(Err(status)) => respond.send_response(status.into_http(), true).map(drop),
        None => return debug!("a caller went away before the answer"),
    };
    match sent {
        Ok(()) => timer.into_iter().for_each(Call::answered),
        Err(error) => debug!(%error, "an answer could not be sent"),
    }
}

/// What is wanted of a request, before its message has come.
pub(super) struct Asked {
    body: RecvStream,
    /// The time that the caller has.
    time: Option<Duration>,
}

impl Asked {
    /// Takes from a request what it takes to answer.
    pub(super) fn of(request: Request<RecvStream>) -> Result<Self, Status> {
        refuse_compression(request.headers())?;
        Ok(Self { time: budget(request.headers()), body: request.into_body() })
    }
}

/// The answer to a call, with what stands before a message.
async fn decide<S: Store>(
    rls: &Rls<S>,
    max_message_bytes: usize,
    asked: Result<Asked, Status>,
) -> Result<BytesMut, Status> {
    let Asked { mut body, time } = asked?;
    let message = read(&mut body, max_message_bytes).await?;
    let mut answer = BytesMut::with_capacity(USUAL_ANSWER);
    answer.put_bytes(0, HEADER);
    rls.answer(&message, time, &mut answer).await?;
    let length = u32::try_from(answer.len().saturating_sub(HEADER)).unwrap_or(u32::MAX);
    if let Some((_, place)) = answer.get_mut(..HEADER).and_then(<[u8]>::split_first_mut) {
        place.copy_from_slice(&length.to_be_bytes());
    }
    Ok(answer)
}

fn refuse_compression(headers: &HeaderMap) -> Result<(), Status> {
    let Some(encoding) = headers.get(ENCODING).filter(|encoding| *encoding != "identity") else { return Ok(()) };
    let mut accepted = MetadataMap::new();
    accepted.insert("grpc-accept-encoding", MetadataValue::from_static("identity"));
    let text = format!("messages may not be compressed, found grpc-encoding {encoding:?}");
    Err(Status::with_metadata(tonic::Code::Unimplemented, text, accepted))
}

/// The one message of a call, without what stands before it.
async fn read(body: &mut RecvStream, max_bytes: usize) -> Result<Bytes, Status> {
    let mut all = next(body).await?.unwrap_or_default();
    // Nearly always it comes in one piece.
    let mut pieces = BytesMut::new();
    loop {
        let whole = whole(if pieces.is_empty() { &all } else { &pieces }, max_bytes)?;
        match next(body).await? {
            Some(_) if whole => return Err(Status::internal("a call has one message, found more")),
            Some(piece) => {
                if pieces.is_empty() {
                    pieces.extend_from_slice(&all);
                }
                pieces.extend_from_slice(&piece);
            }
            None if whole => break,
            None => return Err(Status::internal("a call has one message, found none that is whole")),
        }
    }
    if !pieces.is_empty() {
        all = pieces.freeze();
    }
    all.advance(HEADER);
    Ok(all)
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

/// Sends headers, the answer, and that it is all.
fn send(respond: &mut SendResponse<Bytes>, answer: BytesMut) -> Result<(), h2::Error> {
    let mut head = Response::new(());
    head.headers_mut().insert(CONTENT_TYPE, GRPC);
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert(STATUS, OK);
    let mut stream = respond.send_response(head, false)?;
    stream.send_data(answer.freeze(), false)?;
    stream.send_trailers(trailers)
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
