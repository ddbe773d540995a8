//! What a process makes of all its limits, whatever the policies say of each.

use super::target::Target;
use crate::algorithm::judge::Few;
use crate::algorithm::verdict::{Prior, Role};

/// What a process makes of all its limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Modes {
    /// Every request is admitted, and only the statuses tell what would have been.
    pub shadow: bool,
    /// Every descriptor votes, but for unlimited ones: a request is denied where all votes deny. Without a limit, that is a
    /// vote to admit.
    pub quota: bool,
}

impl Modes {
    /// What is known of a request before its limits are judged.
    pub(super) fn prior(self, targets: &[Target<'_>]) -> Prior {
        let is_free = |target: &Target<'_>| matches!(target, Target::Nothing);
        match self.shadow || (self.quota && targets.iter().any(is_free)) {
            true => Prior::Admitted,
            false => Prior::Open,
        }
    }

    /// What each target's verdict means for the request.
    pub(super) fn roles(self, targets: &[Target<'_>]) -> Few<Role> {
        targets.iter().map(|target| self.role(target.role())).collect()
    }

    /// What a verdict means for the request, by the role that the limit has without these modes.
    pub(super) fn role(self, role: Role) -> Role {
        match (role, self.quota) {
            (Role::Enforce, true) => Role::Quota,
            (Role::Shadow, true) => Role::QuotaShadow,
            (role, _) => role,
        }
    }
}
