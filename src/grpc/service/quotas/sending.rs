//! Responses, which are sent at once or not at all, and the wants that other streams know.

use std::time::Instant;

use super::{PendingAction, QuotaSession, response};
use crate::rlqs::terms::{Assignment, BucketTerms, LentTerms};
use crate::store::backend::Backend;
use crate::store::clock::instant;

/// Maximum number of buckets in a response.
const RESPONSE_BUCKETS: usize = 256;

impl<B: Backend> QuotaSession<B> {
    /// Returns the next response, unless there is nothing to send. Without room for it, its hits
    /// are given back.
    pub(super) fn response(&mut self) -> Option<Vec<u8>> {
        let count = self.pending.len().min(RESPONSE_BUCKETS);
        if count == 0 {
            return None;
        }
        let pending: Vec<_> = self.pending.drain(..count).collect();
        let mut actions = Vec::new();
        for (place, action) in &pending {
            let Some(slot) = self.stream.get(*place) else { continue };
            self.version = self.version.wrapping_add(1);
            match action {
                PendingAction::Assign(assignment) => {
                    actions.extend(response::assign(&slot.id, assignment, self.version));
                }
                PendingAction::Abandon => actions.push(response::abandon(&slot.id)),
            }
        }
        let encoded = response::encode(actions);
        let now = instant();
        if encoded.len() > self.delivery.room() {
            self.rls.metrics.loans.quotas.unsent.inc();
            pending.into_iter().for_each(|(place, action)| self.unsent(place, action));
            return None;
        }
        self.stream.on_sent(self.delivery.request_acknowledgement(), now);
        pending.into_iter().for_each(|(place, action)| self.sent(place, action, now));
        Some(encoded)
    }

    fn sent(&mut self, place: usize, action: PendingAction, now: Instant) {
        let options = self.stream.options();
        match action {
            PendingAction::Assign(assignment) => {
                let Some(slot) = self.stream.get_mut(place) else { return };
                slot.bucket.sent(assignment, now, &options);
                if let Assignment::Loan(loan, _) = assignment {
                    self.rls.metrics.loans.quotas.lent.inc_by(loan.receipt.hits);
                }
                self.stream.schedule(place);
                self.announce_want(place);
            }
            PendingAction::Abandon => self.close(place),
        }
    }

    pub(super) fn unsent(&mut self, place: usize, action: PendingAction) {
        if let PendingAction::Assign(Assignment::Loan(loan, _)) = action {
            self.give_back(place, loan.receipt);
        }
        self.postpone(place, instant());
    }

    /// Forgets a bucket.
    pub(super) fn close(&mut self, place: usize) {
        self.withdraw_want(place);
        let Some(mut slot) = self.stream.remove(place) else { return };
        slot.bucket.forfeit();
        let metrics = &self.rls.metrics.loans.quotas;
        metrics.stranded.inc_by(slot.bucket.take_stranded());
        metrics.buckets.dec();
    }

    /// Shows other streams of the counter how many hits this one wants.
    pub(super) fn announce_want(&mut self, place: usize) {
        let number = self.number;
        let Some(slot) = self.stream.get_mut(place) else { return };
        let BucketTerms::Lent(LentTerms { generation, .. }) = *slot.bucket.terms() else { return };
        let want = slot.bucket.want();
        if std::mem::replace(&mut slot.held.want, want) != want {
            self.rls.quotas.wants.set(generation, number, want);
        }
    }

    pub(super) fn withdraw_want(&mut self, place: usize) {
        let Some(slot) = self.stream.get_mut(place) else { return };
        if let BucketTerms::Lent(LentTerms { generation, .. }) = *slot.bucket.terms() {
            slot.held.want = 0;
            self.rls.quotas.wants.remove(generation, self.number);
        }
    }
}
