//! What people do to one counter of a rule.

use std::time::Instant;

use super::Limiter;
use super::target::role_of;
use crate::algorithm::amend::{Amended, Amendment};
use crate::algorithm::judge::Hits;
use crate::algorithm::verdict::{Overall, Role, Verdict, combine};
use crate::descriptor::CounterKey;
use crate::policy::{Imposes, Rule};
use crate::store::{Check, Store, StoreError};

impl<S: Store> Limiter<S> {
    /// Does something to the counter with this key, by the limit of its rule.
    ///
    /// # Errors
    /// Where the store cannot, or there is no counter: the rule has no limit, or a ban, which counts nothing.
    pub async fn amend(
        &self,
        rule: &Rule,
        key: CounterKey<'_>,
        amendment: Amendment,
        deadline: Instant,
    ) -> Result<Amended, StoreError> {
        let Imposes::Limit(limit) = rule.imposes() else { return Err(StoreError::Refused) };
        if limit.is_ban() {
            return Err(StoreError::Refused);
        }
        let check = Check { key, limit, hits: Hits::Peek(0), role: Role::Enforce, recorded: &[], lease: None };
        self.store.amend(&check, amendment, deadline).await
    }

    /// Returns true if a request that only this rule's limit judges is admitted also if there is no room for it: the rule or the
    /// process is in shadow mode.
    pub fn is_shadow(&self, rule: &Rule) -> bool {
        let role = self.modes.role(role_of(rule));
        combine(self.modes.prior(&[]), [(role, Verdict::Denied)]) == Overall::Admitted
    }
}
