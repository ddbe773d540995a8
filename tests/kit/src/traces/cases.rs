//! Random policies and traces of charges, refunds, amendments, loans and tallies.

use proptest::prelude::*;
use proptest::sample::select;
use tollgate::algorithm::Charge;
use tollgate::algorithm::amend::Amendment;
use tollgate::algorithm::time::Micros;
use tollgate::grpc::proto::RateLimitDescriptor;
use tollgate::grpc::proto::rate_limit_descriptor::RateLimitOverride;
use tollgate::limiter::Modes;

use super::rules::{RECORD, RandomRule, changing_rules, policies, rules, text_of};
use super::{TraceCase, TraceOperation, TraceStep};
use crate::rls::{descriptor, request};

/// Callers of a trace: fewer than a counter has tallies, and more.
const FEW_CALLERS: u8 = 30;
const MANY_CALLERS: u8 = 200;
/// Most operations of a trace.
const REQUESTS: usize = 300;
pub const START: u64 = 1_780_000_000_000_000;
/// The instant of a clock that stands still, long before.
pub(super) const STANDS_STILL_AT: u64 = 1_700_000_000_000_000;
/// Start times shortly before the last second that four bytes hold, shortly before the last instant
/// of the short form of a gcra value, and after both.
const LATER: [u64; 3] = [4_294_967_266_000_000, 4_503_599_626_000_000, 7_258_118_400_000_000];

/// Generates requests, tries and amendments.
pub fn decided() -> impl Strategy<Value = TraceCase> {
    (policies(), any::<bool>(), modes(), traces()).prop_map(|(rules, in_one_slot, modes, trace)| {
        TraceCase { modes, ..TraceCase::new(vec![text_of(&rules, in_one_slot)], trace) }
    })
}

/// Generates the same at instants that need more bytes.
pub fn decided_later() -> impl Strategy<Value = TraceCase> {
    (policies(), select(LATER.to_vec()), traces()).prop_map(|(rules, begin, trace)| TraceCase {
        begin,
        ..TraceCase::new(vec![text_of(&rules, false)], trace)
    })
}

/// Generates the same under amounts that change and change back.
pub fn with_other_amounts() -> impl Strategy<Value = TraceCase> {
    let pairs = prop::collection::vec(changing_rules(), 3..8);
    (pairs, traces()).prop_map(|(pairs, trace)| {
        let (before, after): (Vec<RandomRule>, Vec<RandomRule>) = pairs.into_iter().unzip();
        let policies = [&before, &after, &before].map(|rules| text_of(rules, false)).to_vec();
        TraceCase::new(policies, trace)
    })
}

/// Generates hits charged in advance that return after grants and resets.
pub fn lent() -> impl Strategy<Value = TraceCase> {
    let keys = || select(vec!["k0=a", "k1=a"]);
    // Loans, and hits that a proxy has admitted, whether they fit or not.
    let modes = select(vec![Charge::Admitted, Charge::Always]);
    let lends = (keys(), 1u32..5, modes).prop_map(|(descriptor, hits, mode)| {
        TraceOperation::Lend(descriptor.to_owned(), hits, mode)
    });
    let grants = (1u32..9, select(vec![100, 5_000, 100_000_000]))
        .prop_map(|(hits, us)| Amendment::Grant { hits, length: Micros::new(us) });
    let amendments =
        prop_oneof![4 => grants, 1 => Just(Amendment::Reset), 2 => Just(Amendment::Look)];
    let amended = (keys(), amendments)
        .prop_map(|(descriptor, what)| TraceOperation::Amend(descriptor.to_owned(), what));
    let back =
        (any::<usize>(), 1u64..6).prop_map(|(which, hits)| TraceOperation::TakeBack(which, hits));
    let usable = select(vec![0, 1, 50, 3_000_000]).prop_map(Micros::new);
    let returned = (any::<usize>(), 0u64..6, usable)
        .prop_map(|(which, hits, time)| TraceOperation::Return(which, hits, time));
    let operations = prop_oneof![4 => lends, 3 => back, 2 => returned, 3 => amended];
    let steps = prop_oneof![
        12 => Just(0),
        18 => 1i64..50,
        6 => -50i64..0,
        3 => 0i64..5_000,
        1 => 0i64..3_000_000,
    ];
    let traces = prop::collection::vec((steps, operations), REQUESTS / 2..REQUESTS);
    let policies = prop::collection::vec(rules(), 2);
    (policies, traces)
        .prop_map(|(rules, trace)| TraceCase::new(vec![text_of(&rules, false)], trace))
}

/// Generates requests under limits that record, and lists of their tallies.
pub fn tallied() -> impl Strategy<Value = TraceCase> {
    // A caller that takes another's tally at one slot does so although another slot denies.
    any::<bool>().prop_flat_map(|in_one_slot| {
        tallied_of(in_one_slot, if in_one_slot { MANY_CALLERS } else { FEW_CALLERS })
    })
}

