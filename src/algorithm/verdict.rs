//! How the verdicts of several limits become one, and which of them are charged: two rules without state.
//!
//! A Redis script mirrors both; a table of them is tested against it.

use super::{Charge, OnStoreError};

/// A limit's part in the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Its denial denies the request.
    Enforce,
    /// It is judged and counted, and never denies.
    Shadow,
    /// It votes: the request is denied where all that vote deny.
    Quota,
    /// A rule in both modes: a vote that passes.
    QuotaShadow,
}

/// What one limit says of its hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// There is room.
    Allowed,
    /// There is none.
    Denied,
    /// Hits are given back: no vote.
    Refund,
    /// The store failed for this counter; the limit says what then.
    Unknown(OnStoreError),
}

/// What a layer above knows of the request already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Prior {
    /// Nothing: the limits decide.
    #[default]
    Open,
    /// It is denied.
    Denied,
    /// It is admitted whatever they say: global shadow mode.
    Admitted,
}

/// The verdict on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Overall {
    /// Admitted.
    Admitted,
    /// Over limit.
    Denied,
    /// Nobody decided: the call fails.
    Failed,
}

/// The verdict on a request, from those of its limits.
///
/// A certain denial of an enforced limit wins; else a limit that must not be guessed fails the request; else it is denied
/// where an enforced limit counts as denying, or where there are votes and all of them deny.
pub fn combine(prior: Prior, limits: impl IntoIterator<Item = (Role, Verdict)>) -> Overall {
    let (mut denied, mut failed, mut presumed, mut votes, mut passes) = (false, false, false, 0u32, 0u32);
    for (role, verdict) in limits {
        match (role, verdict) {
            (_, Verdict::Refund) => continue,
            (Role::Enforce, Verdict::Denied) => denied = true,
            (Role::Enforce, Verdict::Unknown(OnStoreError::Deny)) => presumed = true,
            // A rule that only watches must not be able to stop anybody, by failing neither.
            (Role::Enforce | Role::Quota, Verdict::Unknown(OnStoreError::Error | OnStoreError::Local)) => failed = true,
            (Role::Enforce | Role::Shadow | Role::Quota | Role::QuotaShadow, _) => {}
        }
        match (role, verdict) {
            (Role::Quota, Verdict::Denied | Verdict::Unknown(OnStoreError::Deny)) => votes = votes.saturating_add(1),
            (Role::Quota | Role::QuotaShadow, _) => passes = passes.saturating_add(1),
            (Role::Enforce | Role::Shadow, _) => {}
        }
    }
    let outvoted = votes > 0 && passes == 0;
    match prior {
        Prior::Denied => Overall::Denied,
        Prior::Admitted if failed => Overall::Failed,
        Prior::Admitted => Overall::Admitted,
        Prior::Open if denied => Overall::Denied,
        Prior::Open if failed => Overall::Failed,
        Prior::Open if presumed || outvoted => Overall::Denied,
        Prior::Open => Overall::Admitted,
    }
}

/// Whether a limit's hits are written, given its own verdict and that on the request.
pub fn charges(mode: Charge, allowed: bool, overall: Overall) -> bool {
    let admitted = overall == Overall::Admitted;
    match mode {
        Charge::Admitted => admitted && allowed,
        Charge::Blamed => admitted || !allowed,
        Charge::Always | Charge::Afterwards => true,
    }
}

/// Whether a later check of the same counter in the same request sees these hits: those that will be written for all that
/// is known before the other limits are judged.
pub fn is_seen(mode: Charge, allowed: bool) -> bool {
    charges(mode, allowed, Overall::Admitted)
}

#[cfg(test)]
mod tests {
    use super::Role::{Enforce, Quota, QuotaShadow, Shadow};
    use super::Verdict::{Allowed, Denied, Refund, Unknown};
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
    fn what_is_known_before_wins() {
        assert_eq!(combine(Prior::Admitted, [(Enforce, Denied)]), Overall::Admitted);
        assert_eq!(combine(Prior::Denied, [(Enforce, Allowed)]), Overall::Denied);
    }

    #[test]
    fn each_mode_writes_when_it_says() {
        let written = |mode| {
            [(true, Overall::Admitted), (true, Overall::Denied), (false, Overall::Admitted), (false, Overall::Denied)]
                .map(|(allowed, overall)| charges(mode, allowed, overall))
        };
        assert_eq!(written(Charge::Admitted), [true, false, false, false]);
        assert_eq!(written(Charge::Blamed), [true, false, true, true]);
        assert_eq!(written(Charge::Always), [true; 4]);
        assert_eq!(written(Charge::Afterwards), [true; 4]);
    }
}
