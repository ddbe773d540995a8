//! An owned copy of a check that outlives its request.

use tollgate_core::algorithm::Limit;
use tollgate_core::algorithm::hold::{HoldAction, HoldRequest};
use tollgate_core::algorithm::judge::Hits;
use tollgate_core::algorithm::lease::Lease;
use tollgate_core::algorithm::time::Micros;
use tollgate_core::algorithm::verdict::Role;
use tollgate_core::descriptor::OwnedKey;

use crate::Check;

/// An owned [`Check`].
#[derive(Clone, Debug)]
pub struct OwnedCheck {
    domain: Box<str>,
    key: OwnedKey,
    /// As in the check.
    pub limit: Limit,
    /// As in the check.
    pub hits: Hits,
    /// As in the check.
    pub role: Role,
    recorded: Vec<Vec<u8>>,
    lease: Option<Lease>,
    hold: Option<(Box<[u8]>, HoldAction, Option<Micros>)>,
}

impl OwnedCheck {
    /// Copies a check.
    pub fn of(check: &Check<'_>) -> Self {
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
    pub fn hold(&self) -> Option<HoldRequest<'_>> {
        let (id, action, ttl) = self.hold.as_ref()?;
        Some(HoldRequest { id, action: *action, ttl: *ttl })
    }

    /// Returns the check, without its operation on a hold.
    pub fn check(&self) -> Check<'_> {
        self.check_with(None)
    }

    /// Returns the check with an operation on a hold.
    pub fn check_with<'a>(&'a self, hold: Option<&'a HoldRequest<'a>>) -> Check<'a> {
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
