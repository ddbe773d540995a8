//! The fast path: requests encoded for `lua/fast/decide.lua`, which supports everything but rare
//! cases.
//!
//! Not supported are limits that record entries, and a counter that occurs twice in a request,
//! except that a commit takes the settle of its ID along. A check of a limit that keeps holds must
//! decide alone, and be frequent (`lua/fast/holds.lua`). Not supported counters are those with
//! tallies, a grant or a reset, and those whose value is wide or was written under another amount.
//! `lua/decide.lua` supports all of them.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use smallvec::SmallVec;
use tokio::time::Instant;

use super::RedisStore;
use super::plan::Group;
use super::script::encode::{Context, MAX_EXACT, ScriptRequest};
use super::script::key::key_of;
use super::script::{ONE_FIXED_WINDOW, ScriptNeeds, fast_number_of};
use crate::algorithm::gcra::{Backlog, Gcra};
use crate::algorithm::hold::HoldEffect;
use crate::algorithm::judge::{Few, Hits, Outcome};
use crate::algorithm::quota::Window;
use crate::algorithm::time::Timestamp;
use crate::algorithm::verdict::{Overall, Prior, Role, Verdict, charges, combine};
use crate::algorithm::{Algorithm, Limit};
use crate::store::{Check, Outcomes, StoreError};

/// Server time in microseconds, as measured: of any check; of each window of a sliding window; of a
/// log, plus one for each [`LOG_HITS_A_US`] hits of its limit.
const CHECK_US: u32 = 4;
const SLIDING_US: u32 = 5;
const LOG_US: u32 = 6;
const LOG_HITS_A_US: u32 = 50;
/// Bits shared by the backlog and its amount in the short form of a gcra value.
const ROOM_BITS: u32 = 31;
/// Cases in which hits are written, one bit each; or the flag of a refund.
const WHERE_ALLOWED: u8 = 1;
const WHERE_DENIED: u8 = 2;
const REFUND: u8 = 4;
/// Flag in a prior: other slots judge the rest of the request.
const PARTIAL: u8 = 4;

impl RedisStore {
    /// Decides the only check of a request. Returns `None` if its server is down, or if the fast
    /// path does not support the check.
    pub(super) fn decide_alone(
        &self,
        check: &Check<'_>,
        prior: Prior,
        deadline: Instant,
    ) -> impl Future<Output = Option<Result<Outcome, StoreError>>> + Send {
        async move {
            if check.is_ban() {
                return None;
            }
            let per_second = check.limit.is_of_a_second();
            let core = self.core_for(per_second);
            let slot = core.slot(&check.key);
            if !self.has_begun() {
                self.begin_alone(per_second, slot, deadline).await;
            }
            let request =
                ScriptRequest::alone(&core.prefix, check, prior, core.given(), core.now())?;
            if core.is_down(slot) {
                return None;
            }
            let charges = u64::from(matches!(check.hits, Hits::Charge(_)));
            match core.ask_to_charge(slot, Arc::new(request), charges, deadline).await {
                Ok(reply) => reply.judged()?.pop().map(|answer| answer.outcome),
                Err(error) => Some(Err(error)),
            }
        }
    }

    /// Waits until a connection to the server of a slot was attempted. Boxed, since it is only
    /// needed at startup.
    fn begin_alone(&self, per_second: bool, slot: u16, deadline: Instant) -> BoxFuture<'_, ()> {
        let group = Group { per_second, slot, checks: Few::from_slice(&[0]) };
        Box::pin(async move { self.begin(&[group], deadline).await })
    }
}

