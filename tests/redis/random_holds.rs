//! Random policies and traces with holds and permits, and two that are not random: memory, one
//! server and a cluster give the same answers, and list the same open holds.

use tollgate::algorithm::amend::Amendment;
use tollgate::algorithm::hold::HoldEffect;
use tollgate::grpc::proto::RateLimitDescriptor;
use tollgate::limiter::Modes;

use super::random::agree;
use super::{cluster, policy};
use crate::support::redis::Redis;
use crate::support::rls::{descriptor, request};
use crate::support::traces::cases::START;
use crate::support::traces::hold_cases;
use crate::support::traces::sides::Sides;

const CASES: u32 = 10;

#[test]
fn memory_redis_and_a_cluster_hold_alike_in_one_slot() {
    agree(5, CASES, hold_cases::in_one_slot());
}

#[test]
fn memory_redis_and_a_cluster_hold_alike_across_slots() {
    agree(6, CASES, hold_cases::across_slots());
}

#[test]
fn memory_redis_and_a_cluster_merge_marks_alike() {
    agree(9, 3, hold_cases::merging_marks());
}

#[tokio::test]
async fn two_holds_of_a_request_are_kept_after_a_charge_under_a_limit_without_holds() {
    let redis = Redis::start().await;
    let sides = Sides::new(&[redis.url()], "stale:", Modes::default()).await;
    let one = |operation, id, hits| RateLimitDescriptor {
        hits_addend: Some(hits),
        ..descriptor(&[("user", "x"), (operation, id)])
    };
    // Permits are in the value: a limit without holds cannot have them.
    for plain in [
        "requests_per_unit: 100, unit: year",
        "windows: [{ requests_per_unit: 100, unit: day }, { requests_per_unit: 100, unit: year }]",
        "algorithm: gcra, requests_per_unit: 100, unit: year",
        "algorithm: sliding_window, requests_per_unit: 100, unit: year",
        "algorithm: sliding_log, requests_per_unit: 100, unit: hour",
    ] {
        let limit = &*format!("{plain}, hold: {{ ttl: 1m }}");
        sides.clear().await;
        let steps = [
            (limit, vec![one("tollgate.reserve", "a", 5)]),
            (plain, vec![descriptor(&[("user", "x")])]),
            (limit, vec![one("tollgate.reserve", "b", 5), one("tollgate.reserve", "c", 7)]),
            (limit, vec![one("tollgate.commit", "b", 2), one("tollgate.commit", "c", 9)]),
            (limit, vec![one("tollgate.commit", "a", 1)]),
        ];
        let mut effects = Vec::new();
        for (at, (limit, descriptors)) in (START..).step_by(1_000).zip(steps) {
            sides.install(&policy(&[("user", limit)]));
            let decided = sides.decide(at, &request(descriptors)).await;
            effects.extend(decided.unwrap_or_else(|error| panic!("{limit}: {error}")).unwrap().2);
        }
        let reserved = HoldEffect::Reserved { repeated: false };
        let committed = |reserved, cost| HoldEffect::Committed { reserved, cost };
        let unknown = HoldEffect::Unknown { cost: 1 };
        let expected = [
            reserved,
            HoldEffect::Nothing,
            reserved,
            reserved,
            committed(5, 2),
            committed(7, 9),
            unknown,
        ];
        assert_eq!(effects, expected, "{limit}");
    }
}

#[tokio::test]
async fn a_commit_that_only_ends_a_hold_drops_an_expired_reset() {
    let servers = (Redis::start().await, cluster().await);
    let sides = Sides::new(&[servers.0.url(), servers.1.url()], "reset:", Modes::default()).await;
    let one = |operation, id, hits| RateLimitDescriptor {
        hits_addend: Some(hits),
        ..descriptor(&[("user", "x"), (operation, id)])
    };
    let second = 1_000_000;
    for limit in ["algorithm: sliding_log", "algorithm: sliding_window", "algorithm: gcra", ""] {
        sides.clear().await;
        let limit = format!("requests_per_unit: 20, unit: minute, hold: {{ ttl: 5m }}, {limit}");
        sides.install(&policy(&[("user", limit.trim_end_matches(", "))]));
        let charge = RateLimitDescriptor { hits_addend: Some(3), ..descriptor(&[("user", "x")]) };
        sides.decide(START, &request(vec![charge])).await.unwrap().unwrap();
        let at = START + 50 * second;
        sides.amend(at, "user=x", Amendment::Reset).await.unwrap().unwrap();
        // By its instant, the reset voids these charges as well, until it has expired.
        for id in ["a", "b"] {
            let reserve = request(vec![one("tollgate.reserve", id, 5)]);
            sides.decide(at, &reserve).await.unwrap().unwrap();
        }
        for (id, cost) in [("a", 5), ("b", 0)] {
            let commit = request(vec![one("tollgate.commit", id, cost)]);
            sides.decide(START + 70 * second, &commit).await.unwrap().unwrap();
        }
        sides.amend(START + 70 * second, "user=x", Amendment::Look).await.unwrap().unwrap();
    }
}

/// The same charge at the same instant makes the value that the counter had with the hold.
#[tokio::test]
async fn a_hold_that_another_slot_denied_is_gone_if_the_counter_has_the_same_value_again() {
    let cluster = cluster().await;
    let sides = Sides::new(&[cluster.url()], "denied:", Modes::default()).await;
    let one = |key: (&str, &str), hits| RateLimitDescriptor {
        hits_addend: Some(hits),
        ..descriptor(&[("user", "x"), key])
    };
    for limit in [
        "requests_per_unit: 100, unit: year",
        "windows: [{ requests_per_unit: 100, unit: day }, { requests_per_unit: 100, unit: year }]",
        "algorithm: gcra, requests_per_unit: 100, unit: year",
        "algorithm: sliding_window, requests_per_unit: 100, unit: year",
        "algorithm: sliding_log, requests_per_unit: 100, unit: hour",
    ] {
        let holding = format!("{limit}, hold: {{ ttl: 1m }}");
        sides.install(&policy(&[("user", &holding), ("full", "requests_per_unit: 1, unit: year")]));
        // Used up by the first request.
        let full = || descriptor(&[("full", "")]);
        let charge = RateLimitDescriptor { hits_addend: Some(5), ..descriptor(&[("user", "x")]) };
        let steps = [
            vec![full()],
            vec![one(("tollgate.reserve", "r"), 5), full()],
            vec![charge],
            vec![one(("tollgate.commit", "r"), 2)],
        ];
        let mut effects = Vec::new();
        for descriptors in steps {
            let decided = sides.decide(START, &request(descriptors)).await;
            effects = decided.unwrap_or_else(|error| panic!("{limit}: {error}")).unwrap().2;
        }
        assert_eq!(effects, [HoldEffect::Unknown { cost: 2 }], "{limit}");
    }
}
