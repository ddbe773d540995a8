//! An HTTP client.

use std::net::SocketAddr;

use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderValue, Request};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;

/// A client with connections of its own.
#[derive(Clone)]
pub(crate) struct Web {
    client: Client<HttpConnector, Full<Bytes>>,
    server: SocketAddr,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl Web {
    pub(crate) fn new(server: SocketAddr) -> Self {
        Self { client: Client::builder(TokioExecutor::new()).build_http(), server }
    }

    /// Where the server is.
    pub(crate) fn server(&self) -> SocketAddr {
        self.server
    }

    /// Another client of the same server, which shares no connection with this one.
    pub(crate) fn afresh(&self) -> Self {
        Self::new(self.server)
    }

    /// GET.
    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.get_with(path, &[]).await
    }

    /// GET with headers, whose values may be any bytes that HTTP lets pass.
    pub(crate) async fn get_with(&self, path: &str, headers: &[(&'static str, &[u8])]) -> Reply {
        let mut request = Request::get(format!("http://{}{path}", self.server)).body(Full::default()).unwrap();
        for (name, value) in headers {
            request.headers_mut().append(*name, HeaderValue::from_bytes(value).unwrap());
        }
        self.ask(request).await
    }

    /// A request by any method, with a body.
    pub(crate) async fn send(&self, method: &str, path: &str, body: impl Into<Bytes>) -> Reply {
        let request = Request::builder().method(method).uri(format!("http://{}{path}", self.server));
        self.ask(request.body(Full::new(body.into())).unwrap()).await
    }

    /// The same with headers.
    pub(crate) async fn send_with(
        &self,
        method: &str,
        path: &str,
        headers: &[(&'static str, &str)],
        body: impl Into<Bytes>,
    ) -> Reply {
        let mut request = Request::builder().method(method).uri(format!("http://{}{path}", self.server));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.ask(request.body(Full::new(body.into())).unwrap()).await
    }

    async fn ask(&self, request: Request<Full<Bytes>>) -> Reply {
        let response = self.client.request(request).await.unwrap();
        let (head, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Reply { status: head.status.as_u16(), headers: head.headers, body: String::from_utf8_lossy(&body).into_owned() }
    }

    /// A metric by its name as it is shown, labels and `_total` included; 0 where it is not shown.
    pub(crate) async fn metric(&self, name: &str) -> u64 {
        let body = self.get("/metrics").await.body;
        let mut values = body.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.parse().ok());
        values.next().unwrap_or_default()
    }

    /// The status of GET as one user.
    pub(crate) async fn status(&self, path: &str, user: &str) -> u16 {
        self.get_with(path, &[("x-user", user.as_bytes())]).await.status
    }
}

impl Reply {
    /// A header's value; empty where there is none.
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
    }
}
