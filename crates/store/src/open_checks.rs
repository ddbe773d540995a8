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

#[cfg(test)]
mod tests {
    use tollgate_core::algorithm::hold::{HoldAction, HoldRequest};

    use tollgate_core::algorithm::{Charge, Limit};

    use super::*;
    use crate::tests::{self, fixed};

    const DOWN: CheckOutcome = Some(Err(StoreError::Unavailable));

    fn limit(on_store_error: OnStoreError) -> Limit {
        fixed(&[(4, 60)], Charge::Admitted, on_store_error)
    }

    fn check(limit: &Limit, role: Role) -> Check<'_> {
        Check { role, ..tests::check(b"a", limit) }
    }

    fn judged(allowed: bool) -> CheckOutcome {
        Some(Ok(tests::outcome(allowed, None)))
    }

    #[test]
    fn a_request_that_is_denied_whatever_open_checks_allow_is_denied_before_them() {
        let [error, local] = [OnStoreError::Error, OnStoreError::Local].map(limit);
        let refund = |role| Check { hits: Hits::Refund(1), ..check(&error, role) };
        use StoreErrors::{Final, Open};
        for (checks, outcomes, errors, is_denied) in [
            (vec![], vec![], Open, false),
            (vec![check(&error, Role::Enforce)], vec![None], Final, false),
            (vec![check(&error, Role::Enforce)], vec![judged(true)], Final, false),
            (vec![check(&error, Role::Enforce)], vec![judged(false)], Open, true),
            (vec![check(&error, Role::Shadow)], vec![judged(false)], Open, false),
            (vec![check(&error, Role::Enforce)], vec![DOWN], Open, true),
            (vec![check(&local, Role::Enforce)], vec![DOWN], Open, false),
            (vec![check(&local, Role::Enforce)], vec![DOWN], Final, true),
            (vec![check(&error, Role::Quota); 2], vec![judged(false), None], Open, false),
            (
                vec![check(&error, Role::Quota), refund(Role::Quota)],
                vec![judged(false), None],
                Open,
                true,
            ),
        ] {
            for prior in [Prior::Open, Prior::Denied] {
                let expected = if is_denied { Prior::Denied } else { prior };
                let found = prior_of(&checks, &outcomes, prior, errors);
                assert_eq!(found, expected, "{checks:?} {outcomes:?}");
            }
        }
    }

    #[test]
    fn a_vote_passes_by_an_allowance_or_in_shadow_mode() {
        let [error, allow, deny] =
            [OnStoreError::Error, OnStoreError::Allow, OnStoreError::Deny].map(limit);
        let vote = |limit| check(limit, Role::Quota);
        let in_shadow = check(&error, Role::QuotaShadow);
        for (check, outcome, passes) in [
            (vote(&error), judged(true), true),
            (vote(&error), judged(false), false),
            (vote(&error), None, false),
            (vote(&error), DOWN, false),
            (vote(&deny), DOWN, false),
            (vote(&allow), DOWN, true),
            (in_shadow, judged(false), true),
            (in_shadow, DOWN, true),
            (in_shadow, None, false),
            (Check { hits: Hits::Refund(1), ..in_shadow }, judged(true), false),
            (check(&error, Role::Enforce), judged(true), false),
            (check(&error, Role::Shadow), judged(true), false),
        ] {
            assert_eq!(has_passing_vote(&[check], &[outcome]), passes, "{check:?} {outcome:?}");
        }
        let [denied, allowed] = [judged(false), judged(true)];
        assert!(has_passing_vote(&[vote(&error); 2], &[denied, allowed]));
    }

    #[test]
    fn this_process_may_decide_what_the_store_failed_to_and_end_what_it_does_not_have() {
        let [error, local] = [OnStoreError::Error, OnStoreError::Local].map(limit);
        let [reserve, settle] = [HoldAction::Reserve, HoldAction::Settle]
            .map(|action| HoldRequest { id: b"r", action, ttl: None });
        let plain = |limit| check(limit, Role::Enforce);
        let on_hold = |limit| Check { hold: Some(&settle), hits: Hits::Refund(0), ..plain(limit) };
        let with = |hold| {
            let outcome = judged(true).and_then(Result::ok);
            outcome.map(|outcome| Ok(Outcome { hold, ..outcome }))
        };
        for (check, outcome, left, ends) in [
            (plain(&local), DOWN, true, false),
            (plain(&error), DOWN, false, false),
            (plain(&local), judged(true), false, false),
            (Check { hold: Some(&reserve), ..plain(&local) }, DOWN, true, false),
            (on_hold(&local), DOWN, false, true),
            (on_hold(&error), DOWN, false, false),
            (on_hold(&local), with(HoldEffect::Nothing), false, true),
            (on_hold(&local), with(HoldEffect::Unknown { cost: 1 }), false, true),
            (on_hold(&local), with(HoldEffect::Settled), false, false),
        ] {
            let outcome = outcome.unwrap();
            let found = [is_left(&check, &outcome), may_have_local_holds(&check, &outcome)];
            assert_eq!(found, [left, ends], "{check:?} {outcome:?}");
            assert_eq!(is_open(&check, &outcome), left || ends);
        }
    }
}
