//! The trait that answers the calls of connections.

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;

use super::body::RequestBody;
use super::fields::HeaderFields;

/// Answers the calls of one connection.
pub trait Service: Send + 'static {
    /// Parts of a header list that a unary call needs; kept while its message is pending, and for
    /// later calls with the same list.
    type Head: Clone + Send;
    /// Future of a unary call.
    type Unary: Future<Output = Answer<Self::Body>> + Send;
    /// The body of a response.
    type Body: Body<Data = Bytes> + Send + Unpin;

    /// Chooses how a call is read, based on its header list.
    fn route(&self, fields: &HeaderFields) -> Route<Self::Head>;

    /// Begins a unary call. `exchange.request` holds its whole body.
    fn unary(&self, head: Self::Head, exchange: Exchange) -> Self::Unary;

    /// Returns the memory in bytes that a unary call with this body allocates while it is pending,
    /// besides its future and the body.
    fn unary_heap(&self, _body: &[u8]) -> usize {
        0
    }

    /// Begins any other call; its body arrives as the service reads it.
    fn stream(&self, request: Request<RequestBody>) -> ResponseFuture<Self::Body>;

    /// Returns the bytes that calls of this connection have processed since the last call of this
    /// method, besides those received, such as those of inflated messages. The connection yields
    /// to others sooner for them.
    fn take_work(&self) -> usize {
        0
    }

    /// Returns the response to a call that this side refuses.
    fn refuse(&self, refusal: Refusal) -> Response<Self::Body>;
}

/// Future of a response.
pub type ResponseFuture<B> = Pin<Box<dyn Future<Output = Answer<B>> + Send>>;

/// Mode of reading a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route<H> {
    /// The body is collected, up to `max_body` bytes, before the service is called.
    Unary {
        /// Passed to the service with the body.
        head: H,
        /// Maximum size of the body, in bytes.
        max_body: usize,
    },
    /// The service reads the body.
    Stream {
        /// Maximum bytes that a call holds in addition to its header list and its pending output.
        cost: usize,
    },
}

/// The buffers of a unary call, which later calls reuse.
#[derive(Debug, Default)]
pub struct Exchange {
    /// Body of the request.
    pub request: Vec<u8>,
    /// Body of the answer; empty when the call begins.
    pub answer: Vec<u8>,
}

/// An answer to a call.
#[derive(Debug)]
pub enum Answer<B> {
    /// A gRPC message with status 0, all of it in `answer`.
    Message(Exchange),
    /// Any other response.
    Response(Box<Response<B>>),
}

/// Reason for refusing a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The body of a unary call is larger than its route allows.
    BodyTooLarge,
    /// The body did not arrive in time.
    BodyTooSlow,
    /// The memory budget is exhausted.
    BudgetExceeded,
}
