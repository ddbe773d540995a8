//! The accept loop of an HTTP listener. Bounds the number of connections, and closes those that are
//! idle or do not read responses for too long.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::Request;
use axum::http::{Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Router, middleware};
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use super::api::error::ApiError;
use super::connections::{Connections, TrackedConnection};
use super::deadline::WriteDeadline;
use crate::telemetry::http::{HttpCloseReason, HttpMetrics, HttpPort};
use crate::telemetry::log_throttle::LogThrottle;

/// Timeout for the head of a request, and for the idle time between two requests.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Time within which a client must read some of a pending response.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of a request's head that are buffered before it is refused.
const MAX_HEAD: usize = 16 << 10;
/// Bytes that the head of a request takes at most: the last read may bring as many again.
pub(super) const HEAD_BYTES: usize = 2 * MAX_HEAD;
/// Time for a handshake of TLS.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after a failed accept, which is mostly caused by a lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A bidirectional byte stream.
pub trait ByteStream: AsyncRead + AsyncWrite + Send {}

impl<T: AsyncRead + AsyncWrite + Send> ByteStream for T {}

/// A connection after its handshake.
pub struct Secured {
    /// The byte stream of the connection.
    pub stream: Pin<Box<dyn ByteStream>>,
    /// A name in the client's certificate, if it presented one.
    pub name: Option<String>,
}

/// A function that performs the handshake of a connection.
pub type AdminHandshake = Arc<
    dyn Fn(TcpStream) -> Pin<Box<dyn Future<Output = io::Result<Secured>> + Send>> + Send + Sync,
>;

/// The client of a connection.
#[derive(Clone, Debug)]
pub(super) struct AdminPeer {
    pub(super) address: SocketAddr,
    /// A name in the client's certificate, if it presented one.
    pub(super) name: Option<String>,
}

/// A listener with the bounds of its connections.
pub(super) struct HttpServer {
    pub(super) listener: TcpListener,
    pub(super) port: HttpPort,
    /// Maximum number of concurrent connections.
    pub(super) connections: usize,
    pub(super) handshake: Option<AdminHandshake>,
    pub(super) metrics: Arc<HttpMetrics>,
}

/// State shared by the connections of a listener.
struct ListenerState {
    port: HttpPort,
    handshake: Option<AdminHandshake>,
    metrics: Arc<HttpMetrics>,
    router: Router,
    stop: CancellationToken,
}

impl HttpServer {
    /// Serves `router` until `shutdown`, with a bounded number of connections: a new one replaces
    /// the one that has been idle longest or, if all are being answered, answered longest.
    pub(super) async fn serve(self, router: Router, shutdown: impl Future<Output = ()>) {
        let Self { listener, port, connections, handshake, metrics } = self;
        let router = router.layer(middleware::from_fn(require_one_host));
        let connections = Connections::new(connections);
        let open = metrics.connections(port);
        let tasks = TaskTracker::new();
        let stop = CancellationToken::new();
        let shared =
            Arc::new(ListenerState { port, handshake, metrics, router, stop: stop.clone() });
        let accept = async {
            let failed = LogThrottle::default();
            loop {
                connections.settle().await;
                let (stream, address) = match listener.accept().await {
                    Ok(accepted) => accepted,
                    Err(error) => {
                        if let Some(times) = failed.due() {
                            warn!(%error, port = port.name(), times, "failed to accept a connection");
                        }
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                        continue;
                    }
                };
                let connection = connections.admit();
                let shared = Arc::clone(&shared);
                let open = open.clone();
                tasks.spawn(async move {
                    open.inc();
                    tokio::select! {
                        () = shared.open_and_serve(stream, address, Arc::clone(&connection)) => {}
                        cut = connection.closed() => shared.cut(cut, address),
                    }
                    open.dec();
                });
            }
        };
        tokio::select! {
            () = accept => {}
            () = shutdown => {}
        }
        stop.cancel();
        tasks.close();
        tasks.wait().await;
    }
}

impl ListenerState {
    /// Counts a connection that was closed by a bound. Logged at debug level only, since any client
    /// can cause it.
    fn cut(&self, cut: HttpCloseReason, peer: SocketAddr) {
        self.metrics.cut(self.port, cut);
        debug!(port = self.port.name(), kind = cut.name(), %peer, "connection closed");
    }

    async fn open_and_serve(
        &self,
        stream: TcpStream,
        address: SocketAddr,
        connection: Arc<TrackedConnection>,
    ) {
        let secured = match open(stream, self.handshake.clone()).await {
            Ok(secured) => secured,
            Err(error) => {
                debug!(%error, %address, "handshake failed");
                return self.cut(HttpCloseReason::Handshake, address);
            }
        };
        let Err(error) = self.keep(secured, address, connection).await else { return };
        debug!(%error, %address, "connection failed");
        if let Some(cut) = cut_of(&error) {
            self.cut(cut, address);
        }
    }

    async fn keep(
        &self,
        secured: Secured,
        address: SocketAddr,
        place: Arc<TrackedConnection>,
    ) -> hyper::Result<()> {
        let peer = AdminPeer { address, name: secured.name };
        let routes = TowerToHyperService::new(self.router.clone().layer(Extension(peer)));
        let service = service_fn(move |request| {
            let under_way = place.begin();
            let answer = routes.call(request);
            async move {
                let answer = answer.await;
                drop(under_way);
                answer
            }
        });
        let stream = WriteDeadline::new(secured.stream, WRITE_TIMEOUT);
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(MAX_HEAD);
        let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
        tokio::select! {
            ended = connection.as_mut() => ended,
            () = self.stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        }
    }
}

/// Refuses requests with two `Host` headers, and requests of HTTP/1.1 without one (RFC 9112, 3.2).
async fn require_one_host(request: Request, next: Next) -> Response {
    let hosts = request.headers().get_all(header::HOST).iter().count();
    let least = usize::from(request.version() >= Version::HTTP_11);
    if (least..=1).contains(&hosts) {
        return next.run(request).await;
    }
    ApiError::invalid(format!("a request must have one Host header, found {hosts}")).into_response()
}

/// Returns the bound that ended a connection, or `None` if the client ended it.
fn cut_of(error: &hyper::Error) -> Option<HttpCloseReason> {
    if error.is_timeout() {
        return Some(HttpCloseReason::SlowHead);
    }
    if error.is_parse() {
        return Some(HttpCloseReason::Protocol);
    }
    let io = std::error::Error::source(error).and_then(|source| source.downcast_ref::<io::Error>());
    io.filter(|error| error.kind() == io::ErrorKind::TimedOut).map(|_| HttpCloseReason::Unread)
}

async fn open(stream: TcpStream, handshake: Option<AdminHandshake>) -> io::Result<Secured> {
    // Without `TCP_NODELAY`, responses wait for the delayed ACK of the peer, 40 ms.
    stream.set_nodelay(true)?;
    match handshake {
        Some(handshake) => tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake(stream)).await?,
        None => Ok(Secured { stream: Box::pin(stream), name: None }),
    }
}
