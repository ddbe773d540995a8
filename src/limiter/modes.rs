//! Modes that a process applies to all its limits, whatever their policies.

use crate::algorithm::verdict::{Prior, Role};

/// The modes that a process applies to all its limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Modes {
    /// Global shadow mode: every request is admitted; only the statuses show denials.
    pub shadow: bool,
    /// Global quota mode: every descriptor votes, except unlimited ones, and a request is denied if
    /// all votes deny. A descriptor without a limit votes to admit.
    pub quota: bool,
}

impl Modes {
    /// Returns the role of a limit in these modes, given its own role.
    pub(super) fn role(self, role: Role) -> Role {
        match (role, self.quota) {
            (Role::Enforce, true) => Role::Quota,
            (Role::Shadow, true) => Role::QuotaShadow,
            (role, _) => role,
        }
    }

    /// Returns the decision on a request that is known before its limits are judged;
    /// `has_unmatched` if a descriptor of the request matches no rule.
    pub(super) fn prior(self, has_unmatched: bool) -> Prior {
        if self.shadow || (self.quota && has_unmatched) { Prior::Admitted } else { Prior::Open }
    }
}
