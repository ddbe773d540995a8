//! Responses, which are sent at once or not at all, and the wants that other streams know.

use std::time::Instant;

use super::{PendingAction, QuotaSession, response};
use crate::grpc::PREFIX;
use crate::grpc::proto::quota::rate_limit_quota_response::BucketAction;
use crate::rlqs::share::ProxyWant;
use crate::rlqs::terms::{Assignment, BucketTerms, LentTerms};
use crate::store::backend::Backend;
use crate::store::clock::instant;

impl<B: Backend> QuotaSession<B> {
    /// Returns the next response, unless there is nothing to send. What finds no room in it is not
    /// kept: its hits are given back.
    pub(super) fn response(&mut self) -> Option<Vec<u8>> {
        self.reserved = 0;
        let now = instant();
        let mut room = self.delivery.room().saturating_sub(PREFIX);
        let mut actions = Vec::new();
        let mut sent = Vec::new();
        let mut is_short = false;
        for (place, action) in std::mem::take(&mut self.pending) {
            let Some((action, encoded)) = self.encoded(place, action, now) else {
                self.unsent(place, action);
                continue;
            };
            match room.checked_sub(response::length(&encoded)) {
                Some(left) => {
                    room = left;
                    actions.extend(encoded);
                    sent.push((place, action));
                }
                None => {
                    is_short = true;
                    self.unsent(place, action);
                }
            }
        }
        if is_short {
            self.rls.metrics.loans.quotas.unsent.inc();
        }
        let refused = self.refused.take(room);
        if actions.is_empty() && refused.is_empty() {
            return None;
        }
        self.stream.on_sent(self.delivery.request_acknowledgement(), now);
        sent.into_iter().for_each(|(place, action)| self.sent(place, action, now));
        Some(response::encode(actions, &refused))
    }

    /// Returns an action as it is to be sent now, and encoded; `None` if it is too late for it.
    fn encoded(
        &mut self,
        place: usize,
        action: PendingAction,
        now: Instant,
    ) -> Option<(PendingAction, Vec<BucketAction>)> {
        let options = self.stream.options();
        let entry = self.stream.get(place)?;
        match action {
            PendingAction::Assign(assignment) => {
                let assignment = entry.bucket.timed(assignment, now, &options)?;
                self.version = self.version.wrapping_add(1);
                let actions = response::assign(&entry.id, &assignment, self.version);
                Some((PendingAction::Assign(assignment), actions))
            }
            PendingAction::Abandon => Some((action, vec![response::abandon(&entry.id)])),
        }
    }

    fn sent(&mut self, place: usize, action: PendingAction, now: Instant) {
        let options = self.stream.options();
        match action {
            PendingAction::Assign(assignment) => {
                let Some(entry) = self.stream.get_mut(place) else { return };
                entry.bucket.sent(assignment, now, &options);
                if let Assignment::Loan(loan, _) = assignment {
                    self.rls.metrics.loans.quotas.lent.inc_by(loan.receipt.hits);
                }
                self.stream.schedule(place);
                self.count_held(place);
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
        let Some(mut entry) = self.stream.remove(place) else { return };
        entry.bucket.forfeit();
        let metrics = &self.rls.metrics.loans.quotas;
        metrics.stranded.inc_by(entry.bucket.take_stranded());
        metrics.buckets.dec();
    }

    /// Counts the hits that the proxy holds for a bucket.
    pub(super) fn count_held(&mut self, place: usize) {
        let Some(entry) = self.stream.get_mut(place) else { return };
        let hits = entry.bucket.held_hits();
        entry.held.lent.iter_mut().for_each(|lent| lent.set(hits));
    }

    /// Shows other streams of the counter how many hits this one wants.
    pub(super) fn announce_want(&mut self, place: usize) {
        let number = self.number;
        let Some(entry) = self.stream.get_mut(place) else { return };
        let BucketTerms::Lent(LentTerms { generation, .. }) = *entry.bucket.terms() else { return };
        let want = entry.bucket.want();
        if std::mem::replace(&mut entry.held.want, want) != want {
            self.rls.quotas.wants.set(generation, number, want);
        }
    }

    pub(super) fn withdraw_want(&mut self, place: usize) {
        let Some(entry) = self.stream.get_mut(place) else { return };
        if let BucketTerms::Lent(LentTerms { generation, .. }) = *entry.bucket.terms() {
            entry.held.want = ProxyWant::default();
            self.rls.quotas.wants.remove(generation, self.number);
        }
    }
}
