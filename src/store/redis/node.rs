//! One server: a multiplexed connection, shared by all calls, that is replaced whenever it is lost, and a breaker that answers at once while it is known down.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use redis::aio::{ConnectionLike as _, MultiplexedConnection};
use redis::{Cmd, Pipeline, RedisResult, Value};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::{info, warn};

use super::access::{Access, ConnectError};
use super::connect::connect;
use super::failure::Failure;
use super::url::Address;
use crate::telemetry::metrics::Metrics;

/// Time for a connection, with its greeting, unless given.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// Waits between attempts to connect or to reach a silent node: they double from the first to the last.
const FIRST_WAIT: Duration = Duration::from_millis(10);
const LAST_WAIT: Duration = Duration::from_millis(1_000);
/// Answers in a row that did not come in time, after which a node counts as down until it answers a probe.
const LATE_IN_A_ROW: u32 = 8;
/// Time that a caller must have given for its late answer to count: who waits for less says nothing of the node.
const FAIR_WAIT: Duration = Duration::from_millis(5);
/// Time that a probe may take; the breaker closes with the first that is answered.
const PROBE_TIMEOUT: Duration = Duration::from_millis(100);
/// Unanswered probes after which the connection itself is given up.
const PROBES: u32 = 10;
/// How often an idle connection is asked for a sign of life, and for how long.
const LOOK_EVERY: Duration = Duration::from_secs(1);
const LOOK_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a call waits for a connection that was just lost, within its deadline; later ones fail at once.
const RECONNECT_PATIENCE: Duration = Duration::from_millis(50);

/// A server.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) address: Address,
    link: ArcSwapOption<Link>,
    /// A new link, or the loss of one.
    changed: Notify,
    late: AtomicU32,
    open: AtomicBool,
    /// Whether it was tried to connect, with whatever success.
    tried: AtomicBool,
    /// What the keeper waits for: something to look at.
    look: Notify,
    /// When the last link was lost.
    lost_at: parking_lot::Mutex<Instant>,
}

/// A multiplexed connection, shared by those who call.
struct Link(MultiplexedConnection, Arc<Metrics>);

impl Drop for Link {
    fn drop(&mut self) {
        self.1.disconnected();
    }
}

impl Link {
    fn new(connection: MultiplexedConnection, metrics: &Arc<Metrics>) -> Self {
        metrics.connected();
        Self(connection, Arc::clone(metrics))
    }

    async fn answers(&self, within: Duration) -> bool {
        let mut link = self.0.clone();
        let ping = redis::cmd("PING");
        matches!(timeout(within, link.req_packed_command(&ping)).await, Ok(Ok(_)))
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Link")
    }
}

/// Makes connections to one node.
struct Connector {
    address: Address,
    access: Arc<Access>,
    metrics: Arc<Metrics>,
}

impl Connector {
    async fn connect(&self) -> Result<Link, ConnectError> {
        let connect = connect(&self.access, &self.address);
        let patience = self.access.connect_timeout.unwrap_or(CONNECT_TIMEOUT);
        let connected = timeout(patience, connect).await.map_err(|_| ConnectError::Late(patience))?;
        Ok(Link::new(connected?, &self.metrics))
    }
}

impl Node {
    /// A node that is being connected to, until the last handle of it goes.
    pub(super) fn start(address: Address, access: Arc<Access>, metrics: Arc<Metrics>) -> Arc<Self> {
        let node = Arc::new(Self {
            address: address.clone(),
            link: ArcSwapOption::empty(),
            changed: Notify::new(),
            late: AtomicU32::new(0),
            open: AtomicBool::new(false),
            tried: AtomicBool::new(false),
            look: Notify::new(),
            lost_at: parking_lot::Mutex::new(Instant::now()),
        });
        tokio::spawn(keep(Arc::downgrade(&node), Connector { address, access, metrics }));
        node
    }

    /// Whether calls fail at once.
    pub(super) fn is_down(&self) -> bool {
        self.open.load(Ordering::Relaxed) || (self.link.load().is_none() && !self.was_just_lost())
    }

    /// Whether there is a connection.
    pub(super) fn is_connected(&self) -> bool {
        self.link.load().is_some()
    }

    /// Whether it is known if there is a connection to be had.
    pub(super) fn is_tried(&self) -> bool {
        self.tried.load(Ordering::Relaxed)
    }

    fn was_just_lost(&self) -> bool {
        self.lost_at.lock().elapsed() < RECONNECT_PATIENCE
    }

    /// Sends one command.
    pub(super) async fn call(&self, command: &Cmd, deadline: Instant) -> Result<Value, Failure> {
        self.send(deadline, |mut link| async move { link.req_packed_command(command).await }).await
    }

    /// Sends `ASKING` and one command, one right after the other.
    pub(super) async fn call_asking(&self, command: &Cmd, deadline: Instant) -> Result<Value, Failure> {
        let mut pipeline = Pipeline::with_capacity(2);
        pipeline.cmd("ASKING").add_command(command.clone());
        let pipeline = &pipeline;
        let send = |mut link: MultiplexedConnection| async move {
            link.req_packed_commands(pipeline, 1, 1).await.map(|mut answers| answers.pop().unwrap_or(Value::Nil))
        };
        self.send(deadline, send).await
    }

