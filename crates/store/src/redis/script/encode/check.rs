//! Encodes the checks of requests, and changes of single counters.

use smallvec::SmallVec;
use tollgate_core::algorithm::amend::Amendment;
use tollgate_core::algorithm::judge::{Few, Hits};
use tollgate_core::algorithm::time::{Micros, Timestamp};
use tollgate_core::algorithm::verdict::{Overall, Prior, Role, Verdict, charges, combine, is_seen};
use tollgate_core::algorithm::{OnStoreError, Receipt};

use super::cost::CHANGE_US;
use super::holds::operation;
use super::{Context, MAX_EXACT, ScriptRequest};
use crate::Check;
use crate::loan::LoanReturn;
use crate::redis::script::key::{RedisKey, hold_key_of, key_of, loan_key_of};
use crate::redis::script::{ScriptNeeds, number_of};

/// Cases in which hits are written, one bit each; or the flag of a refund.
const WHERE_ALLOWED: u8 = 1;
const WHERE_DENIED: u8 = 2;
const REFUND: u8 = 4;
/// Changes by number, after those of operators.
const TAKE_BACK: u8 = 4;
const TAKE_BACK_OF_GRANT: u8 = 5;
const RETURN_LOAN: u8 = 6;
/// Flags in the number of an algorithm or a change: entries are recorded, the limit keeps holds.
const RECORDS: u8 = 64;
const HOLDS: u8 = 128;
/// Flags in a prior: other slots judge the rest of the request, checks name the same counter.
const PARTIAL: u8 = 4;
const REPEATS: u8 = 8;

impl ScriptRequest {
    /// Encodes a request that consists of this check only. `now` approximates the server's time,
    /// for calendars.
    pub(in crate::redis) fn alone(
        prefix: &[u8],
        check: &Check<'_>,
        prior: Prior,
        given: Option<Timestamp>,
        now: Timestamp,
    ) -> Self {
        let mut request = Self::of(given, SmallVec::new(), SmallVec::new(), ScriptNeeds::DECIDE);
        let cases = writes(check, |verdict| combine(prior, [(check.role, verdict)]));
        request.check(prefix, check, &[cases], now);
        request
    }

    /// Encodes the checks of a request in one slot.
    pub(in crate::redis) fn several<'a>(
        prefix: &[u8],
        checks: impl ExactSizeIterator<Item = &'a Check<'a>>,
        context: Context,
        given: Option<Timestamp>,
        now: Timestamp,
    ) -> Self {
        let partial = if context.is_partial { PARTIAL } else { 0 };
        let text = SmallVec::from_slice(&[0, prior_number(context.prior) | partial]);
        let mut request = Self::of(given, SmallVec::new(), text, ScriptNeeds::DECIDE);
        request.put(checks.len() as u64, 4);
        for check in checks {
            let admitted = writes(check, |_| Overall::Admitted);
            let denied = writes(check, |_| Overall::Denied);
            let role = role_number(check, context.has_fallback);
            request.check(prefix, check, &[admitted, denied, role], now);
        }
        request.needs.add_several();
        if request.has_repeats()
            && let Some(flags) = request.text.get_mut(1)
        {
            *flags |= REPEATS;
            request.needs.add_repeats();
        }
        request
    }

    /// Encodes the change of a counter by an operator.
    pub(in crate::redis) fn amend(
        prefix: &[u8],
        check: &Check<'_>,
        amendment: Amendment,
        given: Option<Timestamp>,
        now: Timestamp,
    ) -> Self {
        let (kind, hits, length) = match amendment {
            Amendment::Look => (0, 0, Micros::ZERO),
            Amendment::Reset => (1, 0, Micros::ZERO),
            Amendment::Refund(hits) => (2, hits, Micros::ZERO),
            Amendment::Grant { hits, length } => (3, hits, length),
        };
        let mut request = Self::take_backs(given);
        let change = CounterChange {
            kind,
            hits,
            at: length.get().min(MAX_EXACT),
            ..CounterChange::default()
        };
        request.change(prefix, check, change, now);
        request
    }

    /// Creates a request that takes charges back, without any.
    pub(in crate::redis) fn take_backs(given: Option<Timestamp>) -> Self {
        Self::of(given, SmallVec::new(), SmallVec::new(), ScriptNeeds::AMEND)
    }

    /// Adds a charge to take back. `undo`: data from the reply to the charge; may be empty.
    pub(in crate::redis) fn take_back(
        &mut self,
        prefix: &[u8],
        check: &Check<'_>,
        receipt: Receipt,
        undo: &[u8],
        now: Timestamp,
    ) {
        let kind = if receipt.of_grant { TAKE_BACK_OF_GRANT } else { TAKE_BACK };
        let hits = u32::try_from(receipt.hits).unwrap_or(u32::MAX);
        let entries = check.recorded;
        let at = receipt.at.as_micros();
        let change = CounterChange { kind, hits, at, undo, entries, kept_for: None };
        self.change(prefix, check, change, now);
    }

    /// Adds a loan that is returned. Its hits are never from a grant.
    pub(in crate::redis) fn return_loan(
        &mut self,
        prefix: &[u8],
        check: &Check<'_>,
        returned: &LoanReturn,
        now: Timestamp,
    ) {
        let change = CounterChange {
            kind: RETURN_LOAN,
            hits: u32::try_from(returned.unused.hits).unwrap_or(u32::MAX),
            at: returned.unused.at.as_micros(),
            kept_for: Some(returned.kept_for()),
            ..CounterChange::default()
        };
        self.change(prefix, check, change, now);
        self.keys.push(loan_key_of(prefix, &check.key, &returned.number));
    }

    /// Appends a check, with the `cases` in which its hits are written.
    fn check(&mut self, prefix: &[u8], check: &Check<'_>, cases: &[u8], now: Timestamp) {
        let is_charge = matches!(check.hits, Hits::Charge(_)) && !check.is_on_hold();
        // A cost without a hold is tallied, too.
        let is_commit = check.hold.is_some_and(|hold| hold.action.cost().is_some());
        let entries = if is_charge || is_commit { check.recorded } else { &[] };
        let flags = self.counter(prefix, check, entries);
        self.text.push(number_of(check.limit) | flags);
        self.text.extend_from_slice(cases);
        self.put(hits_of(check).into(), 4);
        self.entries(entries);
        self.hold(check);
        self.parameters(check.limit, now);
    }

    /// Appends the change of a counter.
    fn change(
        &mut self,
        prefix: &[u8],
        check: &Check<'_>,
        change: CounterChange<'_>,
        now: Timestamp,
    ) {
        let flags = self.counter(prefix, check, change.entries);
        self.text.extend([change.kind | flags, number_of(check.limit)]);
        self.put(change.hits.into(), 4);
        self.put(change.at, 7);
        self.entries(change.entries);
        if change.kind >= TAKE_BACK {
            self.put(change.undo.len() as u64, 2);
            self.text.extend_from_slice(change.undo);
        }
        if let Some(kept_for) = change.kept_for {
            self.put(kept_for.get(), 7);
        }
        self.hold(check);
        self.parameters(check.limit, now);
        self.cost_us = self.cost_us.saturating_add(CHANGE_US);
    }

    /// Adds the keys of a check's counter. Returns the flags of the check.
    fn counter(&mut self, prefix: &[u8], check: &Check<'_>, entries: &[Vec<u8>]) -> u8 {
        self.checks = self.checks.saturating_add(1);
        self.keys.push(key_of(prefix, &check.key));
        let records = if entries.is_empty() { 0 } else { RECORDS };
        if check.limit.hold().is_none() {
            return records;
        }
        self.needs.add_holds();
        self.keys.push(hold_key_of(prefix, &check.key));
        records | HOLDS
    }

    /// Appends the entries that a check records, with their length, if there are any.
    #[allow(clippy::arithmetic_side_effects, reason = "lengths of what is in memory")]
    fn entries(&mut self, entries: &[Vec<u8>]) {
        if entries.is_empty() {
            return;
        }
        // Their number takes a byte, and the length of each two.
        let length = 1 + entries.iter().map(|entry| 2 + entry.len()).sum::<usize>();
        self.put(length as u64, 4);
        self.put(entries.len() as u64, 1);
        for entry in entries {
            self.put(entry.len() as u64, 2);
            self.text.extend_from_slice(entry);
        }
    }

    /// Returns `true` if checks name the same counter.
    fn has_repeats(&self) -> bool {
        let mut keys: Few<&RedisKey> = self.keys.iter().collect();
        keys.sort_unstable();
        keys.windows(2).any(|pair| matches!(pair, [one, other] if one == other))
    }
}