fn tallied_of(in_one_slot: bool, callers: u8) -> impl Strategy<Value = TraceCase> {
    let recording = rules().prop_map(|rule| {
        let rule = rule.without_record();
        RandomRule { limit: rule.limit + RECORD, ..rule }
    });
    let caller = (0..callers).prop_map(|number| descriptor(&[("who", &number.to_string())]));
    let caller = prop::option::weighted(0.8, caller);
    // Each request has one counter, which can have more callers than tallies.
    let requests = (prop::collection::vec(descriptors(), 0..4), caller)
        .prop_map(|(all, caller)| {
            std::iter::once(descriptor(&[("k0", "a")])).chain(all).chain(caller).collect()
        })
        .prop_map(|all| TraceOperation::Decide(request(all)));
    let keys = select(vec!["k0=a", "k0=b", "k1=a", "k2=a", "k3=a"]);
    let tallies =
        keys.clone().prop_map(|descriptor| TraceOperation::Tallies(descriptor.to_owned()));
    let resets =
        keys.prop_map(|descriptor| TraceOperation::Amend(descriptor.to_owned(), Amendment::Reset));
    let operations = prop_oneof![12 => requests, 4 => tallies, 1 => resets];
    // Less than a minute in total, for which all stores keep a counter that does not matter.
    let steps = prop_oneof![4 => Just(0), 6 => 1i64..50, 2 => -50i64..0, 3 => 1_000i64..100_000];
    let traces = prop::collection::vec((steps, operations), REQUESTS / 2..REQUESTS);
    let policies = prop::collection::vec(recording, 1..5);
    (policies, modes(), traces).prop_map(move |(rules, modes, trace)| TraceCase {
        modes,
        ..TraceCase::new(vec![text_of(&rules, in_one_slot)], trace)
    })
}

fn modes() -> impl Strategy<Value = Modes> {
    let bits = (prop::bool::weighted(0.2), prop::bool::weighted(0.2));
    bits.prop_map(|(shadow, quota)| Modes { shadow, quota })
}

fn traces() -> impl Strategy<Value = Vec<TraceStep>> {
    let requests = || prop::collection::vec(descriptors(), 1..5);
    let decided = requests().prop_map(|all| TraceOperation::Decide(request(all)));
    let tried = requests().prop_map(|all| {
        // A refund cannot be tried.
        let all = all.into_iter().map(|one| RateLimitDescriptor { is_negative_hits: false, ..one });
        TraceOperation::Try(request(all.collect()))
    });
    let at_once = at_once(descriptors());
    let operations = prop_oneof![8 => decided, 2 => tried, 1 => amendments(), 2 => at_once];
    prop::collection::vec((steps(), operations), REQUESTS / 2..REQUESTS)
}

/// Generates requests at once, each of one of the descriptors.
pub(super) fn at_once(
    descriptors: impl Strategy<Value = RateLimitDescriptor>,
) -> impl Strategy<Value = TraceOperation> {
    let requests = prop::collection::vec(descriptors.prop_map(|one| request(vec![one])), 2..6);
    requests.prop_map(TraceOperation::Together)
}

fn amendments() -> impl Strategy<Value = TraceOperation> {
    let lengths = select(vec![0, 1, 30, 1_000_000, 100_000_000, 86_400_000_000]);
    let grants = (0u32..9, lengths)
        .prop_map(|(hits, us)| Amendment::Grant { hits, length: Micros::new(us) });
    let what = prop_oneof![
        2 => Just(Amendment::Look),
        2 => Just(Amendment::Reset),
        2 => (0u32..9).prop_map(Amendment::Refund),
        3 => grants,
    ];
    let keys = select(vec!["k0=a", "k1=a", "k2=a", "k3=a", "k4=a", "k0=b"]);
    (keys, what).prop_map(|(descriptor, what)| TraceOperation::Amend(descriptor.to_owned(), what))
}

pub fn steps() -> impl Strategy<Value = i64> {
    prop_oneof![
        6 => Just(0),
        6 => 1i64..50,
        4 => -50i64..0,
        4 => 1_000i64..2_000_000,
        2 => -2_000_000i64..0,
        2 => 1_000_000i64..100_000_000,
        1 => select(vec![60_000_000, 3_600_000_000, 86_400_000_000, 2_592_000_000_000]),
        1 => -59_000_000i64..0,
    ]
}

fn descriptors() -> impl Strategy<Value = RateLimitDescriptor> {
    let hits = prop_oneof![
        6 => Just(None),
        2 => Just(Some(0)),
        6 => (1u64..6).prop_map(Some),
        1 => select(vec![100, 70_000, 4_294_967_294, 4_294_967_295]).prop_map(Some),
    ];
    let limits = (0u32..6, 1i32..5, prop::option::of(1u32..4)).prop_map(
        |(requests_per_unit, unit, unit_multiplier)| RateLimitOverride {
            requests_per_unit,
            unit,
            unit_multiplier,
        },
    );
    let limits = prop_oneof![8 => Just(None), 1 => limits.prop_map(Some)];
    // A value that is longer than a key's text is identified by a digest.
    let values = prop_oneof![6 => Just("a"), 2 => Just("b"), 1 => Just(concat!("0123456789012345678901234567890123456789", "0123456789012345678901234567890123456789"))];
    let keys = select(vec!["k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7", "k8", "k9", "who"]);
    (keys, values, hits, prop::bool::weighted(0.12), limits).prop_map(
        |(key, value, hits, is_refund, limit)| RateLimitDescriptor {
            hits_addend: hits,
            is_negative_hits: is_refund,
            limit,
            ..descriptor(&[(key, value)])
        },
    )
}
