//! A server: a multiplexed connection that is shared by all calls and replaced when lost, and a
//! circuit breaker that fails calls immediately while the server is known to be down.
//!
//! | file | purpose |
//! |---|---|
//! | `connect`, `rights`, `tls` | a connection: the server's role, the user's permissions, trust |
//! | `connect_error` | the reason why there is no connection |
//! | `replies` | the bound on the size of a reply |
//! | `info` | the fields of `INFO` |
//! | `preload` | loading of scripts on connect |
//! | `maintain` | reconnection, and checks of an idle connection |
//! | `renewal` | connections in use: other credentials, and replacement by a younger one |
//! | `batcher`, `batch` | requests sent to a node together: when, and as which commands |
//! | `loss` | the time for which calls wait for a connection that was lost |
//! | `breaker` | the circuit breaker: opens after consecutive timeouts |
//! | `failure` | kinds of failure of a call |

pub(super) mod batch;
mod batcher;
mod breaker;
pub(super) mod connect;
mod connect_error;
pub(super) mod failure;
pub(super) mod info;
mod loss;
mod maintain;
mod preload;
mod renewal;
mod replies;
pub(super) mod rights;
mod tls;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use redis::aio::ConnectionLike as _;
use redis::{Cmd, RedisError, Value};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, timeout_at};
use tollgate_telemetry::histogram::Histogram;
use tollgate_telemetry::metrics::StoreMetrics;

use self::batch::{PendingCall, Reply, SendOptions};
use self::batcher::run_batcher;
use self::breaker::Breaker;
use self::connect::{Connector, NodeLink, RequiredRole};
use self::connect_error::ConnectError;
use self::failure::CallFailure;
use self::loss::Loss;
use self::maintain::keep;
use crate::redis::config::access::Access;
use crate::redis::config::url::ServerAddress;
use crate::redis::script::encode::ScriptRequest;
use crate::servers::{AccessRefusal, RefusedAccess, ServerHealth};

/// Minimum interval between connections dropped because the server refused a call: the next one may
/// lead to the same refusal.
const LEAVE_AT_MOST_EVERY: Duration = Duration::from_secs(1);

/// A server.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) address: ServerAddress,
    /// Requests to the task that sends them.
    calls: mpsc::UnboundedSender<PendingCall>,
    link: ArcSwapOption<NodeLink>,
    /// Notifies of a new link, or of the loss of one.
    changed: Notify,
    breaker: Breaker,
    /// Set if the server is known to refuse keys of slots that it does not serve, declared or not.
    refuses_foreign_keys: AtomicBool,
    /// Set once a connection was attempted, successfully or not.
    attempted: AtomicBool,
    /// Set if the server must be a master, and the last attempt to connect found a replica.
    is_replica: AtomicBool,
    /// Set if the address is that of a proxy that shards keys across several servers.
    is_sharded: AtomicBool,
    /// Error of the last attempt to connect, and the reason if the server refuses access.
    connect_error: ArcSwapOption<(Option<AccessRefusal>, String)>,
    /// Wakes the task that maintains the connection.
    wake: Notify,
    /// Latencies of replies.
    latency: Arc<Histogram>,
    /// The last loss of a link.
    loss: parking_lot::Mutex<Loss>,
    /// Time when a link was last dropped because the server refused what it was made for.
    left_at: parking_lot::Mutex<Option<Instant>>,
}

impl Node {
    /// Creates a node and connects to it until its last handle is dropped.
    pub(super) fn start(
        address: ServerAddress,
        access: Arc<Access>,
        role: RequiredRole,
        metrics: Arc<StoreMetrics>,
    ) -> Arc<Self> {
        let (calls, waiting) = mpsc::unbounded_channel();
        let node = Arc::new(Self {
            address: address.clone(),
            calls,
            link: ArcSwapOption::empty(),
            changed: Notify::new(),
            breaker: Breaker::default(),
            refuses_foreign_keys: AtomicBool::new(false),
            attempted: AtomicBool::new(false),
            is_replica: AtomicBool::new(false),
            is_sharded: AtomicBool::new(false),
            connect_error: ArcSwapOption::empty(),
            wake: Notify::new(),
            latency: metrics.node_latency(&address.to_string()),
            loss: parking_lot::Mutex::new(Loss::now()),
            left_at: parking_lot::Mutex::default(),
        });
        let logins = access.logins(&metrics);
        let connector = Connector { address, access, role, logins, metrics };
        tokio::spawn(keep(Arc::downgrade(&node), connector));
        tokio::spawn(run_batcher(Arc::downgrade(&node), waiting));
        node
    }

