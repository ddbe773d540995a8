//! Take-backs: charges that turned out not to be due are undone by receipt, after the reply to the
//! caller.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::RedisStore;
use super::calls::{Core, within};
use super::encode::{Context, ScriptRequest, Undo, Wanted};
use super::plan::Group;
use crate::algorithm::Receipt;
use crate::store::background::until_sent;
use crate::store::{Check, StoreError};

/// Maximum time to retry a take-back.
const PATIENCE: Duration = Duration::from_secs(2);

impl RedisStore {
    /// Undoes charges of one slot in the background.
    pub(super) fn undo<'a>(&self, group: &Group, charges: impl IntoIterator<Item = (&'a Check<'a>, Receipt, Undo)>) {
        let core = self.core_of(group);
        let mut question = ScriptRequest::new(Context::default(), core.given());
        for (check, receipt, undo) in charges {
            question.add(&core.prefix, check, Wanted::TakeBack(receipt, undo), core.now());
        }
        let count = u64::from(question.checks);
        if count == 0 {
            return;
        }
        core.metrics.take_backs.inc_by(count);
        let asking = Arc::clone(core);
        let slot = group.slot;
        let begun = self.background.spawn(async move {
            let question = Arc::new(question);
            let deadline = within(PATIENCE);
            let undone = until_sent(deadline.into_std(), || asking.undo(slot, &question, deadline)).await;
            if undone.is_err() {
                asking.metrics.take_backs_lost.inc_by(count);
            }
        });
        if !begun {
            core.metrics.take_backs_lost.inc_by(count);
        }
    }
}

impl Core {
    async fn undo(&self, slot: u16, question: &Arc<ScriptRequest>, deadline: Instant) -> Result<(), StoreError> {
        let answers = self.ask(slot, Arc::clone(question), deadline).await?.judged().ok_or(StoreError::Refused)?;
        answers.into_iter().try_for_each(|answer| answer.outcome.map(drop))
    }
}
