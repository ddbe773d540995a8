//! The status of a descriptor: what it is matched to, and the outcome of its limit.

use std::fmt;

use super::entries::FirstEntries;
use super::modes::Modes;
use super::target::{DescriptorTarget, operation};
use crate::algorithm::hold::{Hold, HoldEffect};
use crate::algorithm::judge::{Few, InlineVec, JudgedBy, Outcome};
use crate::algorithm::quota::Window;
use crate::algorithm::time::{Micros, Timestamp};
use crate::algorithm::verdict::Role;
use crate::algorithm::{Limit, OnStoreError};
use crate::descriptor::{Descriptor, KeyBuffer, Keyed, Request};
use crate::policy::Rule;
use crate::store::{Check, StoreError};
use crate::telemetry::metrics::Effect;

/// The status of one descriptor: what it is matched to, and the outcome of its limit.
#[derive(Debug)]
pub struct Status<'a> {
    target: DescriptorTarget<'a>,
    /// Role of the limit in the request.
    role: Role,
    /// `false` for an operation on existing holds, which denies nothing even if the store fails.
    has_vote: bool,
    /// Entries of the request that the rule records, as `key=value`.
    recorded: Vec<Vec<u8>>,
    /// Outcome of the limit; `None` until the store has judged it.
    outcome: Option<Result<Outcome, StoreError>>,
    /// Time that proxies receive for hits that are never admitted; set if these are such.
    never_hint: Option<Micros>,
}

/// The limit of a status, with the amount that binds.
#[derive(Clone, Copy, Debug)]
pub struct AppliedLimit<'a> {
    /// The limit.
    pub limit: &'a Limit,
    /// Amount of the binding window, or hits in flight.
    pub amount: u32,
    /// Period of the binding window; `None` for hits in flight.
    pub period: Option<Micros>,
}

/// The time that the caller of a limit waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CallerWait {
    /// Unknown: no store has judged the limit.
    Unknown,
    /// Until the hits are admitted without other traffic.
    For(Micros),
    /// They are never admitted. Has the time that proxies receive instead, if there is one.
    Never(Option<Micros>),
}

impl CallerWait {
    /// Returns the time, unless it is unknown or never over.
    pub fn time(self) -> Option<Micros> {
        match self {
            Self::For(time) => Some(time),
            Self::Unknown | Self::Never(_) => None,
        }
    }
}

/// The statuses of a request.
pub(super) type Statuses<'a> = InlineVec<Status<'a>>;

/// The kind of a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusKind {
    /// No limit applies.
    NoLimit,
    /// The rule is declared unlimited.
    Unlimited,
    /// The hits fit.
    Allowed,
    /// The hits do not fit.
    Denied,
    /// The hits do not fit, and the rule is in shadow mode.
    ShadowDenied,
    /// The store failed; the limit's failure mode allows, or another limit decided the request.
    PresumedAllowed,
    /// The store failed; the limit's failure mode denies.
    PresumedDenied,
}

impl fmt::Display for AppliedLimit<'_> {
    /// Formats as `5 per 250ms` or `10 in flight`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.period {
            Some(period) => write!(f, "{} per {period}", self.amount),
            None => write!(f, "{} in flight", self.amount),
        }
    }
}

impl<'a> Status<'a> {
    /// Creates the status of a descriptor whose limit is not judged yet. `modes`: those of the
    /// process.
    pub(super) fn of(target: DescriptorTarget<'a>, modes: Modes) -> Self {
        let role = modes.role(target.role());
        Self { target, role, has_vote: true, recorded: Vec::new(), outcome: None, never_hint: None }
    }

    /// Returns the status with a vote, or without one.
    pub(super) fn with_vote(self, has_vote: bool) -> Self {
        Self { has_vote, ..self }
    }

