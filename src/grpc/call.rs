//! One call of `ShouldRateLimit` on its stream of HTTP/2: its message read, decided and answered, in gRPC's framing.
//!
//! What tonic would do, for one unary method without compression.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use h2::RecvStream;
use h2::server::SendResponse;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response};
use tonic::Status;
use tonic::metadata::{MetadataMap, MetadataValue};
use tracing::debug;

use super::bodies::{Bodies, HEADER};
use super::caller::Caller;
use super::service::{Rls, budget};
use crate::spans::{Recording, Tracer};
use crate::store::Store;
use crate::telemetry::stats::Call;

/// The method's path.
pub(super) const PATH: &str = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit";

/// Room for the answer to a usual request.
const USUAL_ANSWER: usize = 128;
const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
const OK: HeaderValue = HeaderValue::from_static("0");

/// What the calls of a connection share: who asks, who answers.
pub(super) struct Ends<S> {
    pub(super) rls: Arc<Rls<S>>,
    pub(super) bodies: Arc<Bodies>,
    pub(super) caller: Caller,
}

/// Answers a call, unless its caller waits no more.
pub(super) async fn answer<S: Store>(
    ends: Arc<Ends<S>>,
    asked: Result<Asked, Status>,
    mut respond: SendResponse<Bytes>,
    timer: Option<Call>,
) {
    let mut decided = pin!(decide(&ends, asked));
    let decided = poll_fn(|cx| match decided.as_mut().poll(cx) {
        Poll::Ready(decided) => Poll::Ready(Some(decided)),
        Poll::Pending => respond.poll_reset(cx).map(|_| None),
    });
    let sent = match decided.await {
        Some(Ok(answer)) => send(&mut respond, answer),
        Some(Err(status)) => respond.send_response(status.into_http(), true).map(drop),
        None => {
            ends.caller.gave_up();
            return debug!("a caller went away before the answer");
        }
    };
    match sent {
        Ok(()) => {
            ends.caller.was_answered();
            timer.into_iter().for_each(Call::answered);
        }
        Err(error) => {
            ends.caller.gave_up();
            debug!(%error, "an answer could not be sent");
        }
    }
}

/// What is wanted of a request, before its message has come.
pub(super) struct Asked {
    body: RecvStream,
    /// The time that the caller has.
    time: Option<Duration>,
    /// Of a call that is traced.
    recording: Option<Box<Recording>>,
}

impl Asked {
    /// Takes from a request what it takes to answer.
    pub(super) fn of(request: Request<RecvStream>, tracer: Option<&Tracer>) -> Result<Self, Status> {
        let headers = request.headers();
        refuse_compression(headers)?;
        let header = |name: &str| headers.get(name).map(HeaderValue::as_bytes);
        let recording = tracer.and_then(|tracer| tracer.begin(header));
        Ok(Self { time: budget(headers), recording, body: request.into_body() })
    }
}

/// The answer to a call, with what stands before a message.
async fn decide<S: Store>(ends: &Ends<S>, asked: Result<Asked, Status>) -> Result<BytesMut, Status> {
    let Asked { mut body, time, mut recording } = asked?;
    let decided = decide_read(ends, &mut body, time, recording.as_deref_mut()).await;
    if let Some(recording) = &mut recording {
        recording.told().status = Some(decided.as_ref().map_or_else(|status| status.code().into(), |_| 0));
    }
    decided
}

async fn decide_read<S: Store>(
    ends: &Ends<S>,
    body: &mut RecvStream,
    time: Option<Duration>,
    recording: Option<&mut Recording>,
) -> Result<BytesMut, Status> {
    let message = ends.bodies.read(body).await?;
    let mut answer = BytesMut::with_capacity(USUAL_ANSWER);
    answer.put_bytes(0, HEADER);
    ends.rls.answer(&message, time, &ends.caller.rights, recording, &mut answer).await?;
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
