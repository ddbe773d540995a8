//! The network between processes and servers: delays, silence, and connections cut at any byte.
//!
//! A connection is a pair of in-process pipes with three tasks: one takes the client's bytes and
//! decides when they arrive, one runs the commands that have arrived, one delivers the replies.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio_util::sync::CancellationToken;
use tollgate::algorithm::time::Timestamp;
use tollgate::store::redis::{BoxedStream, ServerAddress, Simulation};

use super::server::fleet::{Arrangement, BASE_US, Moment};
use super::server::resp::{CommandReader, Resp};
use super::server::session::{Session, execute, sentinel};
use super::shared::SharedWorld;

/// Capacity of a pipe: more than a client ever has in flight.
const PIPE_BYTES: usize = 1 << 20;

/// The end of a connection that serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    Server(usize),
    Sentinel(usize),
}

/// The path between a process and a target.
#[derive(Clone, Copy, Debug, Default)]
pub struct Path {
    /// Nothing passes before this moment; it waits.
    pub silent_until: Moment,
    /// Everything takes this much longer before that moment.
    pub slow: (Moment, u64),
}

/// A connection.
pub struct SimConnection {
    process: usize,
    pub target: Target,
    cut: CancellationToken,
    /// Bytes of the next request that arrive before the connection breaks.
    cut_request: Mutex<Option<usize>>,
    /// Bytes of the next reply that arrive before the connection breaks.
    cut_reply: Mutex<Option<usize>>,
}

/// Bytes in flight: the moment of their arrival, and `true` if the connection breaks then.
type InFlight = (Moment, Vec<u8>, bool);

/// The environment of a process.
pub struct ProcessEnvironment {
    pub shared: Arc<SharedWorld>,
    pub process: usize,
    pub skew_us: i64,
    /// Cancelled when the process crashes.
    pub dead: CancellationToken,
}

impl Simulation for ProcessEnvironment {
    fn open(&self, address: &ServerAddress) -> BoxFuture<'static, io::Result<BoxedStream>> {
        let dead = self.dead.clone();
        let opening = open(Arc::clone(&self.shared), self.process, address.clone(), dead.clone());
        async move {
            tokio::select! {
                biased;
                () = dead.cancelled() => std::future::pending().await,
                stream = opening => stream,
            }
        }
        .boxed()
    }

    fn now(&self) -> Timestamp {
        let now = BASE_US.saturating_add(self.shared.now());
        Timestamp::from_micros(now.saturating_add_signed(self.skew_us))
    }

    fn random(&self) -> f64 {
        f64::from(u32::try_from(self.shared.random().below(1_000_001)).unwrap()) / 1e6
    }
}

