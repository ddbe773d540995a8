//! The fast path: requests encoded for `lua/fast/decide.lua`, which supports everything but rare
//! cases.
//!
//! A check of a limit that keeps holds must be decided in one slot, record no entries, and be
//! frequent (`lua/fast/holds.lua`). A request that names a counter twice must be decided in one
//! slot too, record nothing and hold nothing, except that a commit takes the settle of its ID
//! along. `lua/decide.lua` supports all of them.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use smallvec::SmallVec;
use tokio::time::Instant;

use super::plan::Group;
use crate::algorithm::hold::HoldEffect;
use crate::algorithm::judge::{Few, Hits, Outcome};
use crate::algorithm::time::Timestamp;
use crate::algorithm::verdict::{Overall, Prior, Role, Verdict, charges, combine};
use crate::algorithm::{Algorithm, Limit};
use crate::store::redis::RedisStore;
use crate::store::redis::script::encode::{
    Context, ScriptRequest, operation, prior_number, role_number,
};
use crate::store::redis::script::key::{RedisKey, hold_key_of, key_of};
use crate::store::redis::script::{ScriptNeeds, number_of};
use crate::store::{Check, Outcomes, StoreError};

/// Cases in which hits are written, one bit each; or the flag of a refund.
const WHERE_ALLOWED: u8 = 1;
const WHERE_DENIED: u8 = 2;
const REFUND: u8 = 4;
/// Flags in the number of an algorithm: entries are recorded, the limit keeps holds.
const RECORDS: u8 = 64;
const HOLDS: u8 = 128;
/// Flags in a prior: other slots judge the rest of the request, checks name the same counter.
const PARTIAL: u8 = 4;
const REPEATS: u8 = 8;

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
        let mut request = Self::of(given, SmallVec::new(), SmallVec::new(), ScriptNeeds::FAST);
        let overall = |verdict| combine(prior, [(check.role, verdict)]);
        let key = key_of(prefix, &check.key);
        request.fast_check(prefix, key, check, &[writes(check, overall)], now)?;
        Some(request)
    }

    /// Encodes the checks of a request in one slot; returns `None` if the fast path does not
    /// support all of them together.
    pub(super) fn fast<'a>(
        prefix: &[u8],
        checks: impl ExactSizeIterator<Item = &'a Check<'a>>,
        context: Context,
        given: Option<Timestamp>,
        now: Timestamp,
    ) -> Option<Self> {
        let count = u16::try_from(checks.len()).ok()?;
        let prior = prior_number(context.prior);
        let text =
            SmallVec::from_slice(&[0, if context.is_partial { prior | PARTIAL } else { prior }]);
        let mut request = Self::of(given, SmallVec::new(), text, ScriptNeeds::FAST);
        request.put(count.into(), 4);
        let mut repeats = false;
        let mut in_turn = true;
        for check in checks {
            let key = key_of(prefix, &check.key);
            repeats |= request.index(&key).is_some();
            in_turn &= check.limit.hold().is_none()
                && records(check) == 0
                && !matches!(check.hits, Hits::Peek(1..));
            // What a reserve changed is not known well enough to be undone.
            if context.is_partial && check.limit.hold().is_some() {
                return None;
            }
            let has_vote = !matches!(check.hits, Hits::Refund(_)) && !check.is_on_hold();
            let role = role_number(if has_vote { check.role } else { Role::Shadow });
            let admitted = writes(check, |_| Overall::Admitted);
            let denied = writes(check, |_| Overall::Denied);
            request.fast_check(prefix, key, check, &[admitted, denied, role], now)?;
        }
        if repeats {
            *request.text.get_mut(1)? |= REPEATS;
        }
        (!repeats || in_turn && !context.is_partial).then_some(request)
    }

    /// Appends a check of the counter at `key`, with the `cases` in which its hits are written;
    /// returns `None` if the fast path does not support it.
    fn fast_check(
        &mut self,
        prefix: &[u8],
        key: RedisKey,
        check: &Check<'_>,
        cases: &[u8],
        now: Timestamp,
    ) -> Option<()> {
        self.keys.push(key);
        self.checks = self.checks.saturating_add(1);
        let hold = check.limit.hold();
        if hold.is_some() {
            let refunds = matches!(check.hits, Hits::Refund(1..)) && refunds_holds(check.limit);
            if refunds || !check.recorded.is_empty() || check.limit.is_ban() {
                return None;
            }
            self.keys.push(hold_key_of(prefix, &check.key));
        }
        let flag = if hold.is_some() { HOLDS } else { 0 };
        self.text.push(number_of(check.limit) | records(check) | flag);
        self.text.extend_from_slice(cases);
        self.put(hits_of(check).into(), 4);
        self.fast_records(check);
        if let Some(hold) = hold {
            self.fast_hold(check, hold)?;
        }
        self.parameters(check.limit, now);
        Some(())
    }

    /// Appends the entries that a check records, with their length.
    fn fast_records(&mut self, check: &Check<'_>) {
        if records(check) == 0 {
            return;
        }
        let bytes = check.recorded.iter().map(|entry| entry.len().saturating_add(2));
        let length = bytes.fold(1, usize::saturating_add);
        self.put(u64::try_from(length).unwrap_or(u64::MAX), 4);
        self.recorded(check.recorded);
    }
}

/// Returns the flag of a check that records entries, if it does: peeks and refunds are not tallied.
fn records(check: &Check<'_>) -> u8 {
    let is_recorded = !check.recorded.is_empty() && matches!(check.hits, Hits::Charge(_));
    if is_recorded { RECORDS } else { 0 }
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

/// Returns the hits of a check to judge, or to refund, or the cost of a commit.
fn hits_of(check: &Check<'_>) -> u32 {
    match check.hits {
        _ if check.is_on_hold() => operation(check).1,
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