/// The change of one counter.
#[derive(Clone, Copy, Debug, Default)]
struct CounterChange<'a> {
    kind: u8,
    hits: u32,
    /// The duration of a grant in microseconds, or the instant of a charge to take back.
    at: u64,
    /// Data from the reply to a charge for taking it back.
    undo: &'a [u8],
    entries: &'a [Vec<u8>],
    /// The time for which a loan can be returned.
    kept_for: Option<Micros>,
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
    let mode = check.limit.charge_mode();
    match check.hits {
        Hits::Charge(_) => {
            cases(|verdict| charges(mode, verdict == Verdict::Allowed, overall(verdict)))
        }
        Hits::Peek(_) => 0,
        Hits::Refund(_) => REFUND,
    }
}

fn cases(is_written: impl Fn(Verdict) -> bool) -> u8 {
    let allowed = if is_written(Verdict::Allowed) { WHERE_ALLOWED } else { 0 };
    let denied = if is_written(Verdict::Denied) { WHERE_DENIED } else { 0 };
    allowed | denied
}

/// Returns the number of a prior in the scripts.
fn prior_number(prior: Prior) -> u8 {
    match prior {
        Prior::Open => 0,
        Prior::Denied => 1,
        Prior::Admitted => 2,
    }
}

/// Returns the number of a check's role in the scripts, with that of its `on_store_error`, and the
/// cases in which later checks of its counter see a peek.
fn role_number(check: &Check<'_>, has_fallback: bool) -> u8 {
    let has_vote = check.hits != Hits::Refund(0) && !check.is_on_hold();
    let role = match check.role {
        _ if !has_vote => 1,
        Role::Enforce => 0,
        Role::Shadow => 1,
        Role::Quota => 2,
        Role::QuotaShadow => 3,
    };
    let on_error = match check.limit.on_store_error() {
        OnStoreError::Allow => 1,
        OnStoreError::Deny => 2,
        OnStoreError::Local if has_fallback => 3,
        OnStoreError::Error | OnStoreError::Local => 0,
    };
    let mode = check.limit.charge_mode();
    let seen = match check.hits {
        Hits::Peek(1..) => cases(|verdict| is_seen(mode, verdict == Verdict::Allowed)),
        Hits::Charge(_) | Hits::Peek(0) | Hits::Refund(_) => 0,
    };
    role | on_error << 2 | seen << 4
}
