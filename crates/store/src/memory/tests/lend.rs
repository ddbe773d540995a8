//! Charges on their own.

use tollgate_core::algorithm::Receipt;

use super::*;
use crate::Lender;
use crate::loan::{LoanReturn, Returned};

#[tokio::test]
async fn a_charge_on_its_own_writes_what_a_request_of_it_would() {
    let now = Instant::now();
    let recorded = [b"user=ann".to_vec()];
    for charge in [Charge::Admitted, Charge::Blamed, Charge::Always, Charge::Afterwards] {
        for amount in [0, 3] {
            let limit = fixed(amount, 60).charged(charge);
            let [alone, request] = [bench(1 << 20, 1 << 20), bench(1 << 20, 1 << 20)];
            for hits in [2, 2, 5] {
                let charge = Hits::Charge(hits);
                let check = Check { hits: charge, recorded: &recorded, ..check(b"a", &limit) };
                let lent = alone.store.lend(&check, now).await.unwrap();
                let outcome = request.store.decide_now(&[check], Prior::Open)[0].unwrap();
                assert_eq!(lent.report, outcome.report, "{hits} of {limit:?}");
                let receipt = outcome.allowed.then_some(hits.into());
                assert_eq!(lent.receipt.map(|receipt| receipt.hits), receipt);
                let key = &check.key;
                assert_eq!(alone.store.tallies(key), request.store.tallies(key));
            }
            assert_eq!(alone.store.used_bytes(), request.store.used_bytes());
            assert_eq!(alone.store.len(), request.store.len());
        }
    }
}

#[tokio::test]
async fn a_charge_is_taken_back_without_a_search_for_room() {
    let limit = fixed(1, 60);
    let roomy = bench(1 << 20, 1 << 20);
    let first = check(b"a", &limit);
    assert!(roomy.store.decide_now(&[first], Prior::Open)[0].unwrap().allowed);
    let room = roomy.store.used_bytes();
    let full = bench(room, room);
    assert!(full.store.decide_now(&[first], Prior::Open)[0].unwrap().allowed);
    full.clock.set(Timestamp::from_micros(START + 300 * SECOND));
    // A counter that does not exist, in the shard of the expired one.
    let names = (0..u32::MAX).map(u32::to_be_bytes);
    let is_beside = |name: &[u8; 4]| shard_of(&CounterKey::of("d", name)) == shard_of(&first.key);
    let name = { names }.find(is_beside).unwrap();
    let receipt = Receipt { at: Timestamp::from_micros(START), hits: 1, of_grant: false };
    full.store.take_back(&check(&name, &limit), receipt, Instant::now()).await.unwrap();
    assert_eq!((full.store.len(), full.store.used_bytes()), (1, room));
}

#[test]
fn a_return_of_a_loan_takes_hits_back_and_makes_no_counter_but_that_of_its_number() {
    let bench = bench(1 << 20, 1 << 20);
    let limit = fixed(9, 60);
    let check = check(b"a", &limit);
    let now = Timestamp::from_micros(START);
    let unused = Receipt { at: now, hits: 3, of_grant: false };
    let returned = LoanReturn { unused, number: [7; 16], usable_for: Micros::from_secs(1) };
    let late = Receipt { at: now + Micros::new(1), ..unused };
    let late = LoanReturn { unused: late, number: [8; 16], ..returned };
    for (returned, result) in
        [(returned, Returned::Accepted), (returned, Returned::Repeated), (late, Returned::Late)]
    {
        assert_eq!(bench.store.return_now(&check, returned), Ok(result));
        assert_eq!(bench.store.len(), 1, "{result:?}");
    }
    assert_eq!(hit(&bench, "d", "a", &limit), Some(true));
    let unused = Receipt { hits: 1, ..unused };
    let returned = LoanReturn { unused, number: [9; 16], ..returned };
    assert_eq!(bench.store.return_now(&check, returned), Ok(Returned::Accepted));
    let all = [("a", &limit, Hits::Peek(9))];
    assert_eq!(ask(&bench.store, "d", &all), [Some(true)]);
}

#[test]
fn a_return_of_a_loan_needs_room_for_its_number_only() {
    let limit = fixed(9, 60);
    let check = check(b"a", &limit);
    let unused = Receipt { at: Timestamp::from_micros(START), hits: 3, of_grant: false };
    let returned = LoanReturn { unused, number: [7; 16], usable_for: Micros::from_secs(1) };
    let roomy = bench(1 << 20, 1 << 20);
    assert_eq!(roomy.store.return_now(&check, returned), Ok(Returned::Accepted));
    let room = roomy.store.used_bytes();
    let full = bench(room, room);
    assert_eq!(full.store.return_now(&check, returned), Ok(Returned::Accepted));
}
