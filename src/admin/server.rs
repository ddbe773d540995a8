//! The loop that serves HTTP: so many connections at once and no more, none of which may be silent, or not read, for long.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use super::connections::{Connection, Connections};
use super::deadline::WriteDeadline;

/// Time for a request's head, and between two requests.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Time in which a client reads something of an answer.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of a request's head that are buffered before it is refused. The last read may bring as many again, so that a head has
/// at most 64 KiB.
const MAX_HEAD: usize = 32 * 1024;
/// Time for a handshake of TLS.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after a failed accept, which is mostly a lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A bidirectional stream of bytes.
pub trait Stream: AsyncRead + AsyncWrite + Send {}

impl<T: AsyncRead + AsyncWrite + Send> Stream for T {}

/// A connection once both ends have shaken hands.
pub struct Secured {
    /// What it carries.
    pub stream: Pin<Box<dyn Stream>>,
    /// A name that the client's certificate is for.
    pub name: Option<String>,
}

/// Shakes hands on a connection.
pub type Handshake = Arc<dyn Fn(TcpStream) -> Pin<Box<dyn Future<Output = io::Result<Secured>> + Send>> + Send + Sync>;

/// Whom the client's certificate names, where it has shown one.
#[derive(Clone, Debug)]
pub(super) struct Peer(pub(super) Option<String>);

/// Serves `router` until `shutdown`, at most so many connections at once: the one that is idle longest gives way
/// to a new one, and while all are being answered new ones are closed.
pub(super) async fn serve(
    listener: TcpListener,
    router: Router,
    connections: usize,
    handshake: Option<Handshake>,
    shutdown: impl Future<Output = ()>,
) {
    let connections = Connections::new(connections);
    let tasks = TaskTracker::new();
    let stop = CancellationToken::new();
    let accept = async {
        loop {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let Some(connection) = connections.admit() else { continue };
            let served =
                open_and_serve(stream, handshake.clone(), router.clone(), stop.clone(), Arc::clone(&connection));
            tasks.spawn(async move {
                tokio::select! {
                    () = served => {}
                    () = connection.closed() => debug!("an idle connection gave way to a new one"),
                }
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

async fn open_and_serve(
    stream: TcpStream,
    handshake: Option<Handshake>,
    router: Router,
    stop: CancellationToken,
    connection: Arc<Connection>,
) {
    match open(stream, handshake).await {
        Ok(secured) => keep(secured, router, stop, connection).await,
        Err(error) => debug!(%error, "handshake failed"),
    }
}

async fn open(stream: TcpStream, handshake: Option<Handshake>) -> io::Result<Secured> {
    // Without it answers wait for the peer's delayed acknowledgement, 40 ms.
    stream.set_nodelay(true)?;
    match handshake {
        Some(handshake) => tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake(stream)).await?,
        None => Ok(Secured { stream: Box::pin(stream), name: None }),
    }
}

async fn keep(secured: Secured, router: Router, stop: CancellationToken, place: Arc<Connection>) {
    let routes = TowerToHyperService::new(router.layer(Extension(Peer(secured.name))));
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
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        debug!(%error, "a connection ended with an error");
    }
}