impl ScriptRequest {
    /// Encodes a request that consists of this check only; returns `None` if the fast path does not
    /// support it. `now` approximates the server's time, for calendars.
    fn alone(
        prefix: &[u8],
        check: &Check<'_>,
        prior: Prior,
        given: Option<Timestamp>,
        now: Timestamp,
    ) -> Option<Self> {
        let keys = SmallVec::from_buf([key_of(prefix, &check.key)]);
        let mut request =
            Self { checks: 1, ..Self::of(given, keys, SmallVec::new(), ScriptNeeds::FAST) };
        let overall = |verdict| combine(prior, [(check.role, verdict)]);
        let writes = writes(check, overall);
        match check.limit.hold() {
            _ if !check.recorded.is_empty() => return None,
            None => {
                let hits = hits_of(check);
                request.text.extend([fast_number_of(check.limit), writes]);
                request.put(hits.into(), 4);
                request.fast_parameters(check.limit, hits, now);
            }
            Some(_) if matches!(check.hits, Hits::Refund(1..)) && refunds_holds(check.limit) => {
                return None;
            }
            Some(hold) => request.fast_hold(prefix, check, hold, writes, now)?,
        }
        Some(request)
    }

    /// Encodes the checks of a request in one slot; returns `None` if the fast path does not
    /// support all of them.
    pub(super) fn fast<'a>(
        prefix: &[u8],
        checks: impl ExactSizeIterator<Item = &'a Check<'a>>,
        context: Context,
        given: Option<Timestamp>,
        now: Timestamp,
    ) -> Option<Self> {
        let count = u16::try_from(checks.len()).ok()?;
        let prior = match context.prior {
            Prior::Open => 0,
            Prior::Denied => 1,
            Prior::Admitted => 2,
        };
        let text =
            SmallVec::from_slice(&[0, if context.is_partial { prior | PARTIAL } else { prior }]);
        let mut request = Self::of(given, SmallVec::new(), text, ScriptNeeds::FAST);
        request.put(count.into(), 4);
        for check in checks {
            let known = request.keys.len();
            request.key(key_of(prefix, &check.key));
            let is_known = request.keys.len() == known;
            if is_known || !check.recorded.is_empty() || check.limit.hold().is_some() {
                return None;
            }
            let role = match (check.hits, check.role) {
                (Hits::Refund(_), _) | (_, Role::Shadow) => 1,
                (_, Role::Enforce) => 0,
                (_, Role::Quota) => 2,
                (_, Role::QuotaShadow) => 3,
            };
            let admitted = writes(check, |_| Overall::Admitted);
            let denied = writes(check, |_| Overall::Denied);
            let hits = hits_of(check);
            request.text.extend([fast_number_of(check.limit), admitted, denied, role]);
            request.put(hits.into(), 4);
            request.fast_parameters(check.limit, hits, now);
        }
        request.checks = count;
        Some(request)
    }

    /// Appends the parameters of an algorithm to judge these hits.
    pub(super) fn fast_parameters(&mut self, limit: &Limit, hits: u32, now: Timestamp) {
        let number = fast_number_of(limit);
        self.needs.add(number);
        self.cost_us = self.cost_us.saturating_add(cost_us(limit));
        match (limit.algorithm(), limit.windows()) {
            (Algorithm::Gcra(algorithm), [window]) => self.rate(algorithm, window, hits),
            (Algorithm::FixedWindow(_), [window]) if number == ONE_FIXED_WINDOW => {
                self.put(window.limit().into(), 4);
                self.put(window.period().get(), 7);
            }
            (
                Algorithm::FixedWindow(_)
                | Algorithm::SlidingWindow(_)
                | Algorithm::SlidingLog(_)
                | Algorithm::Gcra(_)
                | Algorithm::Concurrency(_),
                _,
            ) => self.parameters(limit, now),
        }
    }

    /// Appends the parameters of a rate.
    fn rate(&mut self, algorithm: &Gcra, window: &Window, hits: u32) {
        let constants = algorithm.constants();
        let burst = algorithm.burst();
        let limit = u64::from(window.limit());
        let Backlog { whole, part } = constants.one;
        let of_hits = algorithm.cost(hits.into());
        self.put(limit, 4);
        self.put(constants.parts.into(), 4);
        self.put(whole.saturating_mul(constants.parts.into()).saturating_add(part.into()), 7);
        self.put(burst.into(), 4);
        self.backlog(Backlog { whole: of_hits.whole.min(MAX_EXACT), ..of_hits });
        self.backlog(algorithm.cost(burst.saturating_sub(hits).into()));
        self.backlog(constants.deepest);
        let length = limit.checked_ilog2().map_or(0, |bits| bits.saturating_add(1));
        let bound = ROOM_BITS.checked_sub(length).map_or(0, |bits| 1u64 << bits);
        self.put((u64::from(length) << ROOM_BITS) | limit.saturating_mul(bound), 5);
        self.put(bound, 4);
    }
}

