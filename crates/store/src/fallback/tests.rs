#![allow(clippy::arithmetic_side_effects, reason = "an overflow here is a test that fails")]

use std::num::NonZeroU32;

use tollgate_core::algorithm::hold::{Hold, OnSettle};
use tollgate_core::algorithm::time::Micros;
use tollgate_core::algorithm::{Charge, OnStoreError};

use super::*;
use crate::open_checks::CheckOutcome;
use crate::tests::{NOW, SteppedMemory, check, fixed, memory_at, outcome};

/// A process that decides alone, by half of each limit.
struct FallbackFixture {
    fallback: Fallback,
    memory: SteppedMemory,
    share: Arc<OwnShare>,
    metrics: Arc<StoreMetrics>,
}

fn half() -> Share {
    NonZeroU32::new(2).map_or(Share::NONE, |parts| Share::of(parts, Some(0)))
}

fn bench() -> FallbackFixture {
    let (memory, _) = memory_at(NOW);
    let share = OwnShare::new(half());
    let metrics = Arc::<StoreMetrics>::default();
    let fallback = Fallback::new(Arc::clone(&memory), Arc::clone(&share), Arc::clone(&metrics));
    FallbackFixture { fallback, memory, share, metrics }
}

fn limit(amount: u32, charge: Charge, on_store_error: OnStoreError) -> Limit {
    fixed(&[(amount, 3_600)], charge, on_store_error)
}

fn local(amount: u32) -> Limit {
    limit(amount, Charge::Admitted, OnStoreError::Local)
}

fn holding(amount: u32) -> Limit {
    let hold = Hold { ttl: Micros::from_secs(600), on_settle: OnSettle::Release };
    local(amount).with_hold(hold)
}

/// Returns the store's outcome of a check.
fn judged(allowed: bool, hold: HoldEffect) -> Result<Outcome, StoreError> {
    let mut outcome = outcome(allowed, None);
    outcome.report.remaining = 77;
    Ok(Outcome { hold, ..outcome })
}

const ALLOWED: bool = true;
const DOWN: Result<Outcome, StoreError> = Err(StoreError::Unavailable);

