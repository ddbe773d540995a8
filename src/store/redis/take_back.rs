//! Take-backs: charges that turned out not to be due are taken back by receipt, after the reply to
//! the caller.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::RedisStore;
use super::calls::{Core, within};
use super::plan::Group;
use super::script::encode::{Context, ScriptRequest, Undo, Wanted};
use crate::algorithm::Receipt;
use crate::store::background::until_sent;
use crate::store::{Check, StoreError};

/// Maximum time to retry a take-back.
const REPLY_TIMEOUT: Duration = Duration::from_secs(2);

impl RedisStore {
    /// Takes back charges of one slot in the background.
    pub(super) fn take_back_later<'a>(
        &self,
        group: &Group,
        charges: impl IntoIterator<Item = (&'a Check<'a>, Receipt, Undo)>,
    ) {
        let core = self.core_of(group);
        let mut request = ScriptRequest::new(Context::default(), core.given());
        for (check, receipt, undo) in charges {
            request.add(&core.prefix, check, Wanted::TakeBack(receipt, undo), core.now());
        }
        let count = u64::from(request.checks);
        if count == 0 {
            return;
        }
        core.metrics.take_backs.inc_by(count);
        let shared = Arc::clone(core);
        let slot = group.slot;
        let begun = self.background.spawn(async move {
            let request = Arc::new(request);
            let deadline = within(REPLY_TIMEOUT);
            let undone =
                until_sent(deadline.into_std(), || shared.take_back(slot, &request, deadline))
                    .await;
            if undone.is_err() {
                shared.metrics.take_backs_lost.inc_by(count);
            }
        });
        if !begun {
            core.metrics.take_backs_lost.inc_by(count);
        }
    }
}

impl Core {
    async fn take_back(
        &self,
        slot: u16,
        request: &Arc<ScriptRequest>,
        deadline: Instant,
    ) -> Result<(), StoreError> {
        let answers = self
            .ask(slot, Arc::clone(request), deadline)
            .await?
            .judged()
            .ok_or(StoreError::Refused)?;
        answers.into_iter().try_for_each(|answer| answer.outcome.map(drop))
    }
}
