//! OTLP over HTTP/1.1 with protobuf, on a connection that is reused for the next batch.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use prost::Message as _;
use rustls::ClientConfig;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::grpc::client::Header;
use crate::grpc::proto::opentelemetry::proto::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use crate::tls::{ServerVerifier, system_authorities};

/// Maximum size of a response in bytes.
const MAX_ANSWER: usize = 64 << 10;
/// Maximum number of bytes of a response in an error message.
const MAX_SHOWN: usize = 200;

/// A client that sends batches to one URL.
pub(super) struct HttpExporter {
    url: Uri,
    headers: HeaderMap,
    connection: Option<SendRequest<Full<Bytes>>>,
}

/// An error for a batch that the collector did not accept.
#[derive(Debug, thiserror::Error)]
enum HttpError {
    #[error("{0}")]
    Tls(String),
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("{0}")]
    Http(#[from] hyper::Error),
    #[error("{0}")]
    Request(#[from] http::Error),
    #[error("failed to read the response: {0}")]
    Answer(Box<dyn std::error::Error + Send + Sync>),
    #[error("the collector returned {status}: {text}")]
    Status { status: StatusCode, text: String },
}

impl HttpExporter {
    /// Creates an exporter to `url` that adds these headers to its calls.
    ///
    /// # Errors
    /// If the URL is invalid.
    pub(super) fn new(url: &str, headers: &[Header]) -> Result<Self, String> {
        let url = url.parse::<Uri>().map_err(|error| error.to_string())?;
        let mut fields = HeaderMap::new();
        fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        fields.insert(
            USER_AGENT,
            HeaderValue::from_static(concat!("tollgate/", env!("CARGO_PKG_VERSION"))),
        );
        headers.iter().for_each(|header| header.add_to_http(&mut fields));
        Ok(Self { url, headers: fields, connection: None })
    }

    /// Sends a batch. Returns the number of rejected spans.
    ///
    /// # Errors
    /// If the collector did not accept the batch, with the reason.
    pub(super) async fn export(
        &mut self,
        batch: &ExportTraceServiceRequest,
    ) -> Result<u64, String> {
        let body = Bytes::from(batch.encode_to_vec());
        let is_reused = self.connection.as_ref().is_some_and(|connection| !connection.is_closed());
        let sent = match self.send(body.clone()).await {
            // The collector may have closed an idle connection: a batch that fails on it is resent.
            Err(HttpError::Http(_)) if is_reused => {
                self.connection = None;
                self.send(body).await
            }
            sent => sent,
        };
        sent.inspect_err(|_| self.connection = None).map_err(|error| error.to_string())
    }

    async fn send(&mut self, body: Bytes) -> Result<u64, HttpError> {
        if self.connection.as_ref().is_none_or(SendRequest::is_closed) {
            self.connection = Some(connect(&self.url).await?);
        }
        let path = self.url.path_and_query().map_or("/", |path| path.as_str());
        let authority = self.url.authority().map_or("", |authority| authority.as_str());
        let mut request = Request::post(path).header(HOST, authority).body(Full::new(body))?;
        request.headers_mut().extend(self.headers.clone());
        let Some(connection) = &mut self.connection else { return Ok(0) };
        connection.ready().await?;
        let (head, body) = connection.send_request(request).await?.into_parts();
        let body =
            Limited::new(body, MAX_ANSWER).collect().await.map_err(HttpError::Answer)?.to_bytes();
        if !head.status.is_success() {
            let text = String::from_utf8_lossy(body.get(..MAX_SHOWN).unwrap_or(&body))
                .escape_debug()
                .to_string();
            return Err(HttpError::Status { status: head.status, text });
        }
        let answer = ExportTraceServiceResponse::decode(body)
            .map_err(|error| HttpError::Answer(error.into()))?;
        Ok(answer
            .partial_success
            .map_or(0, |part| u64::try_from(part.rejected_spans).unwrap_or_default()))
    }
}

async fn connect(url: &Uri) -> Result<SendRequest<Full<Bytes>>, HttpError> {
    let is_tls = url.scheme_str() == Some("https");
    let host =
        url.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
    let port = url.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
    let stream = TcpStream::connect((host.as_str(), port)).await?;
    stream.set_nodelay(true)?;
    if !is_tls {
        return speak(stream).await;
    }
    let name = ServerName::try_from(host).map_err(|error| HttpError::Tls(error.to_string()))?;
    speak(TlsConnector::from(Arc::new(tls().map_err(HttpError::Tls)?)).connect(name, stream).await?)
        .await
}

async fn speak<S>(stream: S) -> Result<SendRequest<Full<Bytes>>, HttpError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = handshake(TokioIo::new(stream)).await?;
    // Ends when the sender is dropped. The sender reports errors.
    tokio::spawn(connection);
    Ok(sender)
}

fn tls() -> Result<ClientConfig, String> {
    let verifier = ServerVerifier::new(system_authorities().to_vec());
    let verifier = verifier.ok_or("no CA certificates found on this system")?;
    let builder = ClientConfig::builder_with_provider(Arc::new(default_provider()));
    let builder =
        builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
    let builder = builder.dangerous().with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = builder.with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
