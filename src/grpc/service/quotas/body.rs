//! The body of the answer: responses one by one, then the trailers with the status.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures_util::stream::{Stream, unfold};
use http::HeaderMap;
use http_body::{Body, Frame};
use tonic::Status;

use super::QuotaSession;
use crate::store::backend::Backend;

/// The responses of a stream, encoded, and the status of its end if that is an error.
type Responses = Pin<Box<dyn Stream<Item = Result<Vec<u8>, Status>> + Send>>;

/// The body of an answer.
pub(super) struct QuotaBody {
    /// `None` once the trailers are sent.
    responses: Option<Responses>,
}

impl QuotaBody {
    pub(super) fn new<B: Backend>(session: QuotaSession<B>) -> Self {
        let responses = unfold(Some(session), |session| async move {
            let mut session = session?;
            match session.next().await {
                Ok(response) => Some((Ok(response?), Some(session))),
                Err(status) => Some((Err(status), None)),
            }
        });
        Self { responses: Some(Box::pin(responses)) }
    }
}

impl Body for QuotaBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Some(responses) = &mut self.responses else { return Poll::Ready(None) };
        let status = match ready!(responses.as_mut().poll_next(cx)) {
            Some(Ok(response)) => return Poll::Ready(Some(Ok(Frame::data(response.into())))),
            Some(Err(status)) => status,
            None => Status::ok(""),
        };
        self.responses = None;
        let mut trailers = HeaderMap::new();
        let added = status.add_header(&mut trailers);
        Poll::Ready(Some(added.map(|()| Frame::trailers(trailers))))
    }
}
