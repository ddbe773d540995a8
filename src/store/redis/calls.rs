//! One request's part in one slot: its routing, and retries if it is known that nothing ran.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures_util::future::TryFutureExt as _;
use redis::{Cmd, Value};
use tokio::time::Instant;

use super::Time;
use super::node::Node;
use super::node::batch::{Reply, SendOptions};
use super::node::failure::CallFailure;
use super::script::decode::ScriptReply;
use super::script::encode::ScriptRequest;
use super::script::key::key_of;
use super::script::slot::slot_of;
use super::topology::routes::Routes;
use crate::algorithm::judge::Few;
use crate::algorithm::time::Timestamp;
use crate::descriptor::CounterKey;
use crate::store::StoreError;
use crate::store::clock::Clock as _;
use crate::telemetry::metrics::Metrics;

/// Initial backoff before a command that did not run is resent. It doubles each time, so that a
/// server that refuses for long gets no extra load.
const AGAIN: Duration = Duration::from_millis(1);
/// Attempts of one command, redirections included.
const ATTEMPTS: u32 = 16;
/// Minimum interval between log messages about refusals.
const COMPLAIN_EVERY: Duration = Duration::from_secs(10);

/// Returns the instant this far from now.
pub(super) fn within(time: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(time).unwrap_or(now)
}

/// Charges in flight. If the call is dropped before its reply arrives, the result of the charges is
/// unknown: the drop counts them.
#[derive(Debug)]
struct UnknownCharges<'a> {
    metrics: &'a Metrics,
    charges: u64,
}

impl Drop for UnknownCharges<'_> {
    fn drop(&mut self) {
        self.metrics.unknown_charges.inc_by(self.charges);
    }
}

/// The state that a call needs; shared with take-backs, which outlive their request.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) routes: Arc<Routes>,
    pub(super) prefix: Vec<u8>,
    /// The user of the connections, if one is configured.
    pub(super) user: Option<String>,
    pub(super) by_slot: bool,
    pub(super) time: Time,
    /// Microseconds by which the servers' clock is ahead of this process's, if they were found far
    /// apart; otherwise 0.
    pub(super) clock_ahead_us: AtomicI64,
    pub(super) metrics: Arc<Metrics>,
    /// Time of the last log message about a refusal.
    pub(super) complained: parking_lot::Mutex<Option<Instant>>,
}

impl Core {
    /// Returns the approximate time of the servers' clock.
    pub(super) fn now(&self) -> Timestamp {
        match &self.time {
            Time::Server => {
                let ahead = self.clock_ahead_us.load(Ordering::Relaxed);
                let own = self.routes.access().environment.now();
                Timestamp::from_micros(own.as_micros().saturating_add_signed(ahead))
            }
            Time::Given(clock) => clock.now(),
        }
    }

    /// Stores the offset of the servers' clock from this process's. With an offset of a day or
    /// more, each request about a calendar would otherwise be sent twice.
    fn set_now(&self, servers: Timestamp) {
        let servers = servers.as_micros();
        let own = self.routes.access().environment.now().as_micros();
        let ahead = i128::from(servers).saturating_sub(i128::from(own));
        self.clock_ahead_us.store(i64::try_from(ahead).unwrap_or_default(), Ordering::Relaxed);
    }

    /// Returns the instant to judge at, or `None` if the server decides it.
    pub(super) fn given(&self) -> Option<Timestamp> {
        match &self.time {
            Time::Server => None,
            Time::Given(clock) => Some(clock.now()),
        }
    }

    /// Returns the slot of a counter; 0 if one node has all of them.
    pub(super) fn slot(&self, key: &CounterKey<'_>) -> u16 {
        if self.by_slot { slot_of(&key_of(&self.prefix, key)) } else { 0 }
    }

    /// Returns `true` if each key may be at a different server, behind a proxy that shards them. A
    /// call may then name only one.
    pub(super) fn is_sharded(&self) -> bool {
        !self.by_slot && self.routes.with_node(0, |node| node.is_sharded()).unwrap_or(false)
    }

    /// Returns `true` if a connection to the server of a slot has been attempted.
    pub(super) fn was_attempted(&self, slot: u16) -> bool {
        self.routes.has_searched()
            && self.routes.with_node(slot, |node| node.was_attempted()).unwrap_or(true)
    }

    pub(super) fn is_down(&self, slot: u16) -> bool {
        self.routes.with_node(slot, |node| node.is_down()).unwrap_or(true)
    }

    /// Logs why Redis refused, at most once per [`COMPLAIN_EVERY`].
    pub(super) fn complain_of(&self, failure: &CallFailure) {
        let (CallFailure::Refused(text) | CallFailure::Forbidden(text)) = failure else { return };
        let mut last = self.complained.lock();
        if last.is_none_or(|last| last.elapsed() >= COMPLAIN_EVERY) {
            *last = Some(Instant::now());
            tracing::warn!(text, "Redis refused a command");
        }
    }

