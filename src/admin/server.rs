//! The loop that serves HTTP: so many connections at once and no more, none of which may be silent for long.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

/// Time for a request's head, and between two requests.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
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

/// Serves `router` until `shutdown`, at most so many connections at once; others wait to be accepted.
pub(super) async fn serve(
    listener: TcpListener,
    router: Router,
    connections: usize,
    handshake: Option<Handshake>,
    shutdown: impl Future<Output = ()>,
) {
    let (room, tasks, stop) = (Arc::new(Semaphore::new(connections)), TaskTracker::new(), CancellationToken::new());
    let accept = async {
        // The semaphore is never closed.
        while let Ok(permit) = Arc::clone(&room).acquire_owned().await {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    warn!(%error, "a connection could not be accepted");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let (router, handshake, stop) = (router.clone(), handshake.clone(), stop.clone());
            tasks.spawn(async move {
                let _permit = permit;
                match open(stream, handshake).await {
                    Ok(secured) => keep(secured, router, stop).await,
                    Err(error) => debug!(%error, "a connection came to nothing"),
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

async fn open(stream: TcpStream, handshake: Option<Handshake>) -> io::Result<Secured> {
    // Without it answers wait for the peer's delayed acknowledgement, 40 ms.
    stream.set_nodelay(true)?;
    match handshake {
        Some(handshake) => tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake(stream)).await?,
        None => Ok(Secured { stream: Box::pin(stream), name: None }),
    }
}

async fn keep(secured: Secured, router: Router, stop: CancellationToken) {
    let service = TowerToHyperService::new(router.layer(Extension(Peer(secured.name))));
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    let mut connection = pin!(http.serve_connection(TokioIo::new(secured.stream), service));
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
