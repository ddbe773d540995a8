//! One request's part in one slot: its routing, and retries if it is known that nothing ran.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::time::Instant;
use tollgate_core::algorithm::time::Timestamp;
use tollgate_core::descriptor::CounterKey;
use tollgate_telemetry::metrics::StoreMetrics;

use super::Time;
use super::credentials::Logins;
use super::script::decode::ScriptReply;
use super::script::encode::ScriptRequest;
use super::script::key::key_of;
use super::script::slot::slot_of;
use super::server::Node;
use super::server::batch::{Reply, SendOptions};
use super::server::failure::CallFailure;
use super::topology::routes::Routes;
use crate::StoreError;
use crate::clock::Clock as _;

/// Initial backoff before a command that did not run is resent. It doubles each time, so that a
/// server that refuses for long gets no extra load.
const AGAIN: Duration = Duration::from_millis(1);
/// Maximum retries of one command, redirections included.
const RETRIES: u32 = 15;
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
    metrics: &'a StoreMetrics,
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
    /// The users and passwords of the connections.
    pub(super) logins: Arc<Logins>,
    pub(super) by_slot: bool,
    pub(super) time: Time,
    /// Microseconds by which the servers' clock is ahead of this process's, if they were found far
    /// apart; otherwise 0.
    pub(super) clock_ahead_us: AtomicI64,
    pub(super) metrics: Arc<StoreMetrics>,
    /// Time of the last log message about a refusal.
    pub(super) complained: parking_lot::Mutex<Option<Instant>>,
}

/// The next attempt of a call, and the retries that are left after it.
struct Attempt {
    node: Arc<Node>,
    options: SendOptions,
    backoff: Duration,
    left: u32,
}

impl Attempt {
    /// Prepares the next attempt, or returns the failure if none may follow.
    async fn retry_after(
        &mut self,
        failure: CallFailure,
        routes: &Routes,
        deadline: Instant,
    ) -> Result<(), CallFailure> {
        #[allow(clippy::wildcard_enum_match_arm, reason = "all other failures are final")]
        match failure {
            CallFailure::NoScript if !self.options.by_text => self.options.by_text = true,
            CallFailure::RetryAlone if !self.options.alone => self.options.alone = true,
            CallFailure::Ask(address) => {
                self.options.asking = true;
                self.node = routes.node_at(&address.or_host_of(&self.node.address));
            }
            CallFailure::Moved(address) => {
                routes.doubt();
                self.options.asking = false;
                self.node = routes.node_at(&address.or_host_of(&self.node.address));
            }
            CallFailure::Again | CallFailure::RetryAlone if within(self.backoff) < deadline => {
                routes.doubt();
                tokio::time::sleep(self.backoff).await;
                self.backoff = self.backoff.saturating_mul(2);
                self.options.asking = false;
                self.node = routes.node(self.options.slot).ok_or(CallFailure::Unavailable)?;
            }
            failure => {
                routes.doubt();
                return Err(failure);
            }
        }
        self.count()
    }

    fn count(&mut self) -> Result<(), CallFailure> {
        self.left = self.left.checked_sub(1).ok_or(CallFailure::Again)?;
        Ok(())
    }
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
    pub(super) fn given_time(&self) -> Option<Timestamp> {
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
    pub(super) fn run(
        &self,
        slot: u16,
        request: Arc<ScriptRequest>,
        deadline: Instant,
    ) -> impl Future<Output = Result<ScriptReply, StoreError>> + Send {
        async move {
            let options = SendOptions { slot, alone: self.is_sharded(), ..SendOptions::default() };
            let node = self.routes.node(slot).ok_or(StoreError::Unavailable)?;
            match node.run(&request, options, deadline).await {
                Ok(ScriptReply::Judged(answers)) => Ok(ScriptReply::Judged(answers)),
                // Boxed: otherwise every call that waits for a reply would carry the state of its
                // retries.
                reply => {
                    let again = self.run_again(node, request, options, reply, deadline);
                    Box::pin(again).await.map_err(|failure| {
                        self.complain_of(&failure);
                        StoreError::from(failure)
                    })
                }
            }
        }
    }

    /// Calls one slot to make `charges` charges, and counts them as unknown if they may have been
    /// written.
    pub(super) fn run_charging(
        &self,
        slot: u16,
        request: Arc<ScriptRequest>,
        charges: u64,
        deadline: Instant,
    ) -> impl Future<Output = Result<ScriptReply, StoreError>> + Send {
        async move {
            let mut under_way = UnknownCharges { metrics: &self.metrics, charges };
            let reply = self.run(slot, request, deadline).await;
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
        let node = self.routes.node(slot).ok_or(CallFailure::Unavailable)?;
        // Sent as it is, and in no batch.
        let options = SendOptions { slot, by_text: true, alone: true, asking: false };
        let mut attempt = Attempt { node, options, backoff: AGAIN, left: RETRIES };
        loop {
            match attempt.node.call_asking(command, attempt.options.asking, deadline).await {
                Err(failure) => attempt.retry_after(failure, &self.routes, deadline).await?,
                reply => return reply,
            }
        }
    }

    /// Resends a request while its replies, beginning with `reply`, prove that nothing ran.
    async fn run_again(
        &self,
        node: Arc<Node>,
        mut request: Arc<ScriptRequest>,
        options: SendOptions,
        mut reply: Reply,
        deadline: Instant,
    ) -> Reply {
        let mut attempt = Attempt { node, options, backoff: AGAIN, left: RETRIES };
        let mut instants = Vec::new();
        loop {
            match reply {
                Err(failure) => attempt.retry_after(failure, &self.routes, deadline).await?,
                Ok(ScriptReply::Beyond { now, instant }) => {
                    if instant == now {
                        self.set_now(now);
                    }
                    instants.extend([now, instant]);
                    if !Arc::make_mut(&mut request).reach(&instants) {
                        let text =
                            "script requests a calendar window, but the limit has no calendar";
                        return Err(CallFailure::Refused(text.to_owned()));
                    }
                    attempt.options.asking = false;
                    attempt.count()?;
                }
                reply => return reply,
            }
            reply = attempt.node.run(&request, attempt.options, deadline).await;
        }
    }
}