    /// Calls one slot, and retries if nothing ran.
    pub(super) fn ask(
        &self,
        slot: u16,
        request: Arc<ScriptRequest>,
        deadline: Instant,
    ) -> impl Future<Output = Result<ScriptReply, StoreError>> + Send {
        self.run(slot, request, deadline).map_err(|failure| {
            self.complain_of(&failure);
            StoreError::from(failure)
        })
    }

    /// Calls one slot to make `charges` charges, and counts them as unknown if they may have been
    /// written.
    pub(super) fn ask_to_charge(
        &self,
        slot: u16,
        request: Arc<ScriptRequest>,
        charges: u64,
        deadline: Instant,
    ) -> impl Future<Output = Result<ScriptReply, StoreError>> + Send {
        async move {
            let mut under_way = UnknownCharges { metrics: &self.metrics, charges };
            let reply = self.ask(slot, request, deadline).await;
            if !matches!(reply, Err(StoreError::Late | StoreError::Lost)) {
                under_way.charges = 0;
            }
            reply
        }
    }

    /// Sends a command that does not belong to a request to the node of a slot. Sends it again
    /// while replies, such as redirections, prove that it did not run.
    pub(super) async fn call(
        &self,
        slot: u16,
        command: &Cmd,
        deadline: Instant,
    ) -> Result<Value, CallFailure> {
        let mut node = self.routes.node(slot).ok_or(CallFailure::Unavailable)?;
        let mut is_asking = false;
        let mut again = AGAIN;
        for _ in 0..ATTEMPTS {
            match node.call_asking(command, std::mem::take(&mut is_asking), deadline).await {
                Err(CallFailure::Moved(address)) => {
                    self.routes.doubt();
                    node = self.routes.node_at(&address.or_host_of(&node.address));
                }
                Err(CallFailure::Ask(address)) => {
                    is_asking = true;
                    node = self.routes.node_at(&address.or_host_of(&node.address));
                }
                Err(CallFailure::Again | CallFailure::RetryAlone) if within(again) < deadline => {
                    self.routes.doubt();
                    tokio::time::sleep(again).await;
                    again = again.saturating_mul(2);
                    node = self.routes.node(slot).ok_or(CallFailure::Unavailable)?;
                }
                reply => return reply.inspect_err(|_| self.routes.doubt()),
            }
        }
        Err(CallFailure::Again)
    }

    fn run(
        &self,
        slot: u16,
        request: Arc<ScriptRequest>,
        deadline: Instant,
    ) -> impl Future<Output = Reply> + Send {
        async move {
            let options = SendOptions { slot, alone: self.is_sharded(), ..SendOptions::default() };
            let node = self.routes.node(slot).ok_or(CallFailure::Unavailable)?;
            match node.ask(&request, options, deadline).await {
                Ok(ScriptReply::Judged(answers)) => Ok(ScriptReply::Judged(answers)),
                // Boxed: otherwise every call that waits for a reply would carry the state of its
                // retries.
                reply => Box::pin(self.run_again(node, request, options, reply, deadline)).await,
            }
        }
    }

    /// Resends a request while its replies, beginning with `first`, prove that nothing ran.
    async fn run_again(
        &self,
        mut node: Arc<Node>,
        mut request: Arc<ScriptRequest>,
        mut options: SendOptions,
        first: Reply,
        deadline: Instant,
    ) -> Reply {
        let mut first = Some(first);
        let mut again = AGAIN;
        let mut instants: Few<Timestamp> = Few::new();
        for _ in 0..ATTEMPTS {
            let reply = match first.take() {
                Some(reply) => reply,
                None => node.ask(&request, options, deadline).await,
            };
            let asking = std::mem::take(&mut options.asking);
            match reply {
                Err(CallFailure::NoScript) if !options.by_text => {
                    (options.by_text, options.asking) = (true, asking)
                }
                Err(CallFailure::RetryAlone) if !options.alone => {
                    (options.alone, options.asking) = (true, asking)
                }
                Err(CallFailure::Moved(address)) => {
                    self.routes.doubt();
                    node = self.routes.node_at(&address.or_host_of(&node.address));
                }
                Err(CallFailure::Ask(address)) => {
                    options.asking = true;
                    node = self.routes.node_at(&address.or_host_of(&node.address));
                }
                Err(CallFailure::Again | CallFailure::RetryAlone) if within(again) < deadline => {
                    self.routes.doubt();
                    tokio::time::sleep(again).await;
                    again = again.saturating_mul(2);
                    node = self.routes.node(options.slot).ok_or(CallFailure::Unavailable)?;
                }
                Err(failure) => {
                    self.routes.doubt();
                    return Err(failure);
                }
                Ok(ScriptReply::Beyond { now, instant }) => {
                    if instant == now {
                        self.set_now(now);
                    }
                    instants.extend([now, instant]);
                    let mut reaching = ScriptRequest::clone(&request);
                    if !reaching.reach(&instants) {
                        return Err(CallFailure::Refused(
                            "script requests a calendar window, but the limit has no calendar"
                                .to_owned(),
                        ));
                    }
                    request = Arc::new(reaching);
                }
                Ok(reply) => return Ok(reply),
            }
        }
        Err(CallFailure::Again)
    }
}
