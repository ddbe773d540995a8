//! Hits charged in advance, and those of them that come back.

use tokio::time::Instant;

use super::question::{Question, Undo, Wanted};
use super::{RedisStore, plan};
use crate::algorithm::Receipt;
use crate::algorithm::judge::{Few, Hits};
use crate::algorithm::verdict::Prior;
use crate::store::{Check, Lender, Lent, StoreError};

impl Lender for RedisStore {
    async fn lend(&self, check: &Check<'_>, deadline: std::time::Instant) -> Result<Lent, StoreError> {
        if check.limit.is_ban() {
            // A ban has no counter, and is in no group.
            let outcome = plan::of_ban(check, self.core.now()).ok_or(StoreError::Refused)?;
            return Ok(Lent { report: outcome.report, receipt: None });
        }
        let (checks, deadline) = ([*check], Instant::from_std(deadline));
        let groups = plan::groups(&checks, &self.core, self.per_second.as_deref());
        self.begin(&groups, deadline).await;
        if groups.iter().any(|group| self.core_of(group).is_down(group.slot)) {
            return Err(StoreError::Unavailable);
        }
        let mut judged: Few<plan::Judged> = checks.iter().map(|_| None).collect();
        let known = self.ask_at_once(&checks, groups, (Prior::Open, false), deadline, &mut judged).await;
        let outcome = judged.pop().flatten().unwrap_or(Err(StoreError::Unavailable))?;
        let answer = known.first().and_then(|(_, answers)| answers.first());
        let receipt = |hits| {
            let answer = answer?;
            Some(Receipt { at: answer.written?, hits, of_grant: answer.of_grant })
        };
        let receipt = match check.hits {
            Hits::Charge(hits) => receipt(hits.into()),
            Hits::Peek(_) | Hits::Refund(_) => None,
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
            let mut question = Question::new(Prior::Open, false, core.given());
            question.add(&core.prefix, check, Wanted::TakeBack(receipt, Undo::default()), core.now());
            let said = core.ask(group.slot, question, Instant::from_std(deadline)).await?;
            said.judged().into_iter().flatten().try_for_each(|answer| answer.outcome.map(drop))?;
        }
        Ok(())
    }
}
