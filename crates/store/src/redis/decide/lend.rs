//! Leases: hits charged in advance, and the return of unused ones.

use std::sync::Arc;

use tokio::time::Instant;
use tollgate_core::algorithm::Receipt;
use tollgate_core::algorithm::judge::Hits;

use super::plan;
use crate::redis::RedisStore;
use crate::redis::script::encode::{Context, ScriptRequest};
use crate::{Check, Lender, Lent, StoreError};

impl Lender for RedisStore {
    async fn lend(
        &self,
        check: &Check<'_>,
        deadline: std::time::Instant,
    ) -> Result<Lent, StoreError> {
        if check.limit.is_ban() {
            // A ban has no counter, and is in no group.
            let outcome = plan::of_ban(check, self.core.now()).ok_or(StoreError::Refused)?;
            return Ok(Lent { report: outcome.report, receipt: None });
        }
        let checks = [*check];
        let deadline = Instant::from_std(deadline);
        let groups = plan::groups(&checks, &self.core, self.per_second.as_deref());
        self.begin(&groups, deadline).await;
        let group = groups.first().filter(|group| !self.core_of(group).is_down(group.slot));
        let group = group.ok_or(StoreError::Unavailable)?;
        // The reply to a part of a request has the instant of the charge.
        let context = Context { is_partial: true, ..Context::default() };
        let reply = self.call_group(&checks, group, context, deadline).await?;
        let answer =
            reply.judged().and_then(|mut answers| answers.pop()).ok_or(StoreError::Refused)?;
        let outcome = answer.outcome?;
        let receipt = match (check.hits, answer.written) {
            (Hits::Charge(hits), Some(at)) => {
                Some(Receipt { at, hits: hits.into(), of_grant: answer.of_grant })
            }
            (Hits::Charge(_) | Hits::Peek(_) | Hits::Refund(_), _) => None,
        };
        Ok(Lent { report: outcome.report, receipt })
    }

    async fn take_back(
        &self,
        check: &Check<'_>,
        receipt: Receipt,
        deadline: std::time::Instant,
    ) -> Result<(), StoreError> {
        for group in plan::groups(&[*check], &self.core, self.per_second.as_deref()) {
            let core = self.core_of(&group);
            let mut request = ScriptRequest::take_backs(core.given_time());
            request.take_back(&core.prefix, check, receipt, &[], core.now());
            let reply =
                core.run(group.slot, Arc::new(request), Instant::from_std(deadline)).await?;
            reply.judged().into_iter().flatten().try_for_each(|answer| answer.outcome.map(drop))?;
        }
        Ok(())
    }
}
