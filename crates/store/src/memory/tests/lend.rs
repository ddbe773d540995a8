//! Charges on their own.

use super::*;
use crate::Lender;

#[tokio::test]
async fn a_charge_on_its_own_writes_what_a_request_of_it_would() {
    let now = Instant::now();
    let recorded = [b"user=ann".to_vec()];
    for charge in [Charge::Admitted, Charge::Blamed, Charge::Always, Charge::Afterwards] {
        for amount in [0, 3] {
            let limit = fixed(amount, 60).charged(charge);
            let [alone, request] = [bench(1 << 20, 1 << 20), bench(1 << 20, 1 << 20)];
            let mut keys = KeyBuffer::default();
            let range = key(&mut keys, b"a");
            for hits in [2, 2, 5] {
                let check = Check {
                    key: keys.key("d", &range),
                    limit: &limit,
                    hits: Hits::Charge(hits),
                    role: Role::Enforce,
                    recorded: &recorded,
                    lease: None,
                    hold: None,
                };
                let lent = alone.store.lend(&check, now).await.unwrap();
                let outcome = request.store.decide_now(&[check], Prior::Open)[0].unwrap();
                assert_eq!(lent.report, outcome.report, "{hits} of {limit:?}");
                let written = !limit.is_ban() && (outcome.allowed || charge.counts_denied());
                assert_eq!(
                    lent.receipt.map(|receipt| receipt.hits),
                    written.then_some(hits.into())
                );
                let key = &check.key;
                assert_eq!(alone.store.tallies(key), request.store.tallies(key));
            }
            assert_eq!(alone.store.used_bytes(), request.store.used_bytes());
            assert_eq!(alone.store.len(), request.store.len());
        }
    }
}
