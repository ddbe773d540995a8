//! One server: a multiplexed connection, shared by all calls, that is replaced whenever it is lost, and a breaker that answers
//! at once while it is known down.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use redis::aio::ConnectionLike as _;
use redis::{Cmd, RedisError, Value};
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, timeout, timeout_at};
use tracing::{info, warn};

use super::access::{Access, ConnectError};
use super::batch::{Asked, How, Reply};
use super::connect::{Connector, Link, RequiredRole};
use super::failure::Failure;
use super::gather::gather;
use super::health::NodeHealth;
use super::question::Question;
use super::url::Address;
use crate::telemetry::metrics::{Latency, Metrics};

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
/// How often connections are given up because a replica refused a write: the name may lead to it again.
const LEAVE_AT_MOST_EVERY: Duration = Duration::from_secs(1);
/// How long a call waits for a connection that was just lost, within its deadline; later ones fail at once.
const RECONNECT_PATIENCE: Duration = Duration::from_millis(50);

/// A server.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) address: Address,
    /// Requests for who sends them.
    asked: mpsc::UnboundedSender<Asked>,
    link: ArcSwapOption<Link>,
    /// A new link, or the loss of one.
    changed: Notify,
    late: AtomicU32,
    open: AtomicBool,
    /// Whether it is known to refuse keys of slots that it does not serve, however they are named.
    refuses_foreign_keys: AtomicBool,
    /// Whether it was tried to connect, with whatever success.
    tried: AtomicBool,
    /// Whether it must be a master, and the last attempt to connect found a replica.
    is_replica: AtomicBool,
    /// What the keeper waits for: something to look at.
    look: Notify,
    /// How long answers take.
    latency: Arc<Latency>,
    /// When the last link was lost.
    lost_at: parking_lot::Mutex<Instant>,
    /// When one was given up because a replica refused a write.
    left_at: parking_lot::Mutex<Option<Instant>>,
}

