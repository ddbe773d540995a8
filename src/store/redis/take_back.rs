//! Charges that turned out not to be owed: undone by receipt, after the caller has been answered.

use std::sync::Arc;
use std::time::Duration;

use super::answer::Said;
use super::calls::{Core, within};
use super::question::{Question, Undo, Wanted};
use crate::algorithm::Receipt;
use crate::algorithm::verdict::Prior;
use crate::store::Check;
use crate::store::background::Background;

/// How long one is tried.
const PATIENCE: Duration = Duration::from_secs(2);

/// What has to be undone.
#[derive(Debug, Default)]
pub(super) struct TakeBacks(Background);

impl TakeBacks {
    /// Undoes charges of one slot in the background.
    pub(super) fn add<'a>(
        &self,
        core: &Arc<Core>,
        slot: u16,
        charges: impl IntoIterator<Item = (&'a Check<'a>, Receipt, Undo)>,
    ) {
        let mut question = Question::new(Prior::Open, false, core.given());
        for (check, receipt, undo) in charges {
            question.add(&core.prefix, check, Wanted::TakeBack(receipt, undo), core.now());
        }
        let count = u64::from(question.checks);
        if count == 0 {
            return;
        }
        core.metrics.take_backs.inc_by(count);
        let asking = Arc::clone(core);
        let begun = self.0.spawn(async move {
            let undone = asking.ask(slot, question, within(PATIENCE)).await;
            let all_ok =
                |said: Said| said.judged().is_some_and(|answers| answers.iter().all(|answer| answer.outcome.is_ok()));
            if !undone.is_ok_and(all_ok) {
                asking.metrics.take_backs_lost.inc_by(count);
            }
        });
        if !begun {
            core.metrics.take_backs_lost.inc_by(count);
        }
    }

    /// Waits until none is under way.
    pub(super) async fn settled(&self) {
        self.0.settled().await;
    }
}
