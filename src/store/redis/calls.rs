//! One call of a script: the command, to whom, and again where it is known that nothing has run.

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};
use tokio::time::Instant;

use super::Time;
use super::answer::{self, Answer};
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
/// How long keys live at least where time is given: virtual time may run slower than the server's.
const GIVEN_TIME_TTL_MS: u64 = 3_600_000;

/// The instant after so much time.
pub(super) fn within(time: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(time).unwrap_or(now)
}

/// Charges under way. Where the caller goes away before the answers come, nobody will know what became of them: dropping this
/// counts them.
#[derive(Debug)]
pub(super) struct UnderWay<'a> {
    metrics: &'a Metrics,
    charges: u64,
}

impl<'a> UnderWay<'a> {
    pub(super) fn new(core: &'a Core, charges: u64) -> Self {
        Self { metrics: &core.metrics, charges }
    }

    /// The answers are there.
    pub(super) fn answered(mut self) {
        self.charges = 0;
    }
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
    pub(super) metrics: Arc<Metrics>,
    /// When it was last said that Redis refused.
    pub(super) complained: parking_lot::Mutex<Option<Instant>>,
}

impl Core {
    pub(super) fn now(&self) -> Timestamp {
        match &self.time {
            Time::Server => SystemClock.now(),
            Time::Given(clock) => clock.now(),
        }
    }

    /// The slot of a counter; 0 where one node has all of them.
    pub(super) fn slot(&self, key: &CounterKey<'_>) -> u16 {
        if self.by_slot { slot_of(&key_of(&self.prefix, key)) } else { 0 }
    }

    /// Whether it was tried to reach the server of a slot.
    pub(super) fn is_tried(&self, slot: u16) -> bool {
        self.routes.has_searched() && self.routes.node(slot).is_none_or(|node| node.is_tried())
    }

    pub(super) fn is_down(&self, slot: u16) -> bool {
        self.routes.node(slot).is_none_or(|node| node.is_down())
    }

    /// Counts the charges that may have been written without anybody knowing.
    pub(super) fn count_unknown(&self, charges: u64, error: &StoreError) {
        if matches!(error, StoreError::Late | StoreError::Lost) {
            self.metrics.unknown_charges.inc_by(charges);
        }
    }

    /// Says why Redis refused, once in a while.
    fn complain(&self, text: &str) {
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
        question: Question,
        deadline: Instant,
    ) -> Result<Few<Answer>, StoreError> {
        let count = question.checks();
        let reply = self.run(slot, &question, deadline).await.map_err(|failure| {
            if let Failure::Refused(text) = &failure {
                self.complain(text);
            }
            StoreError::from(failure)
        })?;
        let Value::BulkString(reply) = reply else { return Err(StoreError::Refused) };
        let answers = answer::read(&reply, [count]).and_then(|mut requests| requests.pop());
        answers.ok_or(StoreError::Refused)
    }

    async fn run(&self, slot: u16, question: &Question, deadline: Instant) -> Result<Value, Failure> {
        let script = question.needs.script();
        let (mut by_name, mut asking, mut again) = (true, false, AGAIN);
        let mut node = self.routes.node(slot).ok_or(Failure::Unavailable)?;
        for _ in 0..ATTEMPTS {
            let command = if by_name {
                self.command("EVALSHA", &script.sha, question)
            } else {
                self.command("EVAL", &script.text, question)
            };
            let answer = match std::mem::take(&mut asking) {
                true => node.call_asking(&command, deadline).await,
                false => node.call(&command, deadline).await,
            };
            match answer {
                Err(Failure::NoScript) if by_name => by_name = false,
                Err(Failure::Moved(address)) => {
                    self.routes.doubt();
                    node = self.routes.node_at(&address.or_host_of(&node.address));
                }
                Err(Failure::Ask(address)) => {
                    asking = true;
                    node = self.routes.node_at(&address.or_host_of(&node.address));
                }
                Err(Failure::Again) if within(again) < deadline => {
                    self.routes.doubt();
                    tokio::time::sleep(again).await;
                    again = again.saturating_mul(2);
                    node = self.routes.node(slot).ok_or(Failure::Unavailable)?;
                }
                Err(failure) => {
                    self.routes.doubt();
                    return Err(failure);
                }
                Ok(value) => return Ok(value),
            }
        }
        Err(Failure::Again)
    }

    fn command(&self, name: &str, script: &str, question: &Question) -> Cmd {
        let mut command = redis::cmd(name);
        command.arg(script).arg(question.keys.len());
        for key in &question.keys {
            command.arg(key.as_slice());
        }
        match &self.time {
            Time::Server => command.arg("").arg(1),
            Time::Given(clock) => command.arg(clock.now().as_micros()).arg(GIVEN_TIME_TTL_MS),
        };
        command.arg(question.text.as_slice());
        command
    }
}