    /// Returns `true` if calls fail immediately.
    pub(super) fn is_down(&self) -> bool {
        self.breaker.is_open() || (self.link.load().is_none() && !self.may_soon_be_connected())
    }

    /// Returns `true` if there is a connection.
    pub(super) fn is_connected(&self) -> bool {
        self.link.load().is_some()
    }

    /// Returns `true` once a connection was attempted, successfully or not.
    pub(super) fn was_attempted(&self) -> bool {
        self.attempted.load(Ordering::Relaxed)
    }

    /// Returns `true` if the server must be a master, but is a replica.
    pub(super) fn is_replica(&self) -> bool {
        self.is_replica.load(Ordering::Relaxed)
    }

    /// Returns `true` if the address is that of a proxy that shards keys across several servers.
    pub(super) fn is_sharded(&self) -> bool {
        self.is_sharded.load(Ordering::Relaxed)
    }

    /// Returns the reason if the server refuses all that decisions need, with the next step.
    pub(super) fn refused_access(&self) -> Option<RefusedAccess> {
        let error = self.connect_error.load();
        let (refusal, text) = error.as_deref()?;
        let address = self.address.to_string();
        Some(RefusedAccess { address, refusal: (*refusal)?, text: text.clone() })
    }

    /// Returns the error of the last attempt to connect, or `None` if it succeeded or there was
    /// none.
    pub(super) fn connect_error(&self) -> Option<String> {
        self.connect_error.load().as_deref().map(|(_, error)| error.clone())
    }

    /// Returns `true` if the server is known to refuse keys of slots that it does not serve,
    /// declared or not.
    pub(super) fn refuses_foreign_keys(&self) -> bool {
        self.refuses_foreign_keys.load(Ordering::Relaxed)
    }

    /// Records that the server refuses foreign keys.
    pub(super) fn set_refuses_foreign_keys(&self) {
        self.refuses_foreign_keys.store(true, Ordering::Relaxed);
    }

    /// Returns the state of the node.
    pub(super) fn health(&self) -> ServerHealth {
        ServerHealth {
            address: self.address.to_string(),
            is_connected: self.is_connected(),
            is_breaker_open: self.breaker.is_open(),
        }
    }

    fn may_soon_be_connected(&self) -> bool {
        self.loss.lock().may_soon_be_over()
    }

    /// Sends a request, batched with all others that are made at this time.
    pub(super) fn run(
        &self,
        request: &Arc<ScriptRequest>,
        options: SendOptions,
        deadline: Instant,
    ) -> impl Future<Output = Reply> + Send {
        async move {
            loop {
                let link = self.link(deadline).await?;
                let (call, replied) = PendingCall::new(Arc::clone(request), options, deadline);
                self.calls.send(call).map_err(|_| CallFailure::Unavailable)?;
                let reply = replied.await.unwrap_or(Err(CallFailure::Unavailable));
                match reply.map_err(|failure| link.permitted(failure)) {
                    Err(CallFailure::NotSent) => {}
                    Err(CallFailure::ReadOnly) => {
                        self.leave_replica(&link);
                        return Err(CallFailure::Again);
                    }
                    Err(failure) if failure.is_of_user() => {
                        self.leave(&link);
                        return Err(failure);
                    }
                    reply => return reply,
                }
            }
        }
    }

    /// Sends one command that does not belong to a request.
    pub(super) async fn call(
        &self,
        command: &Cmd,
        deadline: Instant,
    ) -> Result<Value, CallFailure> {
        self.call_asking(command, false, deadline).await
    }

    /// Sends one command that does not belong to a request; after `ASKING` if the node is the
    /// target of a slot that is being moved.
    pub(super) async fn call_asking(
        &self,
        command: &Cmd,
        is_asking: bool,
        deadline: Instant,
    ) -> Result<Value, CallFailure> {
        let link = self.link(deadline).await?;
        let begun = Instant::now();
        let mut handle = link.handle();
        let sent = async {
            if !is_asking {
                return handle.req_packed_command(command).await;
            }
            let mut both = redis::pipe();
            both.cmd("ASKING").add_command(command.clone());
            let replies = handle.req_packed_commands(&both, 1, 1).await?;
            Ok(replies.into_iter().next().unwrap_or(Value::Nil))
        };
        let Ok(answer) = timeout_at(deadline, sent).await else {
            self.record_timeout(begun);
            return Err(CallFailure::Late);
        };
        self.record_latency(begun);
        let answer = self
            .on_reply(answer, &link)?
            .extract_error()
            .map_err(|error| link.permitted(CallFailure::of(&error)));
        if matches!(answer, Err(CallFailure::ReadOnly)) {
            self.leave_replica(&link);
        }
        answer
    }

