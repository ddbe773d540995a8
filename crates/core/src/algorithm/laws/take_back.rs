//! Properties of charges that are taken back, whole or in parts.

use proptest::prelude::*;

use super::super::amend::Amendment;
use super::super::quota::WindowUsage;
use super::super::{Algorithm, Charge, Limit, Receipt, State};
use super::{algorithms, at, limit};

fn look(limit: &Limit, state: &State, now: u64) -> Vec<WindowUsage> {
    limit.amend(&mut state.clone(), Amendment::Look, at(now)).unwrap().0.after.windows
}

proptest! {
    /// Includes several charges at one instant, and one charge taken back at several instants.
    #[test]
    fn a_charge_that_is_taken_back_in_parts_leaves_what_a_charge_of_the_rest_would_have(
        algorithm in algorithms(),
        trace in proptest::collection::vec((prop_oneof![Just(0), 0u64..700], 1u64..9, any::<bool>(), any::<usize>()), 1..60),
    ) {
        let limit = limit(algorithm, Charge::Admitted);
        let is_rate = matches!(limit.algorithm(), Algorithm::Gcra(_));
        let mut state = limit.unused();
        let mut now = 0;
        let mut rest = Vec::<Receipt>::new();
        for (step, hits, charges, which) in trace {
            now += step;
            if charges && (!is_rate || limit.allows(&state, hits, at(now)).unwrap()) {
                rest.push(limit.charge(&mut state, hits, at(now)).unwrap());
            } else if !rest.is_empty() {
                let which = which % rest.len();
                let part = Receipt { hits: hits.min(rest[which].hits), ..rest[which] };
                limit.take_back(&mut state, part, at(now)).unwrap();
                rest[which].hits -= part.hits;
            }
        }
        let mut twin = limit.unused();
        for receipt in rest.iter().filter(|receipt| receipt.hits > 0) {
            limit.charge(&mut twin, receipt.hits, receipt.at).unwrap();
        }
        let counted = look(&limit, &state, now);
        let expected = look(&limit, &twin, now);
        if is_rate {
            // Part of a returned charge may have drained before.
            prop_assert!(counted[0].used >= expected[0].used, "{:?} of {:?}", counted, expected);
        } else {
            prop_assert_eq!(counted, expected);
        }
    }
}
