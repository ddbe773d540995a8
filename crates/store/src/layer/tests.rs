#![allow(clippy::arithmetic_side_effects, reason = "an overflow here is a test that fails")]

use std::time::Duration;

use tollgate_core::algorithm::judge::{Hits, JudgedBy};
use tollgate_core::algorithm::lease::Lease;
use tollgate_core::algorithm::share::Share;
use tollgate_core::algorithm::time::{Micros, Timestamp};
use tollgate_core::algorithm::{Charge, Limit, OnStoreError, Receipt};
use tollgate_core::descriptor::CounterKey;

use super::*;
use crate::clock::instant;
use crate::fallback::OwnShare;
use crate::tests::{self, NOW, SteppedMemory, fixed, memory_at};
use crate::{CertainDenials, Lender, Lent};

/// A store that fails with this error.
#[derive(Clone)]
pub(super) struct FailingStore(pub(super) StoreError);

impl Store for FailingStore {
    async fn decide(&self, checks: &[Check<'_>], _: Prior, _: Instant) -> Outcomes {
        checks.iter().map(|_| Err(self.0)).collect()
    }

    async fn amend(&self, _: &Check<'_>, _: Amendment, _: Instant) -> Result<Amended, StoreError> {
        Err(self.0)
    }

    fn now(&self) -> Timestamp {
        Timestamp::EPOCH
    }

    fn certain_denials(&self) -> CertainDenials {
        CertainDenials::IrrevocableOnly
    }
}

impl Lender for FailingStore {
    async fn lend(&self, _: &Check<'_>, _: Instant) -> Result<Lent, StoreError> {
        Err(self.0)
    }

    async fn take_back(&self, _: &Check<'_>, _: Receipt, _: Instant) -> Result<(), StoreError> {
        Err(self.0)
    }
}

impl Backend for FailingStore {
    fn is_shared(&self) -> bool {
        true
    }
}

fn memory() -> SteppedMemory {
    memory_at(NOW).0
}

/// Returns a fallback that admits all hits of a limit.
fn fallback() -> Fallback {
    let whole = Share::of(std::num::NonZeroU32::MIN, Some(0));
    Fallback::new(memory(), OwnShare::new(whole), Arc::default())
}

fn denials() -> Option<Arc<DenialTable>> {
    Some(DenialTable::new(Duration::from_secs(3_600), Arc::default()))
}

fn limit(amount: u32) -> Limit {
    fixed(&[(amount, 86_400)], Charge::Admitted, OnStoreError::Local)
}

fn check(limit: &Limit) -> Check<'_> {
    let lease = Some(Lease { hits: 100, ttl: Micros::from_secs(3_600) });
    Check { lease, ..tests::check(b"a counter of some rule", limit) }
}

/// Decides a request as often as keys are worth a block after, and returns the last source.
async fn last_of_many<B: Backend>(layered: &Layered<B>, check: Check<'_>) -> Option<JudgedBy> {
    let mut last = None;
    for _ in 0..16 {
        let outcomes = layered.decide(&[check], Prior::Open, instant()).await;
        last = outcomes[0].ok().map(|outcome| outcome.by);
        tokio::task::yield_now().await;
    }
    last
}

#[tokio::test]
async fn layers_lease_remember_and_decide_alone() {
    let [many, few] = [limit(10_000), limit(1)];
    let store = memory();
    let layered = Layered::new(Arc::clone(&store), fallback(), denials(), Arc::default());
    assert_eq!(last_of_many(&layered, check(&many)).await, Some(JudgedBy::Block));
    let other = Check { key: CounterKey::of("d", b"another"), lease: None, ..check(&few) };
    assert_eq!(last_of_many(&layered, other).await, Some(JudgedBy::Memory));
    assert!(Arc::ptr_eq(layered.backend(), &store));
    let error = StoreError::Unavailable;
    let layered = Layered::new(FailingStore(error), fallback(), denials(), Arc::default());
    assert_eq!(last_of_many(&layered, other).await, Some(JudgedBy::Share(error)));
}

#[tokio::test]
async fn disabled_layers_leave_all_to_the_store() {
    let [many, few] = [limit(10_000), limit(1)];
    let layered = Layered::disabled(memory(), Arc::default());
    assert_eq!(last_of_many(&layered, check(&many)).await, Some(JudgedBy::Store));
    let other = Check { key: CounterKey::of("d", b"another"), ..check(&few) };
    assert_eq!(last_of_many(&layered, other).await, Some(JudgedBy::Store));
    let layered = Layered::disabled(FailingStore(StoreError::Unavailable), Arc::default());
    assert_eq!(last_of_many(&layered, check(&many)).await, None);
}

#[tokio::test]
async fn leased_and_lent_hits_come_back_before_the_end() {
    let limit = limit(10_000);
    let store = memory();
    let layered = Layered::new(Arc::clone(&store), fallback(), denials(), Arc::default());
    last_of_many(&layered, check(&limit)).await;
    let receipt = Receipt { at: store.now(), hits: 6, of_grant: false };
    layered.loans().give_back(&check(&limit), receipt);
    layered.settled().await;
    let peek = Check { hits: Hits::Peek(0), ..check(&limit) };
    let report = store.decide(&[peek], Prior::Open, instant()).await[0].unwrap().report;
    assert_eq!(report.remaining, 10_000 - 16 + 6);
    let amended = layered.amend(&peek, Amendment::Reset, instant()).await.unwrap();
    assert_eq!(amended.after.windows.iter().map(|window| window.used).sum::<u64>(), 0);
}

#[tokio::test]
async fn operations_below_local_decisions_are_those_of_the_store() {
    let limit = limit(100);
    let store = memory();
    let local = Local::new(Arc::clone(&store), Some(fallback()));
    let lent = local.lend(&Check { hits: Hits::Charge(8), ..check(&limit) }, instant()).await;
    let receipt = lent.unwrap().receipt.unwrap();
    local.take_back(&check(&limit), Receipt { hits: 3, ..receipt }, instant()).await.unwrap();
    let peek = Check { hits: Hits::Peek(0), ..check(&limit) };
    let outcomes = local.decide(&[peek], Prior::Open, instant()).await;
    assert_eq!(outcomes[0].unwrap().report.remaining, 95);
    let failing = Local::new(FailingStore(StoreError::Late), Some(fallback()));
    assert_eq!(failing.take_back(&peek, receipt, instant()).await, Err(StoreError::Late));
    assert_eq!(failing.certain_denials(), CertainDenials::IrrevocableOnly);
}
