//! Charges that turned out not to be owed: undone by receipt, after the caller has been answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use super::calls::{Core, within};
use super::question::{Question, Undo, Wanted};
use crate::algorithm::Receipt;
use crate::algorithm::verdict::Prior;
use crate::store::Check;

/// Take-backs under way at once; more are counted as lost, since a store that is this far behind will not catch up in time.
const MAX_PENDING: usize = 10_000;
/// How long one is tried.
const PATIENCE: Duration = Duration::from_secs(2);

/// What has to be undone.
#[derive(Debug)]
pub(super) struct TakeBacks {
    core: Arc<Core>,
    pending: Arc<Pending>,
}

#[derive(Debug, Default)]
struct Pending {
    count: AtomicUsize,
    none: Notify,
}

impl TakeBacks {
    pub(super) fn new(core: Arc<Core>) -> Self {
        Self { core, pending: Arc::default() }
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
        let (core, pending) = (Arc::clone(&self.core), Arc::clone(&self.pending));
        core.metrics.take_backs.inc_by(count);
        if pending.count.fetch_add(1, Ordering::AcqRel) >= MAX_PENDING {
            core.metrics.take_backs_lost.inc_by(count);
            pending.done();
            return;
        }
        tokio::spawn(async move {
            let undone = core.ask(slot, question, within(PATIENCE)).await;
            if !undone.is_ok_and(|answers| answers.iter().all(|answer| answer.outcome.is_ok())) {
                core.metrics.take_backs_lost.inc_by(count);
            }
            pending.done();
        });
    }

    /// Waits until none is under way.
    pub(super) async fn settled(&self) {
        loop {
            let none = self.pending.none.notified();
            if self.pending.count.load(Ordering::Acquire) == 0 {
                return;
            }
            none.await;
        }
    }
}

impl Pending {
    fn done(&self) {
        if self.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.none.notify_waiters();
        }
    }
}
