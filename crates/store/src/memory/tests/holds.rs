//! Holds of concurrent requests, and the open ones of a counter.

use tollgate_core::algorithm::hold::{Hold, HoldAction, HoldRequest, OnSettle};

use super::*;

#[test]
fn of_20_concurrent_reserves_of_75_against_500_exactly_6_are_admitted() {
    let limit = fixed(500, 3_600)
        .with_hold(Hold { ttl: Micros::from_secs(60), on_settle: OnSettle::Charge });
    for _ in 0..50 {
        let bench = bench(1 << 20, 1 << 20);
        let begin = std::sync::Barrier::new(20);
        let admitted = std::thread::scope(|scope| {
            let threads: Vec<_> = (0u8..20)
                .map(|number| {
                    let store = &bench.store;
                    let limit = &limit;
                    let begin = &begin;
                    scope.spawn(move || {
                        let id = [number];
                        let hold = HoldRequest { id: &id, action: HoldAction::Reserve, ttl: None };
                        let hits = Hits::Charge(75);
                        let check = Check { hits, hold: Some(&hold), ..check(b"tenant", limit) };
                        begin.wait();
                        let outcomes = store.decide_now(&[check], Prior::Open);
                        outcomes[0].as_ref().is_ok_and(|outcome| outcome.allowed)
                    })
                })
                .collect();
            threads.into_iter().filter_map(|thread| thread.join().unwrap().then_some(())).count()
        });
        assert_eq!(admitted, 6);
        let key = CounterKey::of("d", b"tenant");
        let open = |at| bench.store.open_holds(&key, at).holds;
        let now = Timestamp::from_micros(START);
        assert_eq!(open(now).iter().map(|hold| hold.hits).sum::<u32>(), 450);
        assert!(open(now + Micros::from_secs(60)).is_empty());
    }
}
