//! A service in the process of a test, whose answers a function makes.

#![allow(dead_code, clippy::expect_used, clippy::indexing_slicing, reason = "a test's support")]

use std::net::SocketAddr;

use axum::Router;
use axum::body::to_bytes;
use bytes::{BufMut as _, Bytes, BytesMut};
use http_body_util::{BodyExt as _, Full};
use prost::Message;
use tokio::net::TcpListener;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::http::{HeaderMap, HeaderValue, Request, Response};
use tonic::service::Routes;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

/// The messages of the package, which are private there.
#[path = "../../src/generated/mod.rs"]
#[allow(clippy::all, missing_docs, unreachable_pub, reason = "generated")]
pub(crate) mod generated;

use self::generated::envoy::service::ratelimit::v3::{RateLimitResponse, rate_limit_response};
use self::generated::tollgate::v1::lease_answer::Answer;
use self::generated::tollgate::v1::{
    CounterReport, ExchangeRequest, ExchangeResponse, LeaseAnswer, LeaseResult, Loan,
};

pub(crate) const EXCHANGE: &str = "/tollgate.v1.LeaseService/Exchange";

/// Serves until the runtime ends. `answer` gets the path and the message of each call.
pub(crate) async fn serve<F, A>(answer: F) -> SocketAddr
where
    F: Fn(String, Bytes) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = Result<Vec<u8>, Status>> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let router = Router::new().fallback(move |request: Request<axum::body::Body>| {
        let answer = answer.clone();
        async move {
            let path = request.uri().path().to_owned();
            let frame = to_bytes(request.into_body(), usize::MAX).await.expect("a message");
            // A frame begins with a flag and its length.
            match answer(path, frame.slice(5..)).await {
                Ok(message) => answered(&message),
                Err(status) => status.into_http(),
            }
        }
    });
    let incoming = TcpIncoming::from(listener);
    let server = Server::builder().add_routes(Routes::from(router)).serve_with_incoming(incoming);
    tokio::spawn(async move { server.await.expect("a server") });
    address
}

fn answered(message: &[u8]) -> Response<Body> {
    let mut frame = BytesMut::new();
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).expect("a short message"));
    frame.put_slice(message);
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    let body = Full::new(frame.freeze()).with_trailers(async move { Some(Ok(trailers)) });
    let mut response = Response::new(Body::new(body));
    let grpc = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert("content-type", grpc);
    response
}

/// Returns the message of an answer that admits a request.
pub(crate) fn admitted() -> Vec<u8> {
    let code = rate_limit_response::Code::Ok.into();
    RateLimitResponse { overall_code: code, ..RateLimitResponse::default() }.encode_to_vec()
}

/// Answers an exchange with a block of hits for each want.
pub(crate) fn lend(request: &ExchangeRequest, hits: u32) -> Vec<u8> {
    let seconds = |seconds| Some(prost_types::Duration { seconds, nanos: 0 });
    let counter = CounterReport { limit: 100, remaining: 50, ..CounterReport::default() };
    let usable_for = seconds(60);
    let loan = Loan { hits, receipt: vec![1], usable_for, counter: Some(counter) };
    let answer = LeaseAnswer { generation: 1, answer: Some(Answer::Loan(loan)) };
    ExchangeResponse {
        answers: vec![answer; request.wants.len()],
        results: vec![LeaseResult::Accepted.into(); request.returns.len()],
    }
    .encode_to_vec()
}

/// Serves as a service that admits everything, and lends blocks of `hits`.
pub(crate) async fn serve_lender(hits: u32) -> SocketAddr {
    serve(move |path, message| async move {
        if path == EXCHANGE {
            let request = ExchangeRequest::decode(message).expect("an exchange");
            return Ok(lend(&request, hits));
        }
        Ok(admitted())
    })
    .await
}
