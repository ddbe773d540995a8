//! The answer to a request: a status for each descriptor, the rule behind it, and what they come to.

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

/// How a descriptor stands with its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// No limit applies.
    NoLimit,
    /// A rule says that there is none.
    Unlimited,
    /// There was room.
    Allowed,
    /// There was none.
    Denied,
    /// There was none, and the rule only watches.
    ShadowDenied,
    /// The store failed; the limit lets pass, or the request was decided by another.
    PresumedAllowed,
    /// The store failed; the limit denies.
    PresumedDenied,
}

impl<'a> Decision<'a> {
    /// Every descriptor without a limit.
    pub(super) fn unlimited(descriptors: usize) -> Self {
        Self {
            is_over_limit: false,
            statuses: (0..descriptors).map(|_| Status(Kind::Nothing)).collect(),
            tried: Vec::new(),
        }
    }

    /// Puts a role for each target, and the store's outcomes, one for each target with a limit, to their targets.
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

    /// The same, with what came of limits that are tried out.
    pub(super) fn with_tried(self, tried: Vec<Tried<'a>>) -> Self {
        Self { tried, ..self }
    }

    /// What came of limits that are tried out; the answer knows nothing of it.
    pub fn tried(&self) -> &[Tried<'a>] {
        &self.tried
    }

    /// The answer: OVER_LIMIT, or OK.
    pub fn is_over_limit(&self) -> bool {
        self.is_over_limit
    }

    /// One status for each descriptor, in order.
    pub fn statuses(&self) -> &[Status<'a>] {
        &self.statuses
    }
}

impl<'a> Status<'a> {
    /// The rule behind the status; `None` for no rule, and for a limit that the request set itself.
    pub fn rule(&self) -> Option<&'a Rule> {
        match &self.0 {
            Kind::Nothing => None,
            Kind::Unlimited(rule) => Some(rule),
            Kind::Limited { rule, .. } => *rule,
        }
    }

    /// How the descriptor stands with its limit.
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

    /// What hashes the values of the descriptor where people read them; `None`: they may be read.
    pub fn keyed(&self) -> Option<&'a Keyed> {
        match &self.0 {
            Kind::Limited { keyed, .. } => *keyed,
            Kind::Nothing | Kind::Unlimited(_) => None,
        }
    }

    /// Whether the status is OVER_LIMIT.
    pub fn is_over_limit(&self) -> bool {
        matches!(self.standing(), Standing::Denied | Standing::PresumedDenied)
    }

    /// Whether the limit votes: its denial alone denies no request.
    pub fn is_vote(&self) -> bool {
        matches!(self.0, Kind::Limited { role: Role::Quota | Role::QuotaShadow, .. })
    }

    /// The limit that applies, and of its windows the one that binds, where the limit was judged or denies.
    pub fn limit(&self) -> Option<(&Limit, &Window)> {
        let Kind::Limited { limit, outcome, .. } = &self.0 else { return None };
        let (limit, window) = (limit.limit(), outcome.as_ref().map_or(0, |outcome| outcome.report.window));
        let binding = limit.windows().get(usize::from(window))?;
        (self.standing() != Standing::PresumedAllowed).then_some((limit, binding))
    }

    /// Hits left; 0 where over limit. `None` where that is not known or there is no limit.
    pub fn remaining(&self) -> Option<u64> {
        match (&self.0, self.standing()) {
            (_, Standing::Denied | Standing::ShadowDenied | Standing::PresumedDenied) => Some(0),
            (Kind::Limited { outcome: Ok(outcome), .. }, _) => Some(outcome.report.remaining),
            (Kind::Nothing | Kind::Unlimited(_) | Kind::Limited { .. }, _) => None,
        }
    }

    /// Hits that the counter has left, also where the status is over limit. `None` where that is not known or there is no limit.
    pub fn left(&self) -> Option<u64> {
        Some(self.outcome()?.report.remaining)
    }

    /// Time until the counter is as if never used.
    pub fn reset_after(&self) -> Option<Micros> {
        self.outcome()?.report.reset_after
    }

    /// Where over limit, the time until these hits would be admitted if nobody else came; `None`: never.
    pub fn retry_after(&self) -> Option<Micros> {
        self.outcome().filter(|_| self.is_over_limit())?.report.retry_after
    }

    /// The time until these hits would have room, where they have none; `None`: never, or not known.
    pub(super) fn wait(&self) -> Option<Micros> {
        self.outcome().filter(|outcome| !outcome.allowed)?.report.retry_after
    }

    /// Whether it was denied because a denial was remembered, without asking the store.
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
