//! The upstream that Envoy protects: answers every path, and returns in `x-tokens` the cost that
//! the caller has set.

use std::net::SocketAddr;

use axum::Router;
use axum::http::HeaderMap;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// A running server, stopped when dropped.
pub struct Upstream {
    pub address: SocketAddr,
    server: JoinHandle<()>,
}

impl Upstream {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().fallback(answer);
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, server }
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.server.abort();
    }
}

/// Copies header `x-answer-tokens` of the request to `x-tokens` of the response.
async fn answer(request: HeaderMap) -> (HeaderMap, &'static str) {
    let tokens =
        request.get("x-answer-tokens").map(|tokens| ("x-tokens".parse().unwrap(), tokens.clone()));
    (tokens.into_iter().collect(), "upstream\n")
}
