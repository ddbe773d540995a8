//! An HTTP client.

use std::net::SocketAddr;

use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderValue, Request};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;

/// A client with connections of its own.
#[derive(Clone)]
pub struct Web {
    client: Client<HttpConnector, Full<Bytes>>,
    pub server: SocketAddr,
}

/// A response.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: String,
}

impl Web {
    pub fn new(server: SocketAddr) -> Self {
        Self { client: Client::builder(TokioExecutor::new()).build_http(), server }
    }

    /// Returns the server's address.
    pub fn server(&self) -> SocketAddr {
        self.server
    }

    /// Creates another client of the same server, which shares no connection with this one.
    pub fn afresh(&self) -> Self {
        Self::new(self.server)
    }

    /// Sends a GET request.
    pub async fn get(&self, path: &str) -> Reply {
        self.get_with(path, &[]).await
    }

    /// Sends a GET request with headers, whose values may be any bytes that HTTP permits.
    pub async fn get_with(&self, path: &str, headers: &[(&'static str, &[u8])]) -> Reply {
        let mut request =
            Request::get(format!("http://{}{path}", self.server)).body(Full::default()).unwrap();
        for (name, value) in headers {
            request.headers_mut().append(*name, HeaderValue::from_bytes(value).unwrap());
        }
        self.execute(request).await
    }

    /// Sends a request with any method and a body.
    pub async fn send(&self, method: &str, path: &str, body: impl Into<Bytes>) -> Reply {
        let request =
            Request::builder().method(method).uri(format!("http://{}{path}", self.server));
        self.execute(request.body(Full::new(body.into())).unwrap()).await
    }

    /// Sends a request with headers.
    pub async fn send_with(
        &self,
        method: &str,
        path: &str,
        headers: &[(&'static str, &str)],
        body: impl Into<Bytes>,
    ) -> Reply {
        let mut request =
            Request::builder().method(method).uri(format!("http://{}{path}", self.server));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.execute(request.body(Full::new(body.into())).unwrap()).await
    }

    async fn execute(&self, request: Request<Full<Bytes>>) -> Reply {
        let response = self.client.request(request).await.unwrap();
        let (head, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Reply {
            status: head.status.as_u16(),
            headers: head.headers,
            body: String::from_utf8_lossy(&body).into_owned(),
        }
    }

    /// Returns a metric by its exposed name, including labels and `_total`; 0 if it is not exposed.
    pub async fn metric(&self, name: &str) -> u64 {
        let body = self.get("/metrics").await.body;
        let mut values = body
            .lines()
            .filter_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
        values.next().unwrap_or_default()
    }

    /// Returns the status of a GET as a user.
    pub async fn status(&self, path: &str, user: &str) -> u16 {
        self.get_with(path, &[("x-user", user.as_bytes())]).await.status
    }
}

impl Reply {
    /// Returns the value of a header; empty if it is absent.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
    }
}

/// Returns the JSON at a path of the admin API.
pub async fn fetch(admin: &Web, path: &str) -> Value {
    let reply = admin.get(path).await;
    assert_eq!(
        (reply.status, reply.header("content-type")),
        (200, "application/json"),
        "{path}: {}",
        reply.body
    );
    serde_json::from_str(&reply.body).unwrap()
}
