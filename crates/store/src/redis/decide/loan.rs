//! Returns of loans: a script keeps the number of the loan and takes its unused hits back in one
//! step.

use std::sync::Arc;

use tokio::time::Instant;

use super::plan;
use crate::loan::{LoanReturn, Returned};
use crate::redis::RedisStore;
use crate::redis::script::encode::ScriptRequest;
use crate::{Check, StoreError};

/// Number in a reply to a return that was accepted before.
const REPEATED: u64 = 1;

impl RedisStore {
    pub(in crate::redis) async fn return_one(
        &self,
        check: &Check<'_>,
        returned: &LoanReturn,
        deadline: Instant,
    ) -> Result<Returned, StoreError> {
        let groups = plan::groups(&[*check], &self.core, self.per_second.as_deref());
        self.begin(&groups, deadline).await;
        // A ban has no counter, and is in no group.
        let group = groups.first().ok_or(StoreError::Refused)?;
        let core = self.core_of(group);
        // The two keys could be at different servers.
        if core.is_sharded() {
            return Err(StoreError::Refused);
        }
        let mut request = ScriptRequest::take_backs(core.given_time());
        request.return_loan(&core.prefix, check, returned, core.now());
        let reply = core.run(group.slot, Arc::new(request), deadline).await?;
        let answer = reply.judged().and_then(|mut answers| answers.pop());
        let outcome = answer.ok_or(StoreError::Refused)?.outcome?;
        Ok(match outcome.report.remaining {
            _ if outcome.allowed => Returned::Accepted,
            REPEATED => Returned::Repeated,
            _ => Returned::Late,
        })
    }
}
