//! Rates whose amount changes, and rates whose numbers a double does not hold exactly: memory,
//! one server and a Cluster agree, and no hits are forgotten.

use tollgate::algorithm::Charge;
use tollgate::algorithm::amend::Amendment;
use tollgate::algorithm::quota::MAX_HITS;
use tollgate::algorithm::time::{Micros, Timestamp};
use tollgate::limiter::Modes;

use super::{cluster, policy};
use crate::support::redis::Redis;
use crate::support::redis::cluster::Cluster;
use crate::support::rls::{descriptor, request};
use crate::support::traces::sides::Sides;

const START: u64 = 1_780_000_000_000_000;
const HOUR: u64 = 3_600_000_000;
const YEAR: u64 = 365 * 24 * HOUR;

async fn sides(prefix: &str) -> (Sides, Redis, Cluster) {
    let redis = Redis::start().await;
    let cluster = cluster().await;
    let sides = Sides::new(&[redis.url(), cluster.url()], prefix, Modes::default()).await;
    (sides, redis, cluster)
}

fn hourly(amount: u32) -> String {
    policy(&[
        ("gcra", &format!("algorithm: gcra, requests_per_unit: {amount}, unit: hour")),
        (
            "bucket",
            &format!(
                "algorithm: token_bucket, requests_per_unit: {amount}, unit: hour, burst: {amount}"
            ),
        ),
    ])
}

/// Returns the hits used of the counter of `key`, under the policy in force.
async fn used(sides: &Sides, at: u64, key: &str) -> u64 {
    sides.amend(at, &format!("{key}="), Amendment::Look).await.unwrap().unwrap().after.windows[0]
        .used
}

#[tokio::test]
async fn a_write_with_a_hundredth_of_the_amount_loses_no_hit() {
    let (sides, _redis, _cluster) = sides("rates:").await;
    let low = hourly(100);
    let high = hourly(10_000);
    for key in ["gcra", "bucket"] {
        let descriptor = format!("{key}=");
        sides.install(&low);
        let lent = sides.lend(START, &descriptor, 50, Charge::Admitted).await.unwrap().unwrap();
        sides.install(&high);
        assert!(sides.lend(START, &descriptor, 9_950, Charge::Admitted).await.unwrap().is_some());
        assert_eq!(used(&sides, START, key).await, 10_000);
        // The block of the previous amount is returned, and so is a hit that a replica refunds
        // before its reload.
        sides.install(&low);
        sides.take_back(START, &descriptor, lent).await;
        sides.amend(START, &descriptor, Amendment::Refund(1)).await.unwrap().unwrap();
        assert_eq!(used(&sides, START, key).await, 9_949, "{key}, by the lower amount");
        sides.install(&high);
        assert_eq!(used(&sides, START, key).await, 9_949, "{key}");
        assert_eq!(
            sides.lend(START, &descriptor, 52, Charge::Admitted).await.unwrap(),
            None,
            "{key}: 51 are left"
        );
        assert!(
            sides.lend(START, &descriptor, 51, Charge::Admitted).await.unwrap().is_some(),
            "{key}"
        );
    }
}

#[tokio::test]
async fn a_refund_under_another_amount_leaves_a_hold_its_hits() {
    let (sides, _redis, _cluster) = sides("rates:").await;
    let hourly = |amount: u64| {
        let limit = format!(
            "algorithm: gcra, requests_per_unit: {amount}, unit: hour, burst: {amount}, \
             hold: {{ ttl: 1m }}"
        );
        policy(&[("gcra", &limit)])
    };
    let decide = async |at: u64, hold: Option<&str>, hits: u64| {
        let hold = hold.map(|operation| (operation, "r"));
        let entries: Vec<_> = std::iter::once(("gcra", "")).chain(hold).collect();
        let descriptor = tollgate::grpc::proto::RateLimitDescriptor {
            hits_addend: Some(hits),
            ..descriptor(&entries)
        };
        sides.decide(at, &request(vec![descriptor])).await.unwrap().unwrap();
    };
    for [begin, from, to] in [[START, 10_000, 100], [START + YEAR, 100, 10_000]] {
        sides.install(&hourly(from));
        decide(begin + 1, None, 30).await;
        decide(begin + 2, Some("tollgate.reserve"), 20).await;
        decide(begin + 3, None, 10).await;
        sides.install(&hourly(to));
        sides.amend(begin + 4, "gcra=", Amendment::Refund(5)).await.unwrap().unwrap();
        decide(begin + 5, Some("tollgate.commit"), 0).await;
        assert_eq!(used(&sides, begin + 6, "gcra").await, 35, "from {from} to {to} an hour");
    }
}

