//! The trait by which connections have their calls answered.

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;

use super::body::RequestBody;
use super::fields::Fields;

/// Answers the calls of one connection.
pub trait Service: Send + 'static {
    /// Parts of a header list that a unary call needs; kept while its message is awaited, and for later calls with the same
    /// list.
    type Head: Clone + Send;
    /// A unary call under way.
    type Unary: Future<Output = Answer<Self::Body>> + Send;
    /// The body of a response.
    type Body: Body<Data = Bytes> + Send + Unpin;

    /// Decides by a call's header list how the call is read.
    fn route(&self, fields: &Fields) -> Route<Self::Head>;

    /// Begins a unary call. `exchange.request` holds its whole body.
    fn unary(&self, head: Self::Head, exchange: Exchange) -> Self::Unary;

    /// Begins any other call; its body comes as the service reads it.
    fn stream(&self, request: Request<RequestBody>) -> ResponseFuture<Self::Body>;

    /// Returns the response to a call that this side does not take up.
    fn refuse(&self, refusal: Refusal) -> Response<Self::Body>;
}

/// A response to come.
pub type ResponseFuture<B> = Pin<Box<dyn Future<Output = Answer<B>> + Send>>;

/// The way in which a call is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route<H> {
    /// The body is collected, up to `max_body` bytes, before the service is called.
    Unary {
        /// Handed to the service with the body.
        head: H,
        /// Bytes.
        max_body: usize,
    },
    /// The service reads the body.
    Stream {
        /// Bytes that a call holds at most besides its header list and what waits for the client.
        cost: usize,
    },
}

/// The buffers of a unary call, which later calls use again.
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
    /// A message of gRPC with status 0, all of it in `answer`.
    Message(Exchange),
    /// Any other response.
    Response(Box<Response<B>>),
}

/// The reason for which a call is not taken up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The body of a unary call is larger than its route allows.
    BodyTooLarge,
    /// The body did not come in time.
    BodyTooSlow,
    /// Clients hold as much memory as they may.
    BudgetExceeded,
}