async fn open(
    shared: Arc<SharedWorld>,
    process: usize,
    address: ServerAddress,
    dead: CancellationToken,
) -> io::Result<BoxedStream> {
    let target = shared.resolve(&address);
    shared.sleep_until(shared.arrival(process, target)).await;
    shared.until_reachable(process, target).await;
    shared.running(process).await;
    if shared.is_down(target) {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    let (client, server) = tokio::io::duplex(PIPE_BYTES);
    let connection = Arc::new(SimConnection {
        process,
        target,
        cut: dead.child_token(),
        cut_request: Mutex::default(),
        cut_reply: Mutex::default(),
    });
    shared.connections.lock().push(Arc::downgrade(&connection));
    let (from, to) = tokio::io::split(server);
    let (arriving, arrived) = unbounded_channel();
    let (leaving, left) = unbounded_channel();
    let tasks: [BoxFuture<'static, ()>; 3] = [
        receive(Arc::clone(&shared), Arc::clone(&connection), from, arriving).boxed(),
        serve(Arc::clone(&shared), Arc::clone(&connection), arrived, leaving).boxed(),
        deliver(shared, Arc::clone(&connection), left, to).boxed(),
    ];
    for task in tasks {
        let cut = connection.cut.clone();
        tokio::spawn(async move {
            tokio::select! {
                biased;
                () = cut.cancelled() => {}
                () = task => {}
            }
        });
    }
    Ok(Box::new(client))
}

async fn receive(
    shared: Arc<SharedWorld>,
    connection: Arc<SimConnection>,
    mut from: ReadHalf<DuplexStream>,
    to: UnboundedSender<InFlight>,
) {
    let mut last = 0;
    let mut buffer = vec![0; 16 * 1024];
    loop {
        // Bytes that were sent arrive, even if the client has gone.
        let Ok(count @ 1..) = from.read(&mut buffer).await else { return };
        // A stopped process sends no data: data written by its timers leaves when it continues.
        let stopped_until = shared.stopped_until(connection.process);
        last = shared.arrival(connection.process, connection.target).max(last).max(stopped_until);
        let cut = connection.cut_request.lock().take();
        let length = cut.map_or(count, |most| most.min(count));
        if to.send((last, buffer[..length].to_vec(), cut.is_some())).is_err() {
            return;
        }
    }
}

async fn serve(
    shared: Arc<SharedWorld>,
    connection: Arc<SimConnection>,
    mut from: UnboundedReceiver<InFlight>,
    to: UnboundedSender<InFlight>,
) {
    let mut commands = CommandReader::default();
    let mut session = Session::default();
    let mut last = 0;
    while let Some((at, bytes, breaks)) = from.recv().await {
        shared.sleep_until(at).await;
        shared.until_reachable(connection.process, connection.target).await;
        shared.until_running(connection.target).await;
        commands.add(&bytes);
        let mut replies = Vec::new();
        while let Some(words) = commands.next() {
            run(&shared, connection.target, &mut session, &words).write(&mut replies);
        }
        if breaks {
            connection.cut();
            return;
        }
        if !replies.is_empty() {
            last = shared.arrival(connection.process, connection.target).max(last);
            if to.send((last, replies, false)).is_err() {
                return;
            }
        }
    }
}

fn run(shared: &SharedWorld, target: Target, session: &mut Session, words: &[Vec<u8>]) -> Resp {
    let at = shared.now();
    let mut fleet = shared.fleet.lock();
    match target {
        Target::Server(server) => execute(&mut fleet, server, session, at, words),
        Target::Sentinel(number) => sentinel(&fleet, number, words),
    }
}

async fn deliver(
    shared: Arc<SharedWorld>,
    connection: Arc<SimConnection>,
    mut from: UnboundedReceiver<InFlight>,
    mut to: WriteHalf<DuplexStream>,
) {
    while let Some((at, bytes, _)) = from.recv().await {
        shared.sleep_until(at).await;
        shared.until_reachable(connection.process, connection.target).await;
        shared.running(connection.process).await;
        let cut = connection.cut_reply.lock().take();
        let length = cut.map_or(bytes.len(), |most| most.min(bytes.len()));
        if to.write_all(&bytes[..length]).await.is_err() {
            return;
        }
        if cut.is_some() {
            connection.cut();
            return;
        }
    }
}

impl SimConnection {
    /// Breaks the connection: bytes in flight are lost.
    pub fn cut(&self) {
        self.cut.cancel();
    }

    /// Breaks the connection within its next request or reply.
    pub fn cut_within(&self, is_request: bool, bytes: usize) {
        let place = if is_request { &self.cut_request } else { &self.cut_reply };
        *place.lock() = Some(bytes);
    }
}

impl SharedWorld {
    /// Returns the target at an address.
    fn resolve(&self, address: &ServerAddress) -> Target {
        let ServerAddress::Tcp(host, _) = address else { unreachable!() };
        let number = |prefix| host.strip_prefix(prefix).and_then(|rest: &str| rest.parse().ok());
        if let Some(sentinel) = number("sentinel") {
            return Target::Sentinel(sentinel);
        }
        let fleet = self.fleet.lock();
        if fleet.arrangement == Arrangement::Single {
            return Target::Server(fleet.map.masters[0]);
        }
        Target::Server(number("s").unwrap())
    }

    /// Returns the moment at which bytes arrive that are sent now.
    fn arrival(&self, process: usize, target: Target) -> Moment {
        let now = self.now();
        let path = self.path(process, target);
        let slow = if path.slow.0 > now { path.slow.1 } else { 0 };
        let delay = self.random().below(self.most_delay_ms + 1);
        now + slow + u64::try_from(delay).unwrap() * 1_000
    }

    /// Waits until bytes pass between a process and a target.
    async fn until_reachable(&self, process: usize, target: Target) {
        loop {
            let silent_until = self.path(process, target).silent_until;
            if silent_until <= self.now() {
                return;
            }
            self.sleep_until(silent_until).await;
        }
    }

    /// Waits until a server is not stopped.
    async fn until_running(&self, target: Target) {
        let Target::Server(server) = target else { return };
        loop {
            let hung_until = self.fleet.lock().servers[server].hung_until;
            if hung_until <= self.now() {
                return;
            }
            self.sleep_until(hung_until).await;
        }
    }

    fn is_down(&self, target: Target) -> bool {
        let Target::Server(server) = target else { return false };
        self.fleet.lock().servers[server].down_until > self.now()
    }

    /// Returns all open connections, oldest first.
    pub fn open_connections(&self) -> Vec<Arc<SimConnection>> {
        let mut connections = self.connections.lock();
        connections.retain(|connection| {
            connection.upgrade().is_some_and(|connection| !connection.cut.is_cancelled())
        });
        connections.iter().filter_map(std::sync::Weak::upgrade).collect()
    }

    /// Waits until a moment. Timers have a granularity of one millisecond.
    pub async fn sleep_until(&self, at: Moment) {
        tokio::time::sleep_until(self.begun + Duration::from_micros(at)).await;
    }
}
