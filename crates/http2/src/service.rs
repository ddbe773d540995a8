//! The trait that answers the calls of connections.

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;

use super::body::RequestBody;
use super::fields::HeaderFields;
use super::refusal::Refusal;

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

    /// Begins any other call, whose route says what has arrived of its body.
    fn general(&self, request: Request<RequestBody>) -> ResponseFuture<Self::Body>;

    /// Returns the response to a call that this side refuses.
    fn refuse(&self, refusal: Refusal) -> Response<Self::Body>;
}

/// Future of a response.
pub type ResponseFuture<B> = Pin<Box<dyn Future<Output = Answer<B>> + Send>>;

/// Mode of reading a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route<H> {
    /// The body is collected before the service is called.
    Unary {
        /// Passed to the service with the body.
        head: H,
        /// Maximum size of its message, in bytes.
        max_message: usize,
    },
    /// The same, for a call that the service gets as a request.
    Whole(WholeCall),
    /// The service reads the body message by message.
    Messages(MessageCall),
    /// The service reads the body as it arrives, without regard to messages.
    Bytes {
        /// Bytes that a call holds in addition to its header list and its pending output.
        cost: usize,
    },
}

/// A general call that begins once its body has arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WholeCall {
    /// Bytes that a call holds in addition to its header list and its pending output.
    pub cost: usize,
    /// The same for each byte of its body.
    pub byte_cost: usize,
    /// Maximum size of its message, in bytes.
    pub max_message: usize,
}

/// A general call that begins once its first message has arrived. Its body has each message in one
/// piece, with its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageCall {
    /// Bytes that a call holds in addition to its header list and its pending output.
    pub cost: usize,
    /// Maximum size of a message, in bytes.
    pub max_message: usize,
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