    async fn send<F: Future<Output = RedisResult<Value>>>(
        &self,
        deadline: Instant,
        send: impl Fn(MultiplexedConnection) -> F,
    ) -> Result<Value, Failure> {
        loop {
            let (link, begun) = (self.link(deadline).await?, Instant::now());
            let mut sent = pin!(timeout_at(deadline, send(link.0.clone())));
            let answer = match poll_fn(|context| Poll::Ready(sent.as_mut().poll(context))).await {
                // No server answers while a call is only being handed over, on a runtime of one thread: the connection was
                // closed while nobody used it, and nothing was sent.
                Poll::Ready(Ok(Err(error))) if Failure::of(&error) == Failure::Lost => {
                    self.lose(&link);
                    continue;
                }
                Poll::Ready(answer) => answer,
                Poll::Pending => sent.await,
            };
            return self.answer(answer, &link, begun);
        }
    }

    async fn link(&self, deadline: Instant) -> Result<Arc<Link>, Failure> {
        if self.open.load(Ordering::Relaxed) || deadline <= Instant::now() {
            return Err(Failure::Unavailable);
        }
        loop {
            let changed = self.changed.notified();
            if let Some(link) = self.link.load_full() {
                return Ok(link);
            }
            let lost_at = *self.lost_at.lock();
            let patience = lost_at.checked_add(RECONNECT_PATIENCE).unwrap_or(lost_at).min(deadline);
            if timeout_at(patience, changed).await.is_err() {
                return Err(Failure::Unavailable);
            }
        }
    }

    fn answer(
        &self,
        answer: Result<Result<Value, redis::RedisError>, tokio::time::error::Elapsed>,
        link: &Arc<Link>,
        begun: Instant,
    ) -> Result<Value, Failure> {
        let Ok(answer) = answer else {
            if begun.elapsed() >= FAIR_WAIT
                && self.late.fetch_add(1, Ordering::Relaxed).saturating_add(1) == LATE_IN_A_ROW
            {
                self.open.store(true, Ordering::Relaxed);
                self.look.notify_one();
            }
            return Err(Failure::Late);
        };
        self.late.store(0, Ordering::Relaxed);
        let answer = match answer {
            Ok(Value::ServerError(error)) => Err(Failure::of(&error.into())),
            Ok(value) => Ok(value),
            Err(error) => Err(Failure::of(&error)),
        };
        if matches!(answer, Err(Failure::Lost)) {
            self.lose(link);
        }
        answer
    }

    /// Begins with a new link.
    fn begin(&self, link: Link) {
        self.link.store(Some(Arc::new(link)));
        self.tried.store(true, Ordering::Relaxed);
        self.close_breaker();
        self.changed.notify_waiters();
    }

    fn close_breaker(&self) {
        self.late.store(0, Ordering::Relaxed);
        self.open.store(false, Ordering::Relaxed);
    }

    /// Probes a silent node; closes the breaker with the first answer. Says whether there was one.
    async fn probe_until_heard(&self, link: &Link, address: &str) -> bool {
        warn!(address, "redis does not answer in time; its limits are answered by on_store_error until it does");
        let mut wait = FIRST_WAIT;
        for _ in 0..PROBES {
            if link.answers(PROBE_TIMEOUT).await {
                self.close_breaker();
                info!(address, "redis answers again");
                return true;
            }
            tokio::time::sleep(jittered(wait)).await;
            wait = wait.saturating_mul(2).min(LAST_WAIT);
        }
        false
    }

    /// Gives a link up; the keeper makes another, which a call that failed on the old one must not take down with it.
    fn lose(&self, link: &Arc<Link>) {
        let had = self.link.compare_and_swap(link, None);
        if !had.as_ref().is_some_and(|had| Arc::ptr_eq(had, link)) {
            return;
        }
        *self.lost_at.lock() = Instant::now();
        self.changed.notify_waiters();
        self.look.notify_one();
    }
}

/// Keeps a node connected, and probes it while it is silent, until nobody has a handle of it.
async fn keep(node: Weak<Node>, connector: Connector) {
    let address = connector.address.to_string();
    // What was told last: the same again and again is told once, and another reason is.
    let (mut wait, mut complaint) = (FIRST_WAIT, None);
    while node.strong_count() > 0 {
        match connector.connect().await {
            Ok(link) => {
                if complaint.take().is_some() {
                    info!(address, "redis is reached");
                }
                wait = FIRST_WAIT;
                if let Some(node) = node.upgrade() {
                    node.begin(link);
                }
                while watch(&node, &address).await {}
            }
            Err(error) => {
                let reason = error.to_string();
                if complaint.as_ref() != Some(&reason) {
                    warn!(address, error = reason, "redis cannot be reached; trying on");
                    complaint = Some(reason);
                }
                if let Some(node) = node.upgrade() {
                    node.tried.store(true, Ordering::Relaxed);
                }
                tokio::time::sleep(jittered(wait)).await;
                wait = wait.saturating_mul(2).min(LAST_WAIT);
            }
        }
    }
}

/// Waits until there is something to look at, or for the next look without a reason. Says whether the link is good still.
async fn watch(node: &Weak<Node>, address: &str) -> bool {
    let Some(node) = node.upgrade() else { return false };
    let told = timeout(LOOK_EVERY, node.look.notified()).await.is_ok();
    let Some(link) = node.link.load_full() else { return false };
    if told && !node.open.load(Ordering::Relaxed) {
        return true;
    }
    let alive = if told { node.probe_until_heard(&link, address).await } else { link.answers(LOOK_TIMEOUT).await };
    if !alive {
        node.lose(&link);
    }
    alive
}

/// From half of `wait` to all of it, so that processes that lost a node together do not come back in step.
fn jittered(wait: Duration) -> Duration {
    wait.mul_f64(rand::random_range(0.5..=1.0))
}
