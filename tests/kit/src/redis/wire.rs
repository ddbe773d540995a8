//! A TCP proxy that can fall silent: it accepts data and forwards nothing until it is healed. To
//! both sides this looks like a partition, except that new connections are still accepted (by the
//! wire, not by the server behind it).
//!
//! Can also redirect to another server, like a virtual IP address: open connections stay with
//! the old server.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Runtime of all wires, separate from the tests': a test that blocks its own runtime must not
/// affect the cluster behind them.
static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    Builder::new_multi_thread().worker_threads(1).thread_name("wires").enable_all().build().unwrap()
});

/// A predicate on a connection's number and peer address: `true` if its traffic passes.
type Rule = Arc<dyn Fn(u64, IpAddr) -> bool + Send + Sync>;

/// A listener that forwards the traffic that its rule lets pass. Closes with its connections when
/// dropped.
pub struct Wire {
    pub address: SocketAddr,
    end: Arc<Mutex<Option<SocketAddr>>>,
    rule: watch::Sender<Rule>,
    /// Number of connections accepted so far.
    count: Arc<AtomicU64>,
    listener: JoinHandle<()>,
}

impl Wire {
    /// Creates a wire to `server`.
    pub async fn to(server: SocketAddr) -> Self {
        let wire = Self::listen().await;
        wire.lead_to(server);
        wire
    }

    /// Creates a wire without a destination.
    pub(super) async fn listen() -> Self {
        let (rule, rules) = watch::channel::<Rule>(Arc::new(|_, _| true));
        let end = Arc::<Mutex<Option<SocketAddr>>>::default();
        let count = Arc::<AtomicU64>::default();
        let server = Arc::clone(&end);
        let counter = Arc::clone(&count);
        let listening = async {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
            (listener.local_addr().unwrap(), tokio::spawn(accept(listener, server, rules, counter)))
        };
        let (address, listener) = RUNTIME.spawn(listening).await.unwrap();
        Self { address, end, rule, count, listener }
    }

    /// Directs new connections to this server.
    pub fn lead_to(&self, server: SocketAddr) {
        *self.end.lock().unwrap() = Some(server);
    }

    /// Holds all traffic back; nothing is lost.
    pub fn silence(&self) {
        self.pass_if(|_| false);
    }

    /// Delivers the data held back, and lets all traffic pass again.
    pub fn heal(&self) {
        self.pass_if(|_| true);
    }

    /// Lets only connections from matching addresses pass traffic, in both directions.
    pub(super) fn pass_if(&self, rule: impl Fn(IpAddr) -> bool + Send + Sync + 'static) {
        self.rule.send_replace(Arc::new(move |_, from| rule(from)));
    }

    /// Silences the existing connections only; new ones pass.
    pub fn silence_for_good(&self) {
        let before = self.count.load(Ordering::SeqCst);
        self.rule.send_replace(Arc::new(move |number, _| number >= before));
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

async fn accept(
    listener: TcpListener,
    server: Arc<Mutex<Option<SocketAddr>>>,
    rules: watch::Receiver<Rule>,
    count: Arc<AtomicU64>,
) {
    loop {
        let (client, from) = listener.accept().await.unwrap();
        let from = (count.fetch_add(1, Ordering::SeqCst), from.ip());
        tokio::spawn(connect(client, from, Arc::clone(&server), rules.clone()));
    }
}

async fn connect(
    client: TcpStream,
    from: (u64, IpAddr),
    server: Arc<Mutex<Option<SocketAddr>>>,
    mut rules: watch::Receiver<Rule>,
) -> Option<()> {
    rules.wait_for(|passes| passes(from.0, from.1)).await.ok()?;
    let server = (*server.lock().unwrap())?;
    let server = TcpStream::connect(server).await.ok()?;
    client.set_nodelay(true).ok()?;
    server.set_nodelay(true).ok()?;
    let (client_reads, client_writes) = client.into_split();
    let (server_reads, server_writes) = server.into_split();
    let mut ended = rules.clone();
    tokio::select! {
        _ = pass(client_reads, server_writes, from, rules.clone()) => {}
        _ = pass(server_reads, client_writes, from, rules) => {}
        () = async { while ended.changed().await.is_ok() {} } => {}
    }
    Some(())
}

/// Copies until one side ends, which ends the connection: Redis and its clients never half-close.
async fn pass(
    mut source: OwnedReadHalf,
    mut sink: OwnedWriteHalf,
    from: (u64, IpAddr),
    mut rules: watch::Receiver<Rule>,
) -> Option<()> {
    let mut bytes = vec![0; 64 * 1024];
    loop {
        let count = source.read(&mut bytes).await.ok()?;
        rules.wait_for(|passes| passes(from.0, from.1)).await.ok()?;
        if count == 0 {
            return None;
        }
        sink.write_all(&bytes[..count]).await.ok()?;
    }
}
