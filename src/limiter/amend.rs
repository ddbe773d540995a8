//! Operator actions on one counter of a rule.

use std::time::Instant;

use super::Limiter;
use super::target::role_of;
use crate::algorithm::amend::{Amended, Amendment};
use crate::algorithm::judge::Hits;
use crate::algorithm::verdict::{Overall, Role, Verdict, combine};
use crate::descriptor::CounterKey;
use crate::policy::Rule;
use crate::store::{Check, Store, StoreError};

impl<S: Store> Limiter<S> {
    /// Amends the counter with this key, by the limit of its rule.
    ///
    /// # Errors
    /// If the store fails, or if there is no counter because the rule has no limit or is a ban.
    pub async fn amend(
        &self,
        rule: &Rule,
        key: CounterKey<'_>,
        amendment: Amendment,
        deadline: Instant,
    ) -> Result<Amended, StoreError> {
        let limit = rule.limit().filter(|limit| !limit.is_ban()).ok_or(StoreError::Refused)?;
        let check = Check {
            key,
            limit,
            hits: Hits::Peek(0),
            role: Role::Enforce,
            recorded: &[],
            lease: None,
            hold: None,
        };
        self.store.amend(&check, amendment, deadline).await
    }

    /// Returns `true` if a request that only this rule's limit judges is admitted even without
    /// room, because the rule or the process is in shadow mode.
    pub fn is_shadow(&self, rule: &Rule) -> bool {
        let role = self.modes.role(role_of(rule));
        combine(self.modes.prior(false), [(role, Verdict::Denied)]) == Overall::Admitted
    }
}