#[tokio::test]
async fn the_reported_time_after_a_change_of_the_amount_admits() {
    let (sides, _redis, _cluster) = sides("rates:").await;
    sides.install(&hourly(3_600));
    assert!(sides.lend(START, "gcra=", 3_600, Charge::Admitted).await.unwrap().is_some());
    sides.install(&hourly(360));
    let retry_after = async |after: u64| {
        let answer =
            sides.decide(START + after, &request(vec![descriptor(&[("gcra", "")])])).await.unwrap();
        answer.unwrap().1[0][0]
    };
    // It drains at the rate of its charge until the next write: 3,241 of 3,600 hits must drain at 1
    // per second.
    assert_eq!(retry_after(0).await, Some(3_241_000_000));
    assert_eq!(retry_after(1_000_000_000).await, Some(2_241_000_000));
    assert_eq!(retry_after(3_240_999_999).await, Some(1));
    assert_eq!(retry_after(3_241_000_000).await, None);
}

#[tokio::test]
async fn times_are_exact_if_backlog_and_cost_exceed_a_double() {
    let (sides, _redis, _cluster) = sides("rates:").await;
    let slow = "algorithm: gcra, requests_per_unit: 1, unit: year, burst: 71, max_debt: 214, charge: always";
    sides.install(&policy(&[("slow", slow)]));
    let times = async |at: u64, hits: u64| {
        let descriptor = tollgate::grpc::proto::RateLimitDescriptor {
            hits_addend: Some(hits),
            ..descriptor(&[("slow", "")])
        };
        sides.decide(at, &request(vec![descriptor])).await.unwrap().unwrap().1[0]
    };
    times(START, 285).await;
    const { assert!(285 * YEAR < MAX_HITS && (285 + 71) * YEAR > MAX_HITS) };
    for passed in [1, 3, 7, 1_001] {
        let peeked = sides
            .amend(START + passed, "slow=", Amendment::Look)
            .await
            .unwrap()
            .unwrap()
            .after
            .windows[0];
        assert_eq!(peeked.retry_after.unwrap().get(), 215 * YEAR - passed);
    }
    let [retry, reset] = times(START + 1, 71).await;
    assert_eq!(
        (retry, reset),
        (Some(285 * YEAR), Some(285 * YEAR)),
        "as much again as is owed at most"
    );
}

#[tokio::test]
async fn a_charge_that_is_taken_back_leaves_an_expired_grant_for_a_clock_that_steps_back() {
    let (sides, _redis, _cluster) = sides("rates:").await;
    sides.install(&policy(&[
        ("a", "requests_per_unit: 3, unit: year, charge: admitted"),
        ("b", "requests_per_unit: 1, unit: year, charge: admitted"),
    ]));
    let decide = async |at: u64, keys: &[&str]| {
        let descriptors = keys.iter().map(|key| descriptor(&[(key, "")])).collect();
        sides.decide(at, &request(descriptors)).await.unwrap().unwrap();
    };
    decide(START, &["a"]).await;
    let grant = Amendment::Grant { hits: 5, length: Micros::new(1) };
    sides.amend(START + 10, "a=", grant).await.unwrap().unwrap();
    decide(START + 20, &["b"]).await;
    // In a Cluster, the first is charged until the slot of the second denies.
    decide(START + 1_000_000, &["a", "b"]).await;
    let seen = sides.amend(START + 5, "a=", Amendment::Look).await.unwrap().unwrap();
    assert_eq!(seen.after.at, Timestamp::from_micros(START + 10));
    assert_eq!(seen.after.grant.map(|grant| grant.left), Some(5));
}
