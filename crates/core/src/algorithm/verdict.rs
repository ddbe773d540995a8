//! Combining the verdicts of several limits, and selecting the limits to charge.
//!
//! Both rules are stateless. A Redis script implements both; a table of them is tested against it.

use super::{Charge, OnStoreError};

/// The role of a limit in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Its denial denies the request.
    Enforce,
    /// Judged and counted, but never denies (shadow mode).
    Shadow,
    /// A vote in quota mode: the request is denied if all votes deny.
    Quota,
    /// Shadow and quota mode on one rule: a vote that passes.
    QuotaShadow,
}

/// The verdict of one limit on its hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// The hits fit.
    Allowed,
    /// The hits do not fit.
    Denied,
    /// The ID of a reserve has other holds, which denies the request whatever the limit's role.
    Conflict,
    /// A refund, which has no vote.
    Refund,
    /// The store failed for this counter; the limit's failure mode applies.
    Unknown(OnStoreError),
}

/// A decision on the request that a layer above has already made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Prior {
    /// None: the limits decide.
    #[default]
    Open,
    /// Denied.
    Denied,
    /// Admitted whatever the limits decide: global shadow mode.
    Admitted,
}

/// The decision on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Overall {
    /// Admitted.
    Admitted,
    /// Over limit.
    Denied,
    /// No decision: the call fails.
    Failed,
}

/// Combines the verdicts of the limits into the decision on the request.
///
/// A certain denial of an enforced limit wins. Else, a limit whose decision must not be guessed
/// fails the request. Else, the request is denied if an enforced limit counts as denying, or if
/// there are votes and all of them deny.
pub fn combine(prior: Prior, limits: impl IntoIterator<Item = (Role, Verdict)>) -> Overall {
    let mut denied = false;
    let mut failed = false;
    let mut presumed = false;
    let mut conflicts = false;
    let mut votes = 0u32;
    let mut passes = 0u32;
    for (role, verdict) in limits {
        conflicts |= verdict == Verdict::Conflict;
        match (role, verdict) {
            (_, Verdict::Refund) => continue,
            (Role::Enforce, Verdict::Denied) => denied = true,
            (Role::Enforce, Verdict::Unknown(OnStoreError::Deny)) => presumed = true,
            // A limit in shadow mode must never stop a request, not even by failing.
            (
                Role::Enforce | Role::Quota,
                Verdict::Unknown(OnStoreError::Error | OnStoreError::Local),
            ) => failed = true,
            (Role::Enforce | Role::Shadow | Role::Quota | Role::QuotaShadow, _) => {}
        }
        match (role, verdict) {
            (Role::Quota, Verdict::Denied | Verdict::Unknown(OnStoreError::Deny)) => {
                votes = votes.saturating_add(1)
            }
            (Role::Quota | Role::QuotaShadow, _) => passes = passes.saturating_add(1),
            (Role::Enforce | Role::Shadow, _) => {}
        }
    }
    let outvoted = votes > 0 && passes == 0;
    match prior {
        Prior::Denied => Overall::Denied,
        Prior::Open | Prior::Admitted if conflicts => Overall::Denied,
        Prior::Admitted if failed => Overall::Failed,
        Prior::Admitted => Overall::Admitted,
        Prior::Open if denied => Overall::Denied,
        Prior::Open if failed => Overall::Failed,
        Prior::Open if presumed || outvoted => Overall::Denied,
        Prior::Open => Overall::Admitted,
    }
}

/// Returns `true` if a limit's hits are written, given its own verdict and the overall decision.
pub fn charges(mode: Charge, allowed: bool, overall: Overall) -> bool {
    let admitted = overall == Overall::Admitted;
    match mode {
        Charge::Admitted => admitted && allowed,
        Charge::Blamed => admitted || !allowed,
        Charge::Always | Charge::Afterwards => true,
    }
}

/// Returns `true` if a later check of the same counter in the same request counts these hits: those
/// that are written as far as is known before the other limits are judged.
pub fn is_seen(mode: Charge, allowed: bool) -> bool {
    charges(mode, allowed, Overall::Admitted)
}

#[cfg(test)]
mod tests {
    use super::Role::{Enforce, Quota, QuotaShadow, Shadow};
    use super::Verdict::{Allowed, Conflict, Denied, Refund, Unknown};
    use super::*;

    fn open(limits: &[(Role, Verdict)]) -> Overall {
        combine(Prior::Open, limits.iter().copied())
    }

    #[test]
    fn a_request_is_denied_iff_an_enforced_limit_denies_or_every_vote_does() {
        assert_eq!(open(&[]), Overall::Admitted);
        assert_eq!(open(&[(Enforce, Allowed), (Enforce, Denied)]), Overall::Denied);
        assert_eq!(open(&[(Shadow, Denied)]), Overall::Admitted);
        assert_eq!(open(&[(Quota, Denied), (Enforce, Allowed)]), Overall::Denied);
        assert_eq!(open(&[(Quota, Denied), (Quota, Allowed)]), Overall::Admitted);
        assert_eq!(open(&[(Quota, Denied), (QuotaShadow, Denied)]), Overall::Admitted);
        assert_eq!(open(&[(Quota, Denied), (Quota, Refund)]), Overall::Denied);
    }

    #[test]
    fn a_certain_denial_wins_over_a_failed_store_and_that_over_a_guess() {
        use OnStoreError::{Allow, Deny, Error, Local};
        assert_eq!(open(&[(Enforce, Unknown(Error)), (Enforce, Denied)]), Overall::Denied);
        assert_eq!(open(&[(Enforce, Unknown(Error)), (Enforce, Unknown(Deny))]), Overall::Failed);
        assert_eq!(open(&[(Enforce, Unknown(Local))]), Overall::Failed);
        assert_eq!(open(&[(Enforce, Unknown(Deny)), (Enforce, Allowed)]), Overall::Denied);
        assert_eq!(open(&[(Enforce, Unknown(Allow))]), Overall::Admitted);
        assert_eq!(open(&[(Shadow, Unknown(Error))]), Overall::Admitted);
        assert_eq!(open(&[(Quota, Unknown(Deny))]), Overall::Denied);
    }

    #[test]
    fn a_prior_decision_wins_except_over_a_conflict_and_a_failed_store() {
        assert_eq!(combine(Prior::Admitted, [(Enforce, Denied)]), Overall::Admitted);
        let failed = Unknown(OnStoreError::Error);
        assert_eq!(combine(Prior::Admitted, [(Enforce, failed)]), Overall::Failed);
        for role in [Enforce, Shadow, Quota, QuotaShadow] {
            assert_eq!(combine(Prior::Admitted, [(role, Conflict)]), Overall::Denied);
            assert_eq!(open(&[(role, Conflict), (Quota, Allowed)]), Overall::Denied);
        }
        assert_eq!(combine(Prior::Denied, [(Enforce, Allowed)]), Overall::Denied);
    }

    #[test]
    fn each_charge_mode_writes_when_it_should() {
        let written = |mode| {
            [
                (true, Overall::Admitted),
                (true, Overall::Denied),
                (false, Overall::Admitted),
                (false, Overall::Denied),
            ]
            .map(|(allowed, overall)| charges(mode, allowed, overall))
        };
        assert_eq!(written(Charge::Admitted), [true, false, false, false]);
        assert_eq!(written(Charge::Blamed), [true, false, true, true]);
        assert_eq!(written(Charge::Always), [true; 4]);
        assert_eq!(written(Charge::Afterwards), [true; 4]);
    }
}