impl Node {
    /// A node that is being connected to, until the last handle of it goes.
    pub(super) fn start(address: Address, access: Arc<Access>, role: RequiredRole, metrics: Arc<Metrics>) -> Arc<Self> {
        let (asked, waiting) = mpsc::unbounded_channel();
        let node = Arc::new(Self {
            address: address.clone(),
            asked,
            link: ArcSwapOption::empty(),
            changed: Notify::new(),
            late: AtomicU32::new(0),
            open: AtomicBool::new(false),
            refuses_foreign_keys: AtomicBool::new(false),
            tried: AtomicBool::new(false),
            is_replica: AtomicBool::new(false),
            look: Notify::new(),
            latency: metrics.node_latency(&address.to_string()),
            lost_at: parking_lot::Mutex::new(Instant::now()),
            left_at: parking_lot::Mutex::default(),
        });
        tokio::spawn(keep(Arc::downgrade(&node), Connector { address, access, role, metrics }));
        tokio::spawn(gather(Arc::downgrade(&node), waiting));
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

    /// Whether it must be a master and is a replica.
    pub(super) fn is_replica(&self) -> bool {
        self.is_replica.load(Ordering::Relaxed)
    }

    /// Whether it is known to refuse keys of slots that it does not serve, however they are named.
    pub(super) fn refuses_foreign_keys(&self) -> bool {
        self.refuses_foreign_keys.load(Ordering::Relaxed)
    }

    /// Says that it does.
    pub(super) fn keeps_to_its_keys(&self) {
        self.refuses_foreign_keys.store(true, Ordering::Relaxed);
    }

    /// What is known of it.
    pub(super) fn health(&self) -> NodeHealth {
        NodeHealth {
            address: self.address.to_string(),
            is_connected: self.is_connected(),
            is_breaker_open: self.open.load(Ordering::Relaxed),
        }
    }

    fn was_just_lost(&self) -> bool {
        self.lost_at.lock().elapsed() < RECONNECT_PATIENCE
    }

    /// Asks for a request to be judged, with all others that are asked at this time.
    pub(super) async fn ask(&self, question: &Arc<Question>, how: How, deadline: Instant) -> Reply {
        loop {
            let link = self.link(deadline).await?;
            let (asked, replied) = Asked::new(Arc::clone(question), how, deadline);
            self.asked.send(asked).map_err(|_| Failure::Unavailable)?;
            match replied.await.unwrap_or(Err(Failure::Unavailable)) {
                Err(Failure::NotSent) => {}
                Err(Failure::ReadOnly) => {
                    self.leave_replica(&link);
                    return Err(Failure::Again);
                }
                reply => return reply,
            }
        }
    }

    /// Sends one command that is none of a request's.
    pub(super) async fn call(&self, command: &Cmd, deadline: Instant) -> Result<Value, Failure> {
        let (link, begun) = (self.link(deadline).await?, Instant::now());
        let mut handle = link.handle();
        let Ok(answer) = timeout_at(deadline, handle.req_packed_command(command)).await else {
            self.is_late(begun);
            return Err(Failure::Late);
        };
        self.took(begun);
        let answer = self.heard(answer, &link)?.extract_error().map_err(|error| Failure::of(&error));
        if matches!(answer, Err(Failure::ReadOnly)) {
            self.leave_replica(&link);
        }
        answer
    }

    /// The link, where there is one or soon may be and the node is not known to be down.
    async fn link(&self, deadline: Instant) -> Result<Arc<Link>, Failure> {
        if self.open.load(Ordering::Relaxed) || deadline <= Instant::now() {
            return Err(Failure::Unavailable);
        }
        loop {
            if let Some(link) = self.link.load_full() {
                return Ok(link);
            }
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

    /// The link that there is.
    pub(super) fn linked(&self) -> Option<Arc<Link>> {
        self.link.load_full()
    }

    /// Whether this is the link that there is.
    pub(super) fn is_linked_by(&self, link: &Arc<Link>) -> bool {
        self.link.load().as_ref().is_some_and(|linked| Arc::ptr_eq(linked, link))
    }

    /// Says that no answer came in time to who has waited since `begun`.
    pub(super) fn is_late(&self, begun: Instant) {
        if begun.elapsed() >= FAIR_WAIT && self.late.fetch_add(1, Ordering::Relaxed).saturating_add(1) == LATE_IN_A_ROW
        {
            self.open.store(true, Ordering::Relaxed);
            self.look.notify_one();
        }
    }

    /// Says that an answer came to what was sent at this time.
    pub(super) fn took(&self, begun: Instant) {
        self.latency.record(begun.elapsed());
    }

    /// Says what came by a link.
    pub(super) fn heard<T>(&self, answer: Result<T, RedisError>, link: &Arc<Link>) -> Result<T, Failure> {
        self.late.store(0, Ordering::Relaxed);
        let answer = answer.map_err(|error| Failure::of(&error));
        if matches!(answer, Err(Failure::Lost)) {
            self.lose(link);
        }
        answer
    }

    /// Begins with a new link.
    fn begin(&self, link: Link) {
        self.link.store(Some(Arc::new(link)));
        self.tried.store(true, Ordering::Relaxed);
        self.is_replica.store(false, Ordering::Relaxed);
        // There may be another server behind the address now.
        self.refuses_foreign_keys.store(false, Ordering::Relaxed);
        self.close_breaker();
        self.changed.notify_waiters();
    }

    /// Records why there is no new link.
    fn record_refusal(&self, error: &ConnectError) {
        self.tried.store(true, Ordering::Relaxed);
        self.is_replica.store(matches!(error, ConnectError::Replica), Ordering::Relaxed);
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

    /// Gives up a link to a master that has become a replica, so that the keeper looks who has the address now.
    fn leave_replica(&self, link: &Arc<Link>) {
        if !link.must_be_master() || !self.is_linked_by(link) {
            return;
        }
        let mut left_at = self.left_at.lock();
        if left_at.is_none_or(|left_at| left_at.elapsed() >= LEAVE_AT_MOST_EVERY) {
            *left_at = Some(Instant::now());
            self.lose(link);
        }
    }

    /// Gives a link up; the keeper makes another, which a call that failed on the old one must not take down with it.
    pub(super) fn lose(&self, link: &Arc<Link>) {
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
                // The process warns of a replica once, whose name all its connections share.
                if !matches!(error, ConnectError::Replica) && complaint.as_ref() != Some(&reason) {
                    warn!(address, error = reason, "redis cannot be reached; trying on");
                    complaint = Some(reason);
                }
                if let Some(node) = node.upgrade() {
                    node.record_refusal(&error);
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
    let is_good = if told { node.probe_until_heard(&link, address).await } else { link.is_good(LOOK_TIMEOUT).await };
    if !is_good {
        node.lose(&link);
    }
    is_good
}

/// From half of `wait` to all of it, so that processes that lost a node together do not come back in step.
fn jittered(wait: Duration) -> Duration {
    wait.mul_f64(rand::random_range(0.5..=1.0))
}