    /// Returns the link if there is one or soon may be, and the node is not known to be down.
    fn link(
        &self,
        deadline: Instant,
    ) -> impl Future<Output = Result<Arc<NodeLink>, CallFailure>> + Send {
        async move {
            if self.breaker.is_open() || deadline <= Instant::now() {
                return Err(CallFailure::Unavailable);
            }
            match self.link.load_full() {
                Some(link) => Ok(link),
                // Boxed: otherwise every call that waits for a reply would carry the timer.
                None => Box::pin(self.next_link(deadline)).await,
            }
        }
    }

    /// Waits for the link that replaces a lost one.
    async fn next_link(&self, deadline: Instant) -> Result<Arc<NodeLink>, CallFailure> {
        loop {
            let changed = self.changed.notified();
            if let Some(link) = self.link.load_full() {
                return Ok(link);
            }
            let wait_until = self.loss.lock().wait_until(deadline);
            if timeout_at(wait_until, changed).await.is_err() {
                return Err(CallFailure::Unavailable);
            }
        }
    }

    /// Returns the current link.
    fn linked(&self) -> Option<Arc<NodeLink>> {
        self.link.load_full()
    }

    /// Returns `true` if this is the current link.
    fn is_linked_by(&self, link: &Arc<NodeLink>) -> bool {
        self.link.load().as_ref().is_some_and(|linked| Arc::ptr_eq(linked, link))
    }

    /// Records a timeout of a request that has waited since `begun`.
    pub(super) fn record_timeout(&self, begun: Instant) {
        if self.breaker.record_timeout(begun.elapsed()) {
            self.wake.notify_one();
        }
    }

    /// Records the latency of a request that was sent at `begun`.
    pub(super) fn record_latency(&self, begun: Instant) {
        self.latency.record(begun.elapsed());
    }

    /// Records a reply on a link, and drops the link if it was lost.
    fn on_reply<T>(
        &self,
        answer: Result<T, RedisError>,
        link: &Arc<NodeLink>,
    ) -> Result<T, CallFailure> {
        self.breaker.record_reply();
        let answer = answer.map_err(|error| CallFailure::of(&error));
        if matches!(answer, Err(CallFailure::Lost)) {
            self.lose(link);
        }
        answer
    }

    /// Installs a new link. One that is in use ends with its calls.
    fn begin(&self, link: NodeLink) {
        self.is_sharded.store(link.is_sharded(), Ordering::Relaxed);
        self.link.store(Some(Arc::new(link)));
        self.attempted.store(true, Ordering::Relaxed);
        self.is_replica.store(false, Ordering::Relaxed);
        self.connect_error.store(None);
        // The address may lead to another server now.
        self.refuses_foreign_keys.store(false, Ordering::Relaxed);
        self.breaker.close();
        self.changed.notify_waiters();
    }

    /// Records the error of a failed attempt to connect.
    fn record_refusal(&self, error: &ConnectError) {
        self.attempted.store(true, Ordering::Relaxed);
        self.is_replica.store(matches!(error, ConnectError::Replica), Ordering::Relaxed);
        self.connect_error.store(Some(Arc::new((error.refusal(), error.to_string()))));
        self.loss.lock().record_failed_attempt();
        self.changed.notify_waiters();
    }

    /// Drops the link to a master that has become a replica, so that the address is resolved again.
    fn leave_replica(&self, link: &Arc<NodeLink>) {
        if link.must_be_master() {
            self.leave(link);
        }
    }

    /// Drops the link to a server that refuses what the connection was made for. The next attempt
    /// to connect finds the reason.
    fn leave(&self, link: &Arc<NodeLink>) {
        if !self.is_linked_by(link) {
            return;
        }
        let mut left_at = self.left_at.lock();
        if left_at.is_none_or(|left_at| left_at.elapsed() >= LEAVE_AT_MOST_EVERY) {
            *left_at = Some(Instant::now());
            // Not closed: the calls in flight get its replies, which prove that they did not run.
            self.release(link);
        }
    }

    /// Drops a lost link. All calls that wait for a reply on it fail immediately; otherwise each
    /// would wait until its deadline.
    fn lose(&self, link: &Arc<NodeLink>) {
        link.close();
        self.release(link);
    }

    /// Drops a link. The connection task opens another one, which a call that failed on the old
    /// link must not drop.
    fn release(&self, link: &Arc<NodeLink>) {
        let had = self.link.compare_and_swap(link, None);
        if !had.as_ref().is_some_and(|had| Arc::ptr_eq(had, link)) {
            return;
        }
        *self.loss.lock() = Loss::now();
        self.changed.notify_waiters();
        self.wake.notify_one();
    }
}
