//! One request's part in one slot: to whom it goes, and again where it is known that nothing has run.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

use super::Time;
use super::answer::Said;
use super::batch::{How, Reply};
use super::failure::Failure;
use super::key::key_of;
use super::question::Question;
use super::routes::Routes;
use super::slot::slot_of;
use crate::algorithm::judge::Few;
use crate::algorithm::time::Timestamp;
use crate::descriptor::CounterKey;
use crate::store::StoreError;
use crate::store::clock::{Clock as _, SystemClock};
use crate::telemetry::metrics::Metrics;

/// Wait before a command is sent again that did not run; doubles each time, so that a server that refuses for long is not
/// asked more for it.
const AGAIN: Duration = Duration::from_millis(1);
/// Attempts of one command, redirections included.
const ATTEMPTS: u32 = 16;
/// How often it is said that Redis refuses.
const COMPLAIN_EVERY: Duration = Duration::from_secs(10);

/// The instant after so much time.
pub(super) fn within(time: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(time).unwrap_or(now)
}

/// Charges under way. If the call is dropped before its reply comes, nobody will know what became of them: dropping this counts
/// them.
#[derive(Debug)]
struct UnderWay<'a> {
    metrics: &'a Metrics,
    charges: u64,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.metrics.unknown_charges.inc_by(self.charges);
    }
}

/// What a call needs; take-backs, which outlive their request, share it.
#[derive(Debug)]
pub(super) struct Core {
    pub(super) routes: Arc<Routes>,
    pub(super) prefix: Vec<u8>,
    pub(super) by_slot: bool,
    pub(super) time: Time,
    /// Microseconds by which the servers' clock is ahead of this process's, where they were found far apart.
    pub(super) clock_ahead_us: AtomicI64,
    pub(super) metrics: Arc<Metrics>,
    /// When it was last said that Redis refused.
    pub(super) complained: parking_lot::Mutex<Option<Instant>>,
}

impl Core {
    /// What time it is by the servers' clock, about.
    pub(super) fn now(&self) -> Timestamp {
        match &self.time {
            Time::Server => {
                let ahead = self.clock_ahead_us.load(Ordering::Relaxed);
                Timestamp::from_micros(SystemClock.now().as_micros().saturating_add_signed(ahead))
            }
            Time::Given(clock) => clock.now(),
        }
    }

    /// Remembers how far the servers' clock is from this process's. Off by a day or more, it would have each request about a
    /// calendar asked twice.
    fn set_now(&self, servers: Timestamp) {
        let (servers, own) = (servers.as_micros(), SystemClock.now().as_micros());
        let ahead = i128::from(servers).saturating_sub(i128::from(own));
        self.clock_ahead_us.store(i64::try_from(ahead).unwrap_or_default(), Ordering::Relaxed);
    }

    /// The instant to judge at, where that is not for the server to say.
    pub(super) fn given(&self) -> Option<Timestamp> {
        match &self.time {
            Time::Server => None,
            Time::Given(clock) => Some(clock.now()),
        }
    }

    /// The slot of a counter; 0 where one node has all of them.
    pub(super) fn slot(&self, key: &CounterKey<'_>) -> u16 {
        if self.by_slot { slot_of(&key_of(&self.prefix, key)) } else { 0 }
    }

    /// Whether it was tried to reach the server of a slot.
    pub(super) fn is_tried(&self, slot: u16) -> bool {
        self.routes.has_searched() && self.routes.with_node(slot, |node| node.is_tried()).unwrap_or(true)
    }

    pub(super) fn is_down(&self, slot: u16) -> bool {
        self.routes.with_node(slot, |node| node.is_down()).unwrap_or(true)
    }

    /// Says why Redis refused, once in a while.
    pub(super) fn complain_of(&self, failure: &Failure) {
        let (Failure::Refused(text) | Failure::Forbidden(text)) = failure else { return };
        let mut last = self.complained.lock();
        if last.is_none_or(|last| last.elapsed() >= COMPLAIN_EVERY) {
            *last = Some(Instant::now());
            tracing::warn!(text, "redis refused");
        }
    }

    /// Asks one slot, and again where that is known to have changed nothing.
    pub(super) async fn ask(
        &self,
        slot: u16,
        question: impl Into<Arc<Question>>,
        deadline: Instant,
    ) -> Result<Said, StoreError> {
        self.run(slot, question.into(), deadline).await.map_err(|failure| {
            self.complain_of(&failure);
            StoreError::from(failure)
        })
    }

    /// The same for so many charges: those are counted that may have been written without anybody knowing.
    pub(super) async fn ask_to_charge(
        &self,
        slot: u16,
        question: Question,
        charges: u64,
        deadline: Instant,
    ) -> Result<Said, StoreError> {
        let mut under_way = UnderWay { metrics: &self.metrics, charges };
        let said = self.ask(slot, question, deadline).await;
        if !matches!(said, Err(StoreError::Late | StoreError::Lost)) {
            under_way.charges = 0;
        }
        said
    }

    async fn run(&self, slot: u16, mut question: Arc<Question>, deadline: Instant) -> Reply {
        let mut instants: Few<Timestamp> = Few::new();
        let (mut how, mut again) = (How { slot, ..How::default() }, AGAIN);
        let mut node = self.routes.node(slot).ok_or(Failure::Unavailable)?;
        for _ in 0..ATTEMPTS {
            let reply = node.ask(&question, how, deadline).await;
            let asking = std::mem::take(&mut how.asking);
            match reply {
                Err(Failure::NoScript) if !how.by_text => (how.by_text, how.asking) = (true, asking),
                Err(Failure::InCompany) if !how.alone => (how.alone, how.asking) = (true, asking),
                Err(Failure::Moved(address)) => {
                    self.routes.doubt();
                    node = self.routes.node_at(&address.or_host_of(&node.address));
                }
                Err(Failure::Ask(address)) => {
                    how.asking = true;
                    node = self.routes.node_at(&address.or_host_of(&node.address));
                }
                Err(Failure::Again | Failure::InCompany) if within(again) < deadline => {
                    self.routes.doubt();
                    tokio::time::sleep(again).await;
                    again = again.saturating_mul(2);
                    node = self.routes.node(slot).ok_or(Failure::Unavailable)?;
                }
                Err(failure) => {
                    self.routes.doubt();
                    return Err(failure);
                }
                Ok(Said::Beyond { now, instant }) => {
                    if instant == now {
                        self.set_now(now);
                    }
                    instants.extend([now, instant]);
                    let mut reaching = Question::clone(&question);
                    if !reaching.reach(&instants) {
                        return Err(Failure::Refused("a calendar is missed where none is told".to_owned()));
                    }
                    question = Arc::new(reaching);
                }
                Ok(said) => return Ok(said),
            }
        }
        Err(Failure::Again)
    }
}
