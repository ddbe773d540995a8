//! Charges that turned out not to be owed: undone by receipt, after the caller has been answered.

use std::sync::Arc;
use std::time::Duration;

use super::calls::{Core, within};
use super::question::{Question, Undo, Wanted};
use crate::algorithm::Receipt;
use crate::algorithm::verdict::Prior;
use crate::store::Check;
use crate::store::background::Background;

/// How long one is tried.
const PATIENCE: Duration = Duration::from_secs(2);

/// What has to be undone.
#[derive(Debug)]
pub(super) struct TakeBacks {
    core: Arc<Core>,
    background: Background,
}

impl TakeBacks {
    pub(super) fn new(core: Arc<Core>) -> Self {
        Self { core, background: Background::default() }
    }

    /// Undoes charges of one slot in the background.
    pub(super) fn add<'a>(&self, slot: u16, charges: impl IntoIterator<Item = (&'a Check<'a>, Receipt, Undo)>) {
        let mut question = Question::new(&self.core.prefix, Prior::Open, false);
        for (check, receipt, undo) in charges {
            question.add(check, Wanted::TakeBack(receipt, undo), self.core.now());
        }
        let count = u64::try_from(question.checks()).unwrap_or(u64::MAX);
        if count == 0 {
            return;
        }
        let core = Arc::clone(&self.core);
        core.metrics.take_backs.inc_by(count);
        let begun = self.background.spawn(async move {
            let undone = core.ask(slot, question, within(PATIENCE)).await;
            if !undone.is_ok_and(|answers| answers.iter().all(|answer| answer.outcome.is_ok())) {
                core.metrics.take_backs_lost.inc_by(count);
            }
        });
        if !begun {
            self.core.metrics.take_backs_lost.inc_by(count);
        }
    }

    /// Waits until none is under way.
    pub(super) async fn settled(&self) {
        self.background.settled().await;
    }
}
