//! Take-backs: charges that turned out not to be due are taken back by receipt, after the reply to
//! the caller; those of holds before it, so that a repeated reserve does not find the record of a
//! charge that is about to be taken back.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::Instant;
use tollgate_core::algorithm::Receipt;

use super::plan::Group;
use crate::background::until_sent;
use crate::redis::RedisStore;
use crate::redis::calls::{Core, within};
use crate::redis::script::encode::ScriptRequest;
use crate::{Check, StoreError};

/// The end of a take-back, successful or not.
pub(super) type TakenBack = oneshot::Receiver<()>;

/// Maximum time to retry a take-back.
const REPLY_TIMEOUT: Duration = Duration::from_secs(2);

impl RedisStore {
    /// Takes back charges of one slot in the background, each with what its reply had for this.
    /// Returns the end of that if holds are among them.
    pub(super) fn take_back_later<'a>(
        &self,
        group: &Group,
        charges: impl IntoIterator<Item = (&'a Check<'a>, Receipt, Vec<u8>)>,
    ) -> Option<TakenBack> {
        let core = self.core_of(group);
        let mut request = ScriptRequest::take_backs(core.given_time());
        let mut has_holds = false;
        for (check, receipt, undo) in charges {
            has_holds |= check.hold.is_some();
            request.take_back(&core.prefix, check, receipt, &undo, core.now());
        }
        let count = u64::from(request.checks);
        if count == 0 {
            return None;
        }
        core.metrics.take_backs.inc_by(count);
        let shared = Arc::clone(core);
        let slot = group.slot;
        let (ended, taken_back) = oneshot::channel::<()>();
        let begun = self.background.spawn(async move {
            // Dropped at the end of the task.
            let _ended = ended;
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
        has_holds.then_some(taken_back)
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
            .run(slot, Arc::clone(request), deadline)
            .await?
            .judged()
            .ok_or(StoreError::Refused)?;
        answers.into_iter().try_for_each(|answer| answer.outcome.map(drop))
    }
}