/// Returns the check that a request consists of: its only one, or a commit beside the settle of its
/// ID, which does nothing.
pub(super) fn only_change<'a, 'c>(checks: &'a [Check<'c>]) -> Option<&'a Check<'c>> {
    match checks {
        [check] => Some(check),
        [commit, settle] | [settle, commit] if supersedes(commit, settle) => Some(commit),
        _ => None,
    }
}

/// Returns `true` if `commit` changes a hold of the counter of which `settle` only wants a report.
fn supersedes(commit: &Check<'_>, settle: &Check<'_>) -> bool {
    commit.is_on_hold()
        && settle.hold.is_none()
        && settle.hits == Hits::Refund(0)
        && std::ptr::eq(commit.limit, settle.limit)
        && commit.key == settle.key
}

/// Returns the outcomes of a request's checks, given that of its [`only_change`].
pub(super) fn outcomes_of(checks: &[Check<'_>], outcome: Result<Outcome, StoreError>) -> Outcomes {
    if let [_] = checks {
        return Outcomes::from_iter([outcome]);
    }
    let of = |check: &Check<'_>| match &outcome {
        Ok(outcome) if !check.is_on_hold() => Ok(Outcome { hold: HoldEffect::Nothing, ..*outcome }),
        outcome => *outcome,
    };
    checks.iter().map(of).collect()
}

/// Returns `true` if a refund under a limit that keeps holds changes more than the hits: marks or
/// slots.
fn refunds_holds(limit: &Limit) -> bool {
    match limit.algorithm() {
        Algorithm::FixedWindow(_) | Algorithm::SlidingWindow(_) | Algorithm::SlidingLog(_) => false,
        Algorithm::Gcra(_) | Algorithm::Concurrency(_) => true,
    }
}

/// Returns the hits of a check to judge, or to refund.
fn hits_of(check: &Check<'_>) -> u32 {
    match check.hits {
        Hits::Refund(hits) => hits,
        Hits::Charge(_) | Hits::Peek(_) => {
            check.hits.needs(check.limit.charge_mode()).unwrap_or_default()
        }
    }
}

/// Returns the cases in which the hits of a check are written; `overall` returns the request's
/// verdict, given that of the check.
fn writes(check: &Check<'_>, overall: impl Fn(Verdict) -> Overall) -> u8 {
    let is_written =
        |verdict| charges(check.limit.charge_mode(), verdict == Verdict::Allowed, overall(verdict));
    let bit = |verdict, bit| if is_written(verdict) { bit } else { 0 };
    match check.hits {
        Hits::Charge(_) => {
            bit(Verdict::Allowed, WHERE_ALLOWED) | bit(Verdict::Denied, WHERE_DENIED)
        }
        Hits::Peek(_) => 0,
        Hits::Refund(_) => REFUND,
    }
}

/// Returns the server time of a check in microseconds.
fn cost_us(limit: &Limit) -> u32 {
    let windows = u32::try_from(limit.windows().len()).unwrap_or(u32::MAX);
    match limit.algorithm() {
        Algorithm::FixedWindow(_) | Algorithm::Gcra(_) => CHECK_US,
        // Every slot is read.
        Algorithm::Concurrency(slots) => CHECK_US.saturating_add(slots.in_flight()),
        Algorithm::SlidingWindow(_) => windows.saturating_mul(SLIDING_US),
        Algorithm::SlidingLog(_) => {
            let most = limit.windows().iter().map(Window::limit).max().unwrap_or_default();
            LOG_US.saturating_add(most.checked_div(LOG_HITS_A_US).unwrap_or_default())
        }
    }
}
