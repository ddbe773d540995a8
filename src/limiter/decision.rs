//! The decision on a request: the overall result, and a status per descriptor with its rule.

use super::target::{Imposed, Target};
use super::trial::Tried;
use crate::algorithm::judge::{Few, JudgedBy, Outcome};
use crate::algorithm::quota::Window;
use crate::algorithm::time::Micros;
use crate::algorithm::verdict::{Overall, Role};
use crate::algorithm::{Limit, OnStoreError};
use crate::descriptor::Keyed;
use crate::policy::Rule;
use crate::store::{Outcomes, StoreError};

/// The decision on a request.
#[derive(Debug)]
pub struct Decision<'a> {
    is_over_limit: bool,
    statuses: Few<Status<'a>>,
    tried: Vec<Tried<'a>>,
}

/// The status of one descriptor.
#[derive(Debug)]
pub struct Status<'a>(Kind<'a>);

#[derive(Debug)]
enum Kind<'a> {
    Nothing,
    Unlimited(&'a Rule),
    Limited {
        rule: Option<&'a Rule>,
        limit: Imposed<'a>,
        keyed: Option<&'a Keyed>,
        role: Role,
        outcome: Result<Outcome, StoreError>,
    },
}

/// The result of one descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
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

impl<'a> Decision<'a> {
    /// Creates a decision in which no descriptor has a limit.
    pub(super) fn unlimited(descriptors: usize) -> Self {
        Self {
            is_over_limit: false,
            statuses: (0..descriptors).map(|_| Status(Kind::Nothing)).collect(),
            tried: Vec::new(),
        }
    }

    /// Combines the targets with their roles, and the targets with a limit with the store's
    /// outcomes, in order.
    pub(super) fn new(overall: Overall, targets: Few<Target<'a>>, roles: Few<Role>, outcomes: Outcomes) -> Self {
        let mut outcomes = outcomes.into_iter();
        let status = |(target, role)| match target {
            Target::Nothing => Kind::Nothing,
            Target::Unlimited(rule) => Kind::Unlimited(rule),
            Target::Limited { rule, limit, keyed, .. } => {
                let outcome = outcomes.next().unwrap_or(Err(StoreError::Unreadable));
                Kind::Limited { rule, limit, keyed, role, outcome }
            }
        };
        let statuses = targets.into_iter().zip(roles).map(status).map(Status).collect();
        Self { is_over_limit: overall == Overall::Denied, statuses, tried: Vec::new() }
    }

    /// Adds the outcomes of candidate limits.
    pub(super) fn with_tried(self, tried: Vec<Tried<'a>>) -> Self {
        Self { tried, ..self }
    }

    /// Returns the outcomes of candidate limits, which do not affect the response.
    pub fn tried(&self) -> &[Tried<'a>] {
        &self.tried
    }

    /// Returns `true` if the response is OVER_LIMIT, and `false` if it is OK.
    pub fn is_over_limit(&self) -> bool {
        self.is_over_limit
    }

    /// Returns one status per descriptor, in order.
    pub fn statuses(&self) -> &[Status<'a>] {
        &self.statuses
    }
}

impl<'a> Status<'a> {
    /// Returns the rule behind the status; `None` without a rule, or if the request set the limit.
    pub fn rule(&self) -> Option<&'a Rule> {
        match &self.0 {
            Kind::Nothing => None,
            Kind::Unlimited(rule) => Some(rule),
            Kind::Limited { rule, .. } => *rule,
        }
    }

    /// Returns the result of the descriptor.
    pub fn standing(&self) -> Standing {
        let Kind::Limited { limit, role, outcome, .. } = &self.0 else {
            return match &self.0 {
                Kind::Unlimited(_) => Standing::Unlimited,
                Kind::Nothing | Kind::Limited { .. } => Standing::NoLimit,
            };
        };
        let is_shadow = matches!(role, Role::Shadow | Role::QuotaShadow);
        match (outcome, limit.limit().on_store_error()) {
            (Ok(outcome), _) if outcome.allowed => Standing::Allowed,
            (Ok(_), _) if is_shadow => Standing::ShadowDenied,
            (Ok(_), _) => Standing::Denied,
            (Err(_), OnStoreError::Deny) if !is_shadow => Standing::PresumedDenied,
            (Err(_), _) => Standing::PresumedAllowed,
        }
    }

    /// Returns the hasher for displayed values of the descriptor; `None` if they may be shown.
    pub fn keyed(&self) -> Option<&'a Keyed> {
        match &self.0 {
            Kind::Limited { keyed, .. } => *keyed,
            Kind::Nothing | Kind::Unlimited(_) => None,
        }
    }

    /// Returns `true` if the status is OVER_LIMIT.
    pub fn is_over_limit(&self) -> bool {
        matches!(self.standing(), Standing::Denied | Standing::PresumedDenied)
    }

    /// Returns `true` if the limit is in quota mode: its denial alone denies no request.
    pub fn is_vote(&self) -> bool {
        matches!(self.0, Kind::Limited { role: Role::Quota | Role::QuotaShadow, .. })
    }

    /// Returns the limit that applies with its binding window, if the limit was judged or denies.
    pub fn limit(&self) -> Option<(&Limit, &Window)> {
        let Kind::Limited { limit, outcome, .. } = &self.0 else { return None };
        let (limit, window) = (limit.limit(), outcome.as_ref().map_or(0, |outcome| outcome.report.window));
        let binding = limit.windows().get(usize::from(window))?;
        (self.standing() != Standing::PresumedAllowed).then_some((limit, binding))
    }

    /// Returns the remaining hits, 0 if over limit. `None` if unknown or without a limit.
    pub fn remaining(&self) -> Option<u64> {
        match (&self.0, self.standing()) {
            (_, Standing::Denied | Standing::ShadowDenied | Standing::PresumedDenied) => Some(0),
            (Kind::Limited { outcome: Ok(outcome), .. }, _) => Some(outcome.report.remaining),
            (Kind::Nothing | Kind::Unlimited(_) | Kind::Limited { .. }, _) => None,
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

    /// Returns the time until the end of the first window of a ban; `None` for every other limit.
    pub fn ban_window_ends_after(&self) -> Option<Micros> {
        self.outcome()?.report.ban_window_ends_after
    }

    /// Returns the time until these hits fit, if they do not; `None`: never, or unknown.
    pub(super) fn wait(&self) -> Option<Micros> {
        self.outcome().filter(|outcome| !outcome.allowed)?.report.retry_after
    }

    /// Returns `true` if a remembered denial decided, without a call to the store.
    pub fn is_remembered(&self) -> bool {
        self.outcome().is_some_and(|outcome| outcome.by == JudgedBy::Memory)
    }

    fn outcome(&self) -> Option<&Outcome> {
        match &self.0 {
            Kind::Limited { outcome, .. } => outcome.as_ref().ok(),
            Kind::Nothing | Kind::Unlimited(_) => None,
        }
    }
}
