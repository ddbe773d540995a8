//! A gRPC server that answers each unary call with the message that it receives.
//!
//! `cargo run -p tollgate-http2 --example echo 127.0.0.1:9090`

use std::error::Error;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Empty;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tollgate_http2::observer::NoObserver;
use tollgate_http2::registry::{ConnectionBounds, MAX_LEAVING, Registry};
use tollgate_http2::server::{Lifetime, TransportServer};
use tollgate_http2::socket::{Accepted, Carrier};
use tollgate_http2::{
    Answer, Budget, Exchange, HeaderFields, Limits, Refusal, RequestBody, ResponseFuture, Route,
    Service,
};

/// Maximum size of a message, in bytes.
const MAX_MESSAGE: usize = 1 << 20;
/// Memory of all connections, in bytes.
const MEMORY: usize = 64 << 20;

struct Echo;

impl Service for Echo {
    type Head = ();
    type Unary = Ready<Answer<Self::Body>>;
    type Body = Empty<Bytes>;

    fn route(&self, _: &HeaderFields) -> Route<Self::Head> {
        Route::Unary { head: (), max_message: MAX_MESSAGE }
    }

    fn unary(&self, (): Self::Head, mut exchange: Exchange) -> Self::Unary {
        exchange.answer.extend_from_slice(&exchange.request);
        ready(Answer::Message(exchange))
    }

    fn general(&self, _: Request<RequestBody>) -> ResponseFuture<Self::Body> {
        Box::pin(ready(Answer::Response(Box::new(status(StatusCode::NOT_FOUND)))))
    }

    fn refuse(&self, _: Refusal) -> Response<Self::Body> {
        let mut refused = status(StatusCode::OK);
        refused.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
        // RESOURCE_EXHAUSTED.
        refused.headers_mut().insert("grpc-status", HeaderValue::from_static("8"));
        refused
    }
}

fn status(status: StatusCode) -> Response<Empty<Bytes>> {
    let mut response = Response::new(Empty::new());
    *response.status_mut() = status;
    response
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:9090".to_owned());
    let listener = TcpListener::bind(address).await?;
    let budget = Arc::new(Budget::new(MEMORY));
    let bounds = ConnectionBounds { total: 1_024, per_address: Some(256), leaving: MAX_LEAVING };
    let registry = Registry::new(bounds, Arc::clone(&budget), Arc::new(NoObserver));
    let limits = Limits {
        max_streams: 100,
        max_header_list: 16 << 10,
        message_timeout: Duration::from_secs(10),
        keepalive_interval: Duration::from_secs(60),
        keepalive_timeout: Duration::from_secs(20),
    };
    let server = TransportServer {
        lifetime: Lifetime { limits, max_age: None, max_age_grace: None },
        tls: None,
        budget,
        observer: Arc::new(NoObserver),
        drain: CancellationToken::new(),
    };
    let (accepted, incoming) = mpsc::channel(16);
    tokio::spawn(server.serve(incoming, |_, _| Echo));
    loop {
        let (stream, peer) = listener.accept().await?;
        // A connection beyond the bounds is closed.
        let Some(registration) = registry.register(Some(peer)) else { continue };
        let carrier = Carrier::Tcp(stream.into_std()?);
        accepted.send(Accepted { carrier, registration }).await?;
    }
}
