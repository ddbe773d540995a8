//! Connections to all replicas behind a name: one to each, which all calls share.
//!
//! Calls go to the connected replicas in turn. If none is connected, a call waits for one, unless
//! the last attempts to connect to all of them have failed.
//!
//! | file | contents |
//! |---|---|
//! | `target` | the text of a target |
//! | `replica` | an address, and the connection to it |

mod replica;
mod target;

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use arc_swap::ArcSwap;
use http::{Request, Response, Uri};
use http_body_util::BodyExt as _;
use tokio::net::{TcpStream, lookup_host};
use tokio::sync::{Notify, watch};
use tokio::task::{AbortHandle, JoinSet};
use tonic::Status;
use tonic::body::Body;

use self::replica::{Duplex, Replica, ReplicaState, Sender};
use self::target::Target;
pub use self::target::TargetError;

/// Least and most time between two lookups of the name.
const LOOKUPS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];
/// Bound of the connections that a call finds closed before it is sent.
const UNSENT: usize = 8;

/// The connections, as a service of HTTP/2. They are closed with its last clone.
#[derive(Clone, Debug)]
pub(crate) struct Replicas(Arc<Connections>);

#[derive(Debug)]
struct Connections {
    network: Arc<Network>,
    /// Looks up the name, and keeps replicas connected.
    task: OnceLock<AbortHandle>,
}

impl Drop for Connections {
    fn drop(&mut self) {
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }
}

/// The state that calls share with the tasks that connect.
struct Network {
    target: Target,
    #[cfg(feature = "tls")]
    tls: Option<Tls>,
    found: ArcSwap<Lookup>,
    next: AtomicUsize,
    /// Changes with the state of a replica and with their list.
    changed: watch::Sender<()>,
    /// A connection has ended, or an attempt to connect.
    lost: Notify,
}

impl std::fmt::Debug for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Network").field("target", &self.target).finish_non_exhaustive()
    }
}

/// The result of the last lookup of the name.
#[derive(Debug, Default)]
struct Lookup {
    replicas: Vec<Arc<Replica>>,
    /// The reason, if there are no replicas.
    error: Option<String>,
}

/// TLS to a server of a name.
#[cfg(feature = "tls")]
struct Tls {
    connector: tokio_rustls::TlsConnector,
    name: tokio_rustls::rustls::pki_types::ServerName<'static>,
}

impl Replicas {
    /// Creates the connections, which connect at the first call.
    pub(crate) fn new(target: &str) -> Result<Self, TargetError> {
        Ok(Self::of(Network::new(Target::parse(target, "http")?)))
    }

    /// Creates connections with TLS.
    #[cfg(feature = "tls")]
    pub(crate) fn with_tls(
        target: &str,
        mut config: tokio_rustls::rustls::ClientConfig,
    ) -> Result<Self, TargetError> {
        let parsed = Target::parse(target, "https")?;
        let name = tokio_rustls::rustls::pki_types::ServerName::try_from(parsed.host.clone());
        let name = name.map_err(|_| TargetError::of(target))?;
        config.alpn_protocols = vec![b"h2".to_vec()];
        let tls = Tls { connector: Arc::new(config).into(), name };
        Ok(Self::of(Network { tls: Some(tls), ..Network::new(parsed) }))
    }

    fn of(network: Network) -> Self {
        Self(Arc::new(Connections { network: Arc::new(network), task: OnceLock::new() }))
    }

    /// Returns scheme and authority of requests.
    pub(crate) fn origin(&self) -> Uri {
        self.0.network.target.origin.clone()
    }
}

impl tower::Service<Request<Body>> for Replicas {
    type Response = Response<Body>;
    type Error = Status;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Status>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let connections = Arc::clone(&self.0);
        Box::pin(async move {
            let network = &connections.network;
            connections
                .task
                .get_or_init(|| tokio::spawn(Arc::clone(network).keep_looking_up()).abort_handle());
            network.send(request).await
        })
    }
}

impl Network {
    fn new(target: Target) -> Self {
        Self {
            target,
            #[cfg(feature = "tls")]
            tls: None,
            found: ArcSwap::default(),
            next: AtomicUsize::new(0),
            changed: watch::Sender::new(()),
            lost: Notify::new(),
        }
    }