    /// Returns the target of the descriptor.
    pub(super) fn target(&self) -> &DescriptorTarget<'a> {
        &self.target
    }

    /// Returns the target of the descriptor, without its outcome.
    pub(super) fn into_target(self) -> DescriptorTarget<'a> {
        self.target
    }

    /// Removes the rule and its limit, because another rule of the request replaces them.
    pub(super) fn drop_target(&mut self) {
        self.target = DescriptorTarget::Nothing;
    }

    /// Sets the outcome of the limit.
    #[inline]
    pub(super) fn set_outcome(&mut self, outcome: Result<Outcome, StoreError>) {
        self.outcome = Some(outcome);
    }

    /// Sets the time that proxies receive for hits that are never admitted, if these are.
    #[inline]
    pub(super) fn set_never_hint(&mut self, now: impl Fn() -> Timestamp) {
        let Some(outcome) = self.outcome() else { return };
        if !outcome.allowed && outcome.report.retry_after.is_none() {
            self.never_hint = self.target.limit().and_then(|limit| limit.never_hint(now()));
        }
    }

    /// Keeps the entries of the request that the rule records.
    pub(super) fn record(&mut self, entries: &FirstEntries<'_, '_>) {
        self.recorded = self.target.recorded(entries);
    }

    /// Returns the entries of the request that the rule records, as `key=value`.
    pub(super) fn recorded(&self) -> &[Vec<u8>] {
        &self.recorded
    }

    /// Returns the check of the limit for the store, if there is one.
    pub(super) fn check<'c>(
        &'c self,
        request: &'c Request<'_>,
        descriptor: &'c Descriptor<'_>,
        keys: &'c KeyBuffer,
        in_one_slot: bool,
    ) -> Option<Check<'c>> {
        let key = keys.key(request.domain, self.target.key()?).in_one_slot(in_one_slot);
        let limit = self.target.limit()?;
        Some(Check {
            key,
            limit,
            hits: descriptor.hits,
            role: self.role,
            recorded: &self.recorded,
            lease: self.target.lease(),
            hold: operation(descriptor, limit),
        })
    }

    /// Returns the rule behind the status; `None` without a rule, or if the request set the limit.
    pub fn rule(&self) -> Option<&'a Rule> {
        self.target.rule()
    }

    /// Returns the kind of the status.
    pub fn kind(&self) -> StatusKind {
        let limit = match &self.target {
            DescriptorTarget::Nothing => return StatusKind::NoLimit,
            DescriptorTarget::Unlimited(_) => return StatusKind::Unlimited,
            DescriptorTarget::Limited { limit, .. } => limit.limit(),
        };
        match self.outcome() {
            Some(outcome) if outcome.allowed => StatusKind::Allowed,
            Some(_) if self.is_shadow() => StatusKind::ShadowDenied,
            Some(_) => StatusKind::Denied,
            None if self.denies_unchecked(limit) => StatusKind::PresumedDenied,
            None => StatusKind::PresumedAllowed,
        }
    }

    /// Returns the effect of a store error on the descriptor of a request that is decided.
    pub(super) fn effect_of_error(&self) -> Effect {
        let denies = self.target.limit().is_some_and(|limit| self.denies_unchecked(limit));
        if denies { Effect::Denied } else { Effect::Allowed }
    }

    fn denies_unchecked(&self, limit: &Limit) -> bool {
        limit.on_store_error() == OnStoreError::Deny && self.has_vote && !self.is_shadow()
    }

    fn is_shadow(&self) -> bool {
        matches!(self.role, Role::Shadow | Role::QuotaShadow)
    }

    /// Returns the hasher for displayed values of the descriptor; `None` if they may be shown.
    pub fn keyed(&self) -> Option<&'a Keyed> {
        self.target.keyed()
    }

    /// Returns `true` if the status is OVER_LIMIT.
    pub fn is_over_limit(&self) -> bool {
        matches!(self.kind(), StatusKind::Denied | StatusKind::PresumedDenied)
    }

    /// Returns `true` if the limit is in quota mode: its denial alone denies no request.
    pub fn is_vote(&self) -> bool {
        self.target.limit().is_some() && matches!(self.role, Role::Quota | Role::QuotaShadow)
    }

    /// Returns the limit that applies, with the amount that binds, if the limit was judged or
    /// denies.
    pub fn limit(&self) -> Option<AppliedLimit<'_>> {
        if self.kind() == StatusKind::PresumedAllowed {
            return None;
        }
        let limit = self.target.limit()?;
        let window = self.outcome().map_or(0, |outcome| outcome.report.window);
        let binding = limit.windows().get(usize::from(window));
        let amount = binding.map(Window::limit).or_else(|| limit.in_flight())?;
        Some(AppliedLimit { limit, amount, period: binding.map(Window::period) })
    }

    /// Returns the remaining hits, 0 if over limit. `None` if unknown or without a limit.
    pub fn remaining(&self) -> Option<u64> {
        match self.kind() {
            StatusKind::Denied | StatusKind::ShadowDenied | StatusKind::PresumedDenied => Some(0),
            StatusKind::Allowed | StatusKind::PresumedAllowed => self.left(),
            StatusKind::NoLimit | StatusKind::Unlimited => None,
        }
    }

    /// Returns the remaining hits of the counter, even if the status is over limit. `None` if
    /// unknown or without a limit.
    pub fn left(&self) -> Option<u64> {
        Some(self.outcome()?.report.remaining)
    }

    /// Returns the hits of a fixed window beyond its limit; 0 if unknown or not kept.
    pub(super) fn beyond(&self) -> u64 {
        self.outcome().map_or(0, |outcome| outcome.report.beyond)
    }

    /// Returns the time until the counter equals an unused one.
    pub fn reset_after(&self) -> Option<Micros> {
        self.outcome()?.report.reset_after
    }

    /// Returns the time until these hits are admitted without other traffic, if over limit; `None`
    /// for never, and if not over limit.
    pub fn retry_after(&self) -> Option<Micros> {
        self.outcome().filter(|_| self.is_over_limit())?.report.retry_after
    }

    /// Returns the time until these hits are admitted, if over limit.
    pub(super) fn wait(&self) -> CallerWait {
        match (self.outcome(), self.retry_after()) {
            (None, _) => CallerWait::Unknown,
            (Some(_), Some(time)) => CallerWait::For(time),
            (Some(_), None) => CallerWait::Never(self.never_hint),
        }
    }

    /// Returns the time until the counter resets, which that of a ban never does.
    pub(super) fn reset(&self) -> Option<CallerWait> {
        let reset = self.reset_after().map(CallerWait::For);
        reset.or_else(|| self.never_hint.map(|hint| CallerWait::Never(Some(hint))))
    }

    /// Returns the time until these hits fit, if they do not; `None`: never, or unknown.
    pub(super) fn time_until_fit(&self) -> Option<Micros> {
        self.outcome().filter(|outcome| !outcome.allowed)?.report.retry_after
    }

    /// Returns `true` if a cached denial decided, without a call to the store.
    pub fn is_cached(&self) -> bool {
        self.outcome().is_some_and(|outcome| outcome.by == JudgedBy::Memory)
    }

    /// Returns how the limit keeps holds; `None` if it does not, or without a limit.
    pub fn hold(&self) -> Option<Hold> {
        self.target.limit()?.hold()
    }

    /// Returns the effect of an operation on a hold; `None` if the limit was not judged.
    pub fn hold_effect(&self) -> Option<HoldEffect> {
        Some(self.outcome()?.hold)
    }

    pub(super) fn outcome(&self) -> Option<&Outcome> {
        self.outcome.as_ref()?.as_ref().ok()
    }
}

/// Drops the limits whose name another rule of the request replaces. Unlimited rules replace others
/// but are not replaced themselves; a replaced rule still replaces others.
pub(super) fn drop_replaced(statuses: &mut [Status<'_>]) {
    let rules = statuses.iter().filter_map(Status::rule);
    let mut replaced: Few<&str> = rules.flat_map(Rule::replaces).map(AsRef::as_ref).collect();
    if replaced.is_empty() {
        return;
    }
    replaced.sort_unstable();
    replaced.dedup();
    for status in statuses {
        if let DescriptorTarget::Limited { rule: Some(rule), .. } = status.target()
            && rule.name().is_some_and(|name| replaced.binary_search(&name).is_ok())
        {
            status.drop_target();
        }
    }
}

/// Keeps, in each status, the entries of the request that its rule records.
pub(super) fn record(statuses: &mut [Status<'_>], request: &Request<'_>) {
    let entries = FirstEntries::of(request);
    for status in statuses {
        if status.rule().is_some_and(|rule| !rule.record().is_empty()) {
            status.record(&entries);
        }
    }
}
