//! The service of the double: its steps as `grpc` takes them, with a counter of a fixed window.

use std::time::{Duration, Instant};

use super::super::QuotaOptions;
use super::super::bucket::BucketStep;
use super::super::share::ShareOf;
use super::super::terms::{Assignment, BucketTerms, ChargedLoan, LentTerms, WantResult};
use super::proxy::{Action, Backward, COUNTER, ProxyWorld};
use crate::algorithm::Receipt;
use crate::algorithm::lease::Lease;
use crate::algorithm::time::{Micros, Timestamp};

const ID: &[u8] = b"bucket";

impl ProxyWorld {
    pub(super) fn receive(&mut self, number: usize, message: Backward, now: Instant) {
        let terms = BucketTerms::Lent(LentTerms {
            lease: Lease { hits: self.size, ttl: Micros::from_secs(15) },
            at_once: u32::try_from(self.limit).unwrap(),
            generation: COUNTER,
            on_failure: None,
        });
        let stream = &mut self.links[number].stream;
        let usage = match message {
            Backward::Acknowledged(sent) => return stream.on_acknowledged(sent, false),
            Backward::Report(usage) => usage,
        };
        stream.on_report(now);
        let covered = stream.covered();
        let options = stream.options();
        let place = stream.find(ID).unwrap_or_else(|| stream.open(ID, terms, ()));
        let entry = stream.get_mut(place).unwrap();
        let reported = entry.bucket.report(usage, covered, now, &options);
        let want = entry.bucket.want();
        let awaits_ping = entry.bucket.awaits_ping(covered, now);
        self.wants(number).set(COUNTER, u64::try_from(number).unwrap(), want);
        self.afterwards += reported.afterwards;
        *self.charged.entry(self.window(now)).or_default() += reported.afterwards;
        for receipt in reported.returns {
            self.returned += receipt.hits;
            self.take_back(receipt);
        }
        if awaits_ping {
            self.links[number].stream.request_ping(now);
        }
        self.advance(number, place, now);
    }

    fn take_back(&mut self, receipt: Receipt) {
        let millis = u128::from(receipt.at.as_micros() / 1_000);
        let window = u64::try_from(millis / self.period.as_millis()).unwrap();
        *self.charged.entry(window).or_default() -= receipt.hits;
    }

    pub(super) fn advance(&mut self, number: usize, place: usize, now: Instant) {
        let options = QuotaOptions::default();
        let entry = self.links[number].stream.get_mut(place).unwrap();
        match entry.bucket.step(now, &options) {
            BucketStep::Nothing => self.links[number].stream.schedule(place),
            BucketStep::Assign(assignment) => self.send(number, place, Some(assignment), now),
            BucketStep::Abandon => self.send(number, place, None, now),
            BucketStep::Want(hits) => {
                let result = self.lend(number, hits.into(), now);
                let entry = self.links[number].stream.get_mut(place).unwrap();
                let (step, unsent) = entry.bucket.wanted_result(result, now, &options);
                unsent.into_iter().for_each(|receipt| self.take_back(receipt));
                match step {
                    BucketStep::Assign(assignment) => {
                        self.send(number, place, Some(assignment), now)
                    }
                    BucketStep::Nothing | BucketStep::Want(_) | BucketStep::Abandon => {
                        self.links[number].stream.schedule(place);
                    }
                }
            }
        }
    }

    fn lend(&mut self, number: usize, wanted: u64, now: Instant) -> WantResult {
        if self.is_failing {
            return WantResult::Failed;
        }
        let window = self.window(now);
        let store_now = self.store_now(now);
        let rest = self.period * u32::try_from(window + 1).unwrap() - store_now;
        let rest = Micros::new(u64::try_from(rest.as_micros()).unwrap());
        let charged = self.charged.get(&window).copied().unwrap_or_default();
        let remaining = self.limit.saturating_sub(charged);
        let stream = u64::try_from(number).unwrap();
        let wanted = u32::try_from(wanted).unwrap();
        let hits = self.wants(number).to_charge(COUNTER, wanted, now).into();
        let of = ShareOf { counter: COUNTER, stream, hits };
        let usable = (remaining >= hits)
            .then(|| Duration::from(rest).saturating_sub(QuotaOptions::default().guard));
        let share = self.wants(number).share(of, remaining, usable, now);
        if share == 0 {
            return WantResult::Denied((remaining == 0).then_some(rest));
        }
        *self.charged.entry(window).or_default() += share;
        let at = Timestamp::from_micros(u64::try_from(store_now.as_micros()).unwrap());
        let receipt = Receipt { at, hits: share, of_grant: false };
        let window_rest = Some(rest);
        WantResult::Charged(ChargedLoan { receipt, asked_at: now, charged_at: now, window_rest })
    }

    fn send(&mut self, number: usize, place: usize, assignment: Option<Assignment>, now: Instant) {
        let link = &mut self.links[number];
        if std::mem::take(&mut link.drops_next) {
            link.stream.get_mut(place).unwrap().bucket.postpone(now);
            link.stream.schedule(place);
            if let Some(Assignment::Loan(loan, _)) = assignment {
                self.take_back(loan.receipt);
            }
            return;
        }
        link.sent += 1;
        link.stream.on_sent(link.sent, now);
        match assignment {
            Some(assignment) => {
                let entry = link.stream.get_mut(place).unwrap();
                entry.bucket.sent(assignment, now, &QuotaOptions::default());
                link.stream.schedule(place);
            }
            None => drop(link.stream.remove(place)),
        }
        let action = assignment.map_or(Action::Abandon, Action::Assign);
        self.fly(number, Some(action), now);
    }
}