    /// Sends a request once. It is sent over another connection only if it was not sent at all.
    async fn send(&self, mut request: Request<Body>) -> Result<Response<Body>, Status> {
        for _ in 0..UNSENT {
            let mut sender = self.ready().await?;
            let answer = sender.try_send_request(request);
            // A request that races with the end of its connection comes back when the last sender
            // is dropped.
            drop(sender);
            match answer.await {
                Ok(response) => {
                    return Ok(response.map(|body| Body::new(body.map_err(|error| lost(&error)))));
                }
                Err(mut failed) => match failed.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(lost(failed.error())),
                },
            }
        }
        Err(Status::unavailable("connections close before a request is sent"))
    }

    /// Returns the connection of the next replica, when one is connected.
    async fn ready(&self) -> Result<Sender, Status> {
        if let Poll::Ready(picked) = self.pick() {
            return picked;
        }
        let mut changed = self.changed.subscribe();
        loop {
            if let Poll::Ready(picked) = self.pick() {
                return picked;
            }
            // The sender of the channel is a field.
            let _ = changed.changed().await;
        }
    }

    /// Picks the next connected replica. The error is that of an attempt to connect, if none is
    /// connected and all have failed.
    fn pick(&self) -> Poll<Result<Sender, Status>> {
        let found = self.found.load();
        let count = found.replicas.len();
        let first = self.next.fetch_add(1, Ordering::Relaxed).checked_rem(count).unwrap_or(0);
        let mut failure = found.error.clone();
        let mut failed = 0;
        for replica in found.replicas.iter().cycle().skip(first).take(count) {
            match &*replica.state() {
                ReplicaState::Ready(sender) if !sender.is_closed() => {
                    return Poll::Ready(Ok(sender.clone()));
                }
                ReplicaState::Ready(_) | ReplicaState::Connecting => {}
                ReplicaState::Failed(reason) => {
                    failure = Some(reason.clone());
                    failed += 1;
                }
            }
        }
        match failure {
            Some(reason) if failed == count => Poll::Ready(Err(Status::unavailable(reason))),
            Some(_) | None => Poll::Pending,
        }
    }

    /// Looks up the name for ever, and keeps its addresses connected.
    async fn keep_looking_up(self: Arc<Self>) {
        let mut tasks = JoinSet::new();
        let mut connected = HashMap::new();
        let [least, most] = LOOKUPS;
        loop {
            let looked_up = lookup_host((self.target.host.as_str(), self.target.port)).await;
            self.update(looked_up.map(Iterator::collect), &mut connected, &mut tasks);
            tokio::time::sleep(least).await;
            tokio::select! {
                () = tokio::time::sleep(most - least) => {}
                () = self.lost.notified() => {}
            }
        }
    }

    /// Keeps the replicas with an address, connects to new ones, and closes those without.
    fn update(
        self: &Arc<Self>,
        looked_up: io::Result<Vec<SocketAddr>>,
        connected: &mut HashMap<SocketAddr, (Arc<Replica>, AbortHandle)>,
        tasks: &mut JoinSet<()>,
    ) {
        let host = &self.target.host;
        let error = match looked_up {
            Ok(addresses) if !addresses.is_empty() => {
                connected.retain(|address, (_, task)| {
                    let is_kept = addresses.contains(address);
                    if !is_kept {
                        task.abort();
                    }
                    is_kept
                });
                for address in addresses {
                    connected.entry(address).or_insert_with(|| {
                        let replica = Arc::new(Replica::new(address));
                        let task = Arc::clone(&replica).keep_connected(Arc::clone(self));
                        (replica, tasks.spawn(task))
                    });
                }
                None
            }
            Ok(_) => Some(format!("{host} has no address")),
            Err(error) => Some(format!("{host}: {error}")),
        };
        while tasks.try_join_next().is_some() {}
        let mut replicas: Vec<_> = connected.values().map(|(replica, _)| replica.clone()).collect();
        replicas.sort_by_key(|replica| replica.address());
        let error = error.filter(|_| replicas.is_empty());
        self.found.store(Arc::new(Lookup { replicas, error }));
        self.changed.send_replace(());
    }

    #[cfg(feature = "tls")]
    async fn secure(&self, stream: TcpStream) -> io::Result<Box<dyn Duplex>> {
        match &self.tls {
            Some(tls) => Ok(Box::new(tls.connector.connect(tls.name.clone(), stream).await?)),
            None => Ok(Box::new(stream)),
        }
    }

    #[cfg(not(feature = "tls"))]
    async fn secure(&self, stream: TcpStream) -> io::Result<Box<dyn Duplex>> {
        Ok(Box::new(stream))
    }
}

/// The source of the status of a call that the service has certainly not processed.
#[derive(Debug, thiserror::Error)]
#[error("not processed")]
struct NotProcessed;

/// Returns `true` if a call may be repeated, whatever it charges.
pub(crate) fn is_unprocessed(status: &Status) -> bool {
    std::error::Error::source(status).is_some_and(|source| source.is::<NotProcessed>())
}

/// Returns the status of a call whose connection was lost.
fn lost(error: &hyper::Error) -> Status {
    let source = std::error::Error::source(error);
    let reason = source.map(|source| format!(": {source}")).unwrap_or_default();
    let mut status = Status::unavailable(format!("{error}{reason}"));
    let h2 = source.and_then(|source| source.downcast_ref::<h2::Error>());
    // A GOAWAY ends the streams after the last one that is processed. Others end with their
    // connection, by another error.
    let is_unprocessed = |error: &h2::Error| {
        let is_refused = error.reason() == Some(h2::Reason::REFUSED_STREAM);
        error.is_remote() && (error.is_go_away() || error.is_reset() && is_refused)
    };
    if h2.is_some_and(is_unprocessed) {
        status.set_source(Arc::new(NotProcessed));
    }
    status
}
