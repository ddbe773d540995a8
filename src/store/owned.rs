//! An owned copy of a check that outlives its request.

use super::Check;
use crate::algorithm::Limit;
use crate::algorithm::hold::{HoldAction, HoldRequest};
use crate::algorithm::judge::Hits;
use crate::algorithm::lease::Lease;
use crate::algorithm::time::Micros;
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
    hold: Option<(Box<[u8]>, HoldAction, Option<Micros>)>,
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
            hold: check.hold.map(|hold| (hold.id.into(), hold.action, hold.ttl)),
        }
    }

    /// Returns the operation on a hold, to be passed to [`check_with`](Self::check_with).
    pub(super) fn hold(&self) -> Option<HoldRequest<'_>> {
        let (id, action, ttl) = self.hold.as_ref()?;
        Some(HoldRequest { id, action: *action, ttl: *ttl })
    }

    /// Returns the check, without its operation on a hold.
    pub(super) fn check(&self) -> Check<'_> {
        self.check_with(None)
    }

    pub(super) fn check_with<'a>(&'a self, hold: Option<&'a HoldRequest<'a>>) -> Check<'a> {
        Check {
            key: self.key.within(&self.domain),
            limit: &self.limit,
            hits: self.hits,
            role: self.role,
            recorded: &self.recorded,
            lease: self.lease,
            hold,
        }
    }
}
