//! OTLP over HTTP/1.1 with protobuf, on a connection that is reused for the next batch.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request, Uri};
use http_body_util::Full;
use prost::Message as _;

use super::ExportError;
use crate::grpc::client::{AnyError, Header};
use crate::grpc::proto::opentelemetry::proto::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use crate::http_client::{HttpClientError, HttpConnection, HttpOrigin};
use crate::tls::{ServerVerifier, client_config};

/// Maximum size of a response in bytes.
const MAX_ANSWER: usize = 64 << 10;
/// Maximum number of bytes of a response in an error message.
const MAX_SHOWN: usize = 200;

/// A client that sends batches to one URL.
pub(super) struct HttpExporter {
    url: Uri,
    server: HttpOrigin,
    headers: HeaderMap,
    connection: Option<HttpConnection>,
}

impl HttpExporter {
    /// Creates an exporter to `url` that adds these headers to its calls.
    ///
    /// # Errors
    /// If the URL is invalid.
    pub(super) fn new(url: &str, headers: &[Header]) -> Result<Self, AnyError> {
        let url = url.parse::<Uri>()?;
        let server = HttpOrigin::of(&url)?;
        let mut fields = HeaderMap::new();
        fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        fields.insert(
            USER_AGENT,
            HeaderValue::from_static(concat!("tollgate/", env!("CARGO_PKG_VERSION"))),
        );
        headers.iter().for_each(|header| header.add_to_http(&mut fields));
        Ok(Self { url, server, headers: fields, connection: None })
    }

    /// Sends a batch. Returns the number of rejected spans.
    ///
    /// # Errors
    /// If the collector did not accept the batch, with the reason.
    pub(super) async fn export(
        &mut self,
        batch: &ExportTraceServiceRequest,
    ) -> Result<u64, ExportError> {
        let body = Bytes::from(batch.encode_to_vec());
        let is_reused = self.connection.as_ref().is_some_and(|connection| !connection.is_closed());
        let sent = match self.send(body.clone()).await {
            // The collector may have closed an idle connection: a batch that fails on it is resent.
            Err(ExportError::Exchange { error: HttpClientError::Http(_) }) if is_reused => {
                self.connection = None;
                self.send(body).await
            }
            sent => sent,
        };
        sent.inspect_err(|_| self.connection = None)
    }

    async fn send(&mut self, body: Bytes) -> Result<u64, ExportError> {
        let connection = match self.connection.take().filter(|open| !open.is_closed()) {
            Some(open) => open,
            None if self.server.is_tls => {
                let config = client_config(ServerVerifier::new(None, true)?, None)?;
                self.server.connect(Some(config)).await?
            }
            None => self.server.connect(None).await?,
        };
        let connection = self.connection.insert(connection);
        let path = self.url.path_and_query().map_or("/", |path| path.as_str());
        let authority = self.url.authority().map_or("", |authority| authority.as_str());
        let mut request = Request::post(path).header(HOST, authority).body(Full::new(body))?;
        request.headers_mut().extend(self.headers.clone());
        let response = connection.send(request, MAX_ANSWER).await?;
        let status = response.status();
        let body = response.into_body();
        if !status.is_success() {
            let text = String::from_utf8_lossy(body.get(..MAX_SHOWN).unwrap_or(&body))
                .escape_debug()
                .to_string();
            return Err(ExportError::Status { status, text });
        }
        let answer = ExportTraceServiceResponse::decode(body)?;
        Ok(answer
            .partial_success
            .map_or(0, |part| u64::try_from(part.rejected_spans).unwrap_or_default()))
    }
}
