//! A service whose calls are answered at once, later, never, in pieces or with large bodies,
//! depending on their paths.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body::{Body, Frame};
use parking_lot::Mutex;

use crate::body::RequestBody;
use crate::fields::HeaderFields;
use crate::message::PREFIX;
use crate::refusal::Refusal;
use crate::service::{Answer, Exchange, MessageCall, ResponseFuture, Route, Service, WholeCall};

/// Maximum size of a message, in bytes.
pub(crate) const MAX_MESSAGE: usize = 100_000;
/// The byte that fills generated answers.
pub(crate) const FILL: u8 = b'x';

/// Behaviour of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behaviour {
    /// Unary; answered with its own body.
    Echo,
    /// Unary; answered with its own body once the gate opens.
    Later,
    /// Unary; never answered.
    Never,
    /// Unary; answered with this many bytes.
    Large(usize),
    /// Messages; echoes each as it arrives.
    StreamEcho,
    /// Whole; reads its body, then answers without one.
    Status,
    /// Bytes; answers with this many bytes in pieces, one each time that the gate opens. Its body
    /// is not read.
    Pieces(usize),
    /// Bytes; fails after some bytes.
    Fail,
}

impl Behaviour {
    pub(crate) fn path(self) -> String {
        match self {
            Self::Echo => "/echo".to_owned(),
            Self::Later => "/later".to_owned(),
            Self::Never => "/never".to_owned(),
            Self::Large(bytes) => format!("/large/{bytes}"),
            Self::StreamEcho => "/stream-echo".to_owned(),
            Self::Status => "/status".to_owned(),
            Self::Pieces(bytes) => format!("/pieces/{bytes}"),
            Self::Fail => "/fail".to_owned(),
        }
    }

    /// Returns the behaviour of a path. Unknown paths echo.
    fn of(path: &[u8]) -> Self {
        let path = std::str::from_utf8(path).unwrap_or_default();
        let number =
            |prefix: &str| path.strip_prefix(prefix).and_then(|number| number.parse::<u16>().ok());
        match path {
            "/later" => Self::Later,
            "/never" => Self::Never,
            "/stream-echo" => Self::StreamEcho,
            "/status" => Self::Status,
            "/fail" => Self::Fail,
            _ => match (number("/large/"), number("/pieces/")) {
                (Some(bytes), _) => Self::Large(bytes.into()),
                (_, Some(bytes)) => Self::Pieces(bytes.into()),
                (None, None) => Self::Echo,
            },
        }
    }
}

/// A gate that holds calls until it is opened, and closes again behind those that waited.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gate(Arc<Mutex<GateState>>);

#[derive(Debug, Default)]
struct GateState {
    opened: u64,
    waiting: Vec<Waker>,
}

impl Gate {
    pub(crate) fn open(&self) {
        let mut state = self.0.lock();
        state.opened += 1;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        waiting.into_iter().for_each(Waker::wake);
    }

    fn opened(&self) -> u64 {
        self.0.lock().opened
    }

    /// Polls for an opening of the gate since `seen`.
    fn poll(&self, seen: u64, cx: &Context<'_>) -> Poll<u64> {
        let mut state = self.0.lock();
        if state.opened > seen {
            return Poll::Ready(state.opened);
        }
        state.waiting.push(cx.waker().clone());
        Poll::Pending
    }
}

pub(crate) struct Scripted(pub(crate) Gate);

impl Service for Scripted {
    type Head = Behaviour;
    type Unary = Pin<Box<dyn Future<Output = Answer<ServiceScript>> + Send>>;
    type Body = ServiceScript;

    fn route(&self, fields: &HeaderFields) -> Route<Behaviour> {
        match Behaviour::of(fields.path()) {
            Behaviour::StreamEcho => {
                Route::Messages(MessageCall { cost: 1_000, max_message: MAX_MESSAGE })
            }
            Behaviour::Status => {
                Route::Whole(WholeCall { cost: 1_000, byte_cost: 2, max_message: MAX_MESSAGE })
            }
            Behaviour::Pieces(_) | Behaviour::Fail => Route::Bytes { cost: 1_000 },
            head => Route::Unary { head, max_message: MAX_MESSAGE },
        }
    }

    fn unary(&self, head: Behaviour, mut exchange: Exchange) -> Self::Unary {
        assert!(exchange.answer.is_empty() && exchange.request.len() <= MAX_MESSAGE + PREFIX);
        let gate = self.0.clone();
        let seen = self.0.opened();
        Box::pin(async move {
            match head {
                Behaviour::Later => drop(poll_fn(|cx| gate.poll(seen, cx)).await),
                Behaviour::Never => std::future::pending().await,
                _ => {}
            }
            match head {
                Behaviour::Large(bytes) => exchange.answer.resize(bytes, FILL),
                _ => exchange.answer.extend_from_slice(&exchange.request),
            }
            Answer::Message(exchange)
        })
    }

    fn general(&self, request: Request<RequestBody>) -> ResponseFuture<ServiceScript> {
        let behaviour = Behaviour::of(request.uri().path().as_bytes());
        let gate = self.0.clone();
        let (head, mut body) = request.into_parts();
        Box::pin(async move {
            let script = match behaviour {
                Behaviour::Status => {
                    while let Some(Ok(_)) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
                    }
                    ServiceScript::Empty
                }
                Behaviour::Pieces(left) => {
                    ServiceScript::Pieces { left, seen: gate.opened(), gate, _unread: body }
                }
                Behaviour::Fail => ServiceScript::Failing(Some(Bytes::from_static(b"before"))),
                _ => ServiceScript::Echo(body),
            };
            let mut response = Response::new(script);
            let custom = head.headers.iter().filter(|(name, _)| name.as_str().starts_with("x-"));
            response
                .headers_mut()
                .extend(custom.map(|(name, value)| (name.clone(), value.clone())));
            Answer::Response(Box::new(response))
        })
    }

    fn refuse(&self, refusal: Refusal) -> Response<ServiceScript> {
        Response::builder()
            .header("refused", format!("{refusal:?}"))
            .body(ServiceScript::Empty)
            .unwrap()
    }
}

/// The body of an answer.
#[derive(Debug)]
pub(crate) enum ServiceScript {
    Empty,
    Echo(RequestBody),
    Pieces {
        left: usize,
        seen: u64,
        gate: Gate,
        _unread: RequestBody,
    },
    /// Ends with trailers.
    Trailers,
    Failing(Option<Bytes>),
}

impl Body for ServiceScript {
    type Data = Bytes;
    type Error = ();

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ()>>> {
        match &mut *self {
            Self::Empty => Poll::Ready(None),
            Self::Echo(body) => Pin::new(body).poll_frame(cx).map_err(drop),
            Self::Failing(data) => Poll::Ready(Some(data.take().map(Frame::data).ok_or(()))),
            Self::Pieces { left, seen, gate, .. } => {
                if *left == 0 {
                    *self = Self::Trailers;
                    return self.poll_frame(cx);
                }
                *seen = std::task::ready!(gate.poll(*seen, cx));
                let piece = left.div_ceil(2);
                *left -= piece;
                Poll::Ready(Some(Ok(Frame::data(Bytes::from(vec![FILL; piece])))))
            }
            Self::Trailers => {
                *self = Self::Empty;
                let status = HeaderMap::from_iter([(
                    http::HeaderName::from_static("grpc-status"),
                    HeaderValue::from(0),
                )]);
                Poll::Ready(Some(Ok(Frame::trailers(status))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Empty)
    }
}