impl FallbackFixture {
    fn complete(
        &self,
        checks: &[Check<'_>],
        outcomes: &[Result<Outcome, StoreError>],
    ) -> Vec<Result<Outcome, StoreError>> {
        let outcomes = Outcomes::from_iter(outcomes.iter().copied());
        self.fallback.complete(checks, outcomes, Prior::Open).to_vec()
    }

    /// Decides one check that the store did not judge; `None` if it stays failed.
    fn alone(&self, check: Check<'_>) -> Option<bool> {
        self.complete(&[check], &[DOWN])[0].as_ref().ok().map(|outcome| outcome.allowed)
    }
}

#[test]
fn a_check_that_the_store_failed_to_judge_is_decided_by_the_share() {
    let bench = bench();
    let limit = local(4);
    let admitted = [(); 4].map(|()| bench.alone(check(b"a", &limit)));
    assert_eq!(admitted, [Some(true), Some(true), Some(false), Some(false)]);
    let by = bench.complete(&[check(b"b", &limit)], &[Err(StoreError::Late)])[0].unwrap().by;
    assert_eq!(by, JudgedBy::Share(StoreError::Late));
    assert_eq!(bench.metrics.local_decisions.get(), 5);
    bench.share.set(Share::NONE);
    assert_eq!(bench.share.get(), Share::NONE);
    assert_eq!(bench.alone(check(b"c", &limit)), Some(false));
}

#[test]
fn other_limits_stay_failed() {
    let bench = bench();
    for mode in [OnStoreError::Error, OnStoreError::Allow, OnStoreError::Deny] {
        assert_eq!(bench.alone(check(b"a", &limit(4, Charge::Admitted, mode))), None, "{mode:?}");
    }
    let [given, open] = [limit(4, Charge::Admitted, OnStoreError::Error), local(4)];
    let outcomes = bench.complete(&[check(b"a", &given), check(b"b", &open)], &[DOWN, DOWN]);
    assert_eq!(outcomes[0], DOWN);
    assert_eq!(bench.alone(check(b"b", &open)), Some(true), "nothing is charged for a failed one");
    assert_eq!(bench.alone(check(b"b", &open)), Some(true));
}

#[test]
fn a_request_whose_other_charges_were_not_written_stays_failed() {
    let open = local(4);
    for (charge, hits, is_decided) in [
        (Charge::Admitted, Hits::Charge(1), false),
        (Charge::Always, Hits::Charge(1), true),
        (Charge::Admitted, Hits::Peek(1), true),
    ] {
        let bench = bench();
        let shared = limit(4, charge, OnStoreError::Error);
        let checks = [Check { hits, ..check(b"a", &shared) }, check(b"b", &open)];
        let store = judged(ALLOWED, HoldEffect::Nothing);
        let outcomes = bench.complete(&checks, &[store, DOWN]);
        assert_eq!(outcomes[0], store);
        assert_eq!(outcomes[1].is_ok(), is_decided, "{charge:?} {hits:?}");
    }
}

#[test]
fn nothing_is_charged_for_a_request_that_is_denied() {
    let bench = bench();
    let [strict, open] = [limit(4, Charge::Always, OnStoreError::Error), local(2)];
    let checks = [check(b"a", &strict), check(b"b", &open)];
    let outcomes = bench.complete(&checks, &[judged(false, HoldEffect::Nothing), DOWN]);
    assert!(outcomes[1].unwrap().allowed);
    bench.fallback.complete(&checks[1..], Outcomes::from_iter([DOWN]), Prior::Denied);
    assert_eq!(bench.alone(checks[1]), Some(true), "the only hit of the share");
    assert_eq!(bench.alone(checks[1]), Some(false));
}

#[test]
fn votes_deny_nothing_beside_one_that_passed() {
    for (passed, is_charged) in [(true, true), (false, false)] {
        let bench = bench();
        let [none, open] = [local(0), local(2)];
        let vote = |name| Check { role: Role::Quota, ..check(name, &none) };
        let checks = [vote(b"a"), vote(b"b"), check(b"c", &open)];
        let store = judged(passed, HoldEffect::Nothing);
        let mut outcomes = CheckOutcomes::from_iter([Some(store), Some(DOWN), Some(DOWN)]);
        bench.fallback.decide_left(&checks, &mut outcomes, Prior::Open);
        assert_eq!(outcomes[0], Some(store));
        let allowed = |outcome: CheckOutcome| outcome.unwrap().unwrap().allowed;
        assert_eq!([allowed(outcomes[1]), allowed(outcomes[2])], [false, true]);
        assert_eq!(bench.alone(checks[2]), Some(!is_charged));
    }
}

#[test]
fn an_enforced_limit_denies_beside_a_vote_that_passed() {
    let bench = bench();
    let [none, open] = [local(0), local(2)];
    let vote = Check { role: Role::Quota, ..check(b"a", &none) };
    let checks = [vote, check(b"b", &none), check(b"c", &open)];
    let passed = judged(ALLOWED, HoldEffect::Nothing);
    let mut outcomes = CheckOutcomes::from_iter([Some(passed), Some(DOWN), Some(DOWN)]);
    bench.fallback.decide_left(&checks, &mut outcomes, Prior::Open);
    assert_eq!(bench.alone(checks[2]), Some(true), "it was not charged");
}

#[test]
fn callers_are_not_tallied_alone() {
    let recorded = [b"user=ann".to_vec()];
    let limit = local(4);
    let [bytes, bytes_with_caller] = [&[], recorded.as_slice()].map(|recorded| {
        let bench = bench();
        bench.alone(Check { recorded, ..check(b"a", &limit) });
        bench.memory.used_bytes()
    });
    assert_eq!(bytes, bytes_with_caller);
}

#[test]
fn checks_that_are_not_judged_yet_stay_open() {
    let bench = bench();
    let open = local(4);
    let checks = [check(b"a", &open), check(b"b", &open)];
    let mut outcomes = CheckOutcomes::from_iter([None, Some(DOWN)]);
    bench.fallback.decide_left(&checks, &mut outcomes, Prior::Open);
    assert!(outcomes[0].is_none() && outcomes[1].is_some_and(|outcome| outcome.is_ok()));
    assert_eq!(all_of(outcomes)[0], DOWN);
}

#[test]
fn a_hold_that_was_taken_alone_is_ended_alone() {
    let limit = holding(100);
    let request = |action| HoldRequest { id: b"r", action, ttl: None };
    let [reserve, commit] = [request(HoldAction::Reserve), request(HoldAction::Commit(7))];
    let committing = Check { hits: Hits::Refund(0), hold: Some(&commit), ..check(b"a", &limit) };
    let committed = HoldEffect::Committed { reserved: 30, cost: 7 };
    let unknown = HoldEffect::Unknown { cost: 7 };
    for (store, effect) in [
        (DOWN, committed),
        (judged(ALLOWED, HoldEffect::Nothing), committed),
        (judged(ALLOWED, unknown), unknown),
        (judged(ALLOWED, HoldEffect::Settled), HoldEffect::Settled),
    ] {
        let bench = bench();
        assert_eq!(bench.complete(&[committing], &[store]), [store], "nothing is held");
        let reserving = Check { hits: Hits::Charge(30), hold: Some(&reserve), ..committing };
        assert_eq!(bench.alone(reserving), Some(true));
        let outcome = bench.complete(&[committing], &[store])[0].unwrap();
        assert_eq!(outcome.hold, effect);
        let is_own = outcome.by == JudgedBy::Share(StoreError::Unavailable);
        assert_eq!((is_own, outcome.report.remaining == 77), (store == DOWN, store != DOWN));
        // The half of the limit that is left tells what the hold cost.
        let left = Check { hits: Hits::Charge(43), ..check(b"a", &limit) };
        assert_eq!(bench.alone(left), Some(effect != HoldEffect::Settled));
    }
}

#[test]
fn a_hold_that_was_taken_alone_is_ended_beside_a_charge_in_the_store() {
    let bench = bench();
    let [limit, shared] = [holding(100), limit(4, Charge::Admitted, OnStoreError::Error)];
    let request = |action| HoldRequest { id: b"r", action, ttl: None };
    let [reserve, settle] = [request(HoldAction::Reserve), request(HoldAction::Settle)];
    bench.alone(Check { hold: Some(&reserve), ..check(b"a", &limit) });
    let settling = Check { hits: Hits::Refund(0), hold: Some(&settle), ..check(b"a", &limit) };
    let store = judged(ALLOWED, HoldEffect::Nothing);
    let outcomes = bench.complete(&[settling, check(b"b", &shared)], &[DOWN, store]);
    assert_eq!(outcomes[0].unwrap().hold, HoldEffect::Settled);
    assert_eq!(outcomes[1], store);
}
