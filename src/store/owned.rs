//! An owned copy of a check that outlives its request.

use super::Check;
use crate::algorithm::Limit;
use crate::algorithm::judge::Hits;
use crate::algorithm::lease::Lease;
use crate::algorithm::verdict::Role;
use crate::descriptor::OwnedKey;

/// An owned [`Check`].
#[derive(Clone, Debug)]
pub(super) struct OwnedCheck {
    domain: Box<str>,
    key: OwnedKey,
    pub(super) limit: Limit,
    pub(super) hits: Hits,
    pub(super) role: Role,
    recorded: Vec<Vec<u8>>,
    lease: Option<Lease>,
}

impl OwnedCheck {
    pub(super) fn of(check: &Check<'_>) -> Self {
        Self {
            domain: check.key.domain().into(),
            key: check.key.into(),
            limit: check.limit.clone(),
            hits: check.hits,
            role: check.role,
            recorded: check.recorded.to_vec(),
            lease: check.lease,
        }
    }

    pub(super) fn check(&self) -> Check<'_> {
        Check {
            key: self.key.within(&self.domain),
            limit: &self.limit,
            hits: self.hits,
            role: self.role,
            recorded: &self.recorded,
            lease: self.lease,
        }
    }
}
