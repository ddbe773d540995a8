//! Servers that the layer limits by the user.

use std::net::SocketAddr;

use axum::Router;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::task::AbortHandle;
use tollgate_client::tonic::codegen::http::request::Parts;
use tollgate_client::{Client, Descriptor, Limits, RateLimitLayer};
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

use super::{Call, with_options};

/// Starts a server. Returns its address, and the handle that stops it.
pub(crate) async fn start(client: Client, call: &Call) -> (SocketAddr, AbortHandle) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    let layer = with_options!(call, RateLimitLayer::new(client, by_user));
    let server = match call.integration.as_str() {
        "grpc" => {
            let (_, health) = tonic_health::server::health_reporter();
            let server = Server::builder().layer(layer).add_service(health);
            let incoming = TcpIncoming::from(listener);
            tokio::spawn(
                async move { server.serve_with_incoming(incoming).await.expect("a server") },
            )
        }
        _ => {
            let application = Router::new().route("/", get(|| async { "application" }));
            let limited = application.layer(layer);
            tokio::spawn(async move { axum::serve(listener, limited).await.expect("a server") })
        }
    };
    (address, server.abort_handle())
}

fn by_user(request: &Parts) -> Option<Limits> {
    let users = request.headers.get_all("x-user").into_iter();
    // A header may have any bytes, and the text of a descriptor is UTF-8.
    let user = |user: &[u8]| Descriptor::new("user", String::from_utf8_lossy(user));
    Some(("test".into(), users.map(|found| user(found.as_bytes())).collect()))
}
