//! Calls of the services that tonic makes, health and reflection: its bodies on streams of HTTP/2.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use http::{Request, Response};
use http_body::{Body as _, Frame};
use tonic::body::Body;
use tonic::codegen::Service as _;
use tonic::service::Routes;
use tracing::debug;

use crate::telemetry::stats::Call;

/// Answers a call by `routes`, for as long as its caller wants to hear.
pub(super) async fn answer(
    mut routes: Routes,
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    timer: Option<Call>,
) {
    let mut answered = pin!(routes.call(request.map(|stream| Body::new(Received(stream)))));
    let answered = poll_fn(|cx| match answered.as_mut().poll(cx) {
        Poll::Ready(Ok(answer)) => Poll::Ready(Some(answer)),
        Poll::Ready(Err(never)) => match never {},
        Poll::Pending => respond.poll_reset(cx).map(|_| None),
    });
    let Some(answer) = answered.await else { return debug!("a caller went away before the answer") };
    let sent = send(&mut respond, answer).await;
    match sent {
        Ok(()) => timer.into_iter().for_each(Call::answered),
        Err(error) => debug!(%error, "an answer could not be sent"),
    }
}

/// Sends an answer, no faster than its caller reads.
async fn send(respond: &mut SendResponse<Bytes>, answer: Response<Body>) -> Result<(), h2::Error> {
    let (head, mut body) = answer.into_parts();
    let mut stream = respond.send_response(Response::from_parts(head, ()), body.is_end_stream())?;
    while !body.is_end_stream() {
        let frame = poll_fn(|cx| match Pin::new(&mut body).poll_frame(cx) {
            Poll::Ready(frame) => Poll::Ready(Ok(frame)),
            Poll::Pending => {
                stream.poll_reset(cx).map(|reason| Err(reason.map_or_else(|error| error, h2::Error::from)))
            }
        });
        let Some(Ok(frame)) = frame.await? else { break };
        match frame.into_data().map_err(Frame::into_trailers) {
            Ok(data) => send_data(&mut stream, data).await?,
            Err(Ok(trailers)) => return stream.send_trailers(trailers),
            Err(Err(_)) => {}
        }
    }
    stream.send_data(Bytes::new(), true)
}

/// Sends bytes as the caller has room for them.
async fn send_data(stream: &mut SendStream<Bytes>, mut data: Bytes) -> Result<(), h2::Error> {
    while !data.is_empty() {
        stream.reserve_capacity(data.len());
        let Some(room) = poll_fn(|cx| stream.poll_capacity(cx)).await else {
            return Err(h2::Reason::CANCEL.into());
        };
        stream.send_data(data.split_to(room?.min(data.len())), false)?;
    }
    Ok(())
}

/// What comes on a stream, as tonic reads it.
struct Received(RecvStream);

impl http_body::Body for Received {
    type Data = Bytes;
    type Error = h2::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, h2::Error>>> {
        let stream = &mut self.0;
        match stream.poll_data(cx) {
            Poll::Ready(Some(data)) => {
                // An error is about a stream that has ended.
                let release = |data: &Bytes| drop(stream.flow_control().release_capacity(data.len()));
                Poll::Ready(Some(data.inspect(release).map(Frame::data)))
            }
            Poll::Ready(None) => stream
                .poll_trailers(cx)
                .map(|trailers| trailers.transpose().map(|trailers| trailers.map(Frame::trailers))),
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }
}
