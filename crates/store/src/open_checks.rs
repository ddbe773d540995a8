//! Requests of which some checks are judged and others are open: for other servers, or for this
//! process (`on_store_error: local`).

use tollgate_core::algorithm::OnStoreError;
use tollgate_core::algorithm::hold::HoldEffect;
use tollgate_core::algorithm::judge::{Few, Hits, Outcome};
use tollgate_core::algorithm::verdict::{Overall, Prior, Role, Verdict, combine};

use super::{Check, Outcomes, StoreError};

/// The outcome of a check; `None` if it has not been judged yet.
pub(super) type CheckOutcome = Option<Result<Outcome, StoreError>>;

/// The outcome of each check of a request.
pub(super) type CheckOutcomes = Few<CheckOutcome>;

/// Treatment of checks that the store failed to judge.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum StoreErrors {
    /// They stay failed.
    Final,
    /// This process decides those that it may.
    Open,
}

/// Returns the prior decision for those who have yet to judge, from the checks that have been
/// judged: `outcomes`, with `None` for those that are open.
///
/// `Denied` if the request is not admitted even if all open checks allow: nothing more is to be
/// charged for it.
pub(super) fn prior_of(
    checks: &[Check<'_>],
    outcomes: &[CheckOutcome],
    prior: Prior,
    errors: StoreErrors,
) -> Prior {
    let verdicts = checks.iter().zip(outcomes).map(|(check, outcome)| {
        let verdict = match (outcome, check.hits) {
            (Some(outcome), _) if errors == StoreErrors::Final || !is_left(check, outcome) => {
                check.verdict(outcome.as_ref())
            }
            (Some(_) | None, Hits::Refund(_)) => Verdict::Refund,
            (Some(_) | None, Hits::Charge(_) | Hits::Peek(_)) => Verdict::Allowed,
        };
        (check.role, verdict)
    });
    if combine(prior, verdicts) == Overall::Admitted { prior } else { Prior::Denied }
}

/// Returns `true` if a quota vote that has been judged passes: no other vote matters then.
pub(super) fn has_passing_vote(checks: &[Check<'_>], outcomes: &[CheckOutcome]) -> bool {
    checks.iter().zip(outcomes).any(|(check, outcome)| is_passing_vote(check, outcome))
}

fn is_passing_vote(check: &Check<'_>, outcome: &CheckOutcome) -> bool {
    let verdict = outcome.as_ref().map(|outcome| check.verdict(outcome.as_ref()));
    match (check.role, verdict) {
        (Role::Quota, Some(verdict)) => {
            matches!(verdict, Verdict::Allowed | Verdict::Unknown(OnStoreError::Allow))
        }
        (Role::QuotaShadow, Some(verdict)) => verdict != Verdict::Refund,
        (Role::Enforce | Role::Shadow, _) | (Role::Quota | Role::QuotaShadow, None) => false,
    }
}

/// Returns `true` for an operation on holds that the store does not have, or did not reach: this
/// process may have taken them alone.
pub(super) fn may_have_local_holds(
    check: &Check<'_>,
    outcome: &Result<Outcome, StoreError>,
) -> bool {
    let is_missing = match outcome {
        Ok(outcome) => matches!(outcome.hold, HoldEffect::Nothing | HoldEffect::Unknown { .. }),
        Err(_) => true,
    };
    is_missing && check.is_on_hold() && check.limit.on_store_error() == OnStoreError::Local
}

/// Returns `true` if the store failed for a check that this process may decide.
pub(super) fn is_left(check: &Check<'_>, outcome: &Result<Outcome, StoreError>) -> bool {
    outcome.is_err() && check.limit.on_store_error() == OnStoreError::Local && !check.is_on_hold()
}

/// Returns `true` if this process may decide a check, or an operation on holds, after the store.
pub(super) fn is_open(check: &Check<'_>, outcome: &Result<Outcome, StoreError>) -> bool {
    is_left(check, outcome) || may_have_local_holds(check, outcome)
}

/// Returns the outcome of each check; one that was not judged is unavailable.
pub(super) fn all_of(judged: CheckOutcomes) -> Outcomes {
    judged.into_iter().map(|outcome| outcome.unwrap_or(Err(StoreError::Unavailable))).collect()
}
