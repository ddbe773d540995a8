//! A replica of the service, and the connection to it.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use arc_swap::ArcSwap;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until, timeout};
use tonic::body::Body;

use super::Network;

/// Bound of the time to connect, until the replica has answered.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Least and most time between the starts of two attempts to connect.
const RETRY_DELAYS: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(1)];
/// A connection with calls is probed after so much silence, and closed without an answer.
const PROBE_INTERVAL: Duration = Duration::from_secs(10);
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) type Sender = http2::SendRequest<Body>;
type Connection = Pin<Box<http2::Connection<TokioIo<Greeted>, Body, TokioExecutor>>>;

/// An address of the service, and the state of its connection.
#[derive(Debug)]
pub(super) struct Replica {
    address: SocketAddr,
    state: ArcSwap<ReplicaState>,
}

#[derive(Debug)]
pub(super) enum ReplicaState {
    Connecting,
    Ready(Sender),
    /// The last attempt failed, for a reason. The next one may be under way.
    Failed(String),
}

impl Replica {
    pub(super) fn new(address: SocketAddr) -> Self {
        Self { address, state: ArcSwap::from_pointee(ReplicaState::Connecting) }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(super) fn state(&self) -> Arc<ReplicaState> {
        self.state.load_full()
    }

    /// Connects, again and again when the connection has ended.
    pub(super) async fn keep_connected(self: Arc<Self>, network: Arc<Network>) {
        let [mut delay, most] = RETRY_DELAYS;
        loop {
            let begun = Instant::now();
            match self.connect(&network).await {
                Ok((sender, connection)) => {
                    delay = RETRY_DELAYS[0];
                    self.change(ReplicaState::Ready(sender), &network);
                    // An error is seen by the calls that it ends.
                    let _ended = connection.await;
                    self.change(ReplicaState::Connecting, &network);
                }
                Err(error) => {
                    let reason = format!("{}: {error}", self.address);
                    self.change(ReplicaState::Failed(reason), &network);
                    delay = delay.mul_f64(rand::random_range(1.3..1.9)).min(most);
                }
            }
            // The name may have other addresses by now.
            network.lost.notify_one();
            sleep_until(begun + delay).await;
        }
    }

    fn change(&self, state: ReplicaState, network: &Network) {
        self.state.store(Arc::new(state));
        network.changed.send_replace(());
    }

    async fn connect(&self, network: &Network) -> io::Result<(Sender, Connection)> {
        let connecting = async {
            let stream = TcpStream::connect(self.address).await?;
            stream.set_nodelay(true)?;
            let (stream, greeting) = Greeted::new(network.secure(stream).await?);
            let mut builder = http2::Builder::new(TokioExecutor::new());
            builder.timer(TokioTimer::new());
            builder.keep_alive_interval(PROBE_INTERVAL).keep_alive_timeout(PROBE_TIMEOUT);
            let handshake = builder.handshake(TokioIo::new(stream)).await;
            let (sender, connection) = handshake.map_err(io::Error::other)?;
            let mut connection = Box::pin(connection);
            // The kernel of a process that hangs accepts connections too.
            tokio::select! {
                Ok(()) = greeting => Ok((sender, connection)),
                ended = &mut connection => {
                    ended.map_err(io::Error::other)?;
                    Err(io::Error::from(io::ErrorKind::UnexpectedEof))
                }
            }
        };
        let late = || io::Error::new(io::ErrorKind::TimedOut, "no answer within 1s");
        timeout(CONNECT_TIMEOUT, connecting).await.unwrap_or_else(|_| Err(late()))
    }
}

/// A stream of bytes in both directions.
pub(super) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Duplex for S {}

/// A stream that reports its first bytes: a server of HTTP/2 begins with its settings.
struct Greeted {
    stream: Box<dyn Duplex>,
    greeting: Option<oneshot::Sender<()>>,
}

impl Greeted {
    fn new(stream: Box<dyn Duplex>) -> (Self, oneshot::Receiver<()>) {
        let (sender, greeting) = oneshot::channel();
        (Self { stream, greeting: Some(sender) }, greeting)
    }
}

impl AsyncRead for Greeted {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        if buffer.filled().len() > before
            && let Some(greeting) = self.greeting.take()
        {
            // The receiver is dropped if the attempt has ended.
            let _ = greeting.send(());
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Greeted {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
