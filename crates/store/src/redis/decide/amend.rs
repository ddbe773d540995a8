//! Amendments of one counter by operators.

use std::sync::Arc;

use tokio::time::Instant;
use tollgate_core::algorithm::amend::{Amended, Amendment};

use super::plan;
use crate::redis::RedisStore;
use crate::redis::script::decode::ScriptReply;
use crate::redis::script::encode::ScriptRequest;
use crate::{Check, StoreError};

impl RedisStore {
    pub(super) async fn amend_one(
        &self,
        check: &Check<'_>,
        amendment: Amendment,
        deadline: Instant,
    ) -> Result<Amended, StoreError> {
        let groups = plan::groups(&[*check], &self.core, self.per_second.as_deref());
        self.begin(&groups, deadline).await;
        // A ban has no counter, and is in no group.
        let group = groups.first().ok_or(StoreError::Refused)?;
        let core = self.core_of(group);
        if core.is_down(group.slot) {
            return Err(StoreError::Unavailable);
        }
        let request =
            ScriptRequest::amend(&core.prefix, check, amendment, core.given_time(), core.now());
        match core.run(group.slot, Arc::new(request), deadline).await? {
            ScriptReply::Amended(amended) => amended.map(|amended| *amended),
            ScriptReply::Judged(_) | ScriptReply::Alone | ScriptReply::Beyond { .. } => {
                Err(StoreError::Refused)
            }
        }
    }
}
