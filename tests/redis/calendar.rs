//! Calendar windows if the server's clock, or the time of a counter, is far from this process's
//! clock.

use futures_util::future::join_all;
use tollgate::algorithm::amend::Amendment;
use tollgate::grpc::proto::rate_limit_response::Code;
use tollgate::limiter::Modes;

use super::{calls, cluster, policy, serve};
use crate::support::policy::Policies;
use crate::support::redis::{Redis, Setup};
use crate::support::rls::{descriptor, request};
use crate::support::traces::sides::Sides;

const HOUR: u64 = 3_600_000_000;
const DAY: u64 = 24 * HOUR;
/// Noon of a day, UTC.
const NOON: u64 = 20_600 * DAY + 12 * HOUR;

const RULES: [(&str, &str); 3] = [
    (
        "day",
        "requests_per_unit: 3, unit: day, calendar: true, time_zone: Europe/Berlin, charge: admitted",
    ),
    ("week", "requests_per_unit: 4, unit: week, calendar: true, charge: always"),
    (
        "month",
        "requests_per_unit: 9, unit: month, calendar: true, time_zone: America/St_Johns, charge: admitted",
    ),
];

#[tokio::test]
async fn a_clock_many_windows_behind_a_counter_leaves_it_unchanged() {
    let redis = Redis::start().await;
    let cluster = cluster().await;
    let sides = Sides::new(&[redis.url(), cluster.url()], "calendar:", Modes::default()).await;
    sides.install(&policy(&RULES));
    let decide = async |at: u64, keys: &[&str]| {
        let descriptors = keys.iter().map(|key| descriptor(&[(key, "")])).collect();
        let (answer, times, _) = sides.decide(at, &request(descriptors)).await.unwrap().unwrap();
        (answer.statuses.iter().map(|status| status.limit_remaining).collect::<Vec<_>>(), times)
    };
    // The later time first: memory could have removed a counter of the earlier one by then, if both
    // are in one shard.
    assert_eq!(decide(NOON + 430 * DAY, &["week", "month"]).await.0, [3, 8]);
    for left in [2, 1, 0] {
        assert_eq!(decide(NOON + 400 * DAY, &["day"]).await.0, [left]);
    }
    // Each counter is judged at the time of its last write, and reports times relative to that.
    for back in [401, 30, 3, 2, 1] {
        let (left, times) = decide(NOON + 401 * DAY - back * DAY, &["day", "month", "week"]).await;
        assert_eq!(left[0], 0, "{back} days back");
        assert_eq!(times[0], [Some(10 * HOUR), Some(10 * HOUR)], "midnight in Berlin, in summer");
    }
    assert_eq!(decide(NOON + 401 * DAY, &["day"]).await.0, [2], "the next day");
}

#[tokio::test]
async fn amendments_in_one_call_do_not_affect_those_of_counters_far_ahead() {
    let redis = Redis::start().await;
    let sides = Sides::new(&[redis.url()], "calendar:", Modes::default()).await;
    sides.install(&policy(&RULES));
    let users: Vec<String> = (0..12).map(|user| format!("user{user}")).collect();
    for (at, key) in [(NOON + 430 * DAY, "week"), (NOON, "day")] {
        for user in &users {
            sides.decide(at, &request(vec![descriptor(&[(key, user)])])).await.unwrap().unwrap();
        }
    }
    for amendment in [Amendment::Refund(1), Amendment::Reset, Amendment::Refund(1)] {
        let before = calls(&[&redis], "evalsha").await;
        // A counter that is far ahead is amended again in another call, and those before and after
        // it are not.
        let counters = users.iter().flat_map(|user| [("week", user), ("day", user)]);
        let amended = join_all(counters.map(async |(key, user)| {
            let amended = sides.amend(NOON, &format!("{key}={user}"), amendment).await;
            amended.unwrap().unwrap()
        }))
        .await;
        let used = calls(&[&redis], "evalsha").await - before;
        assert!(used < 2 * users.len() as u64, "{used} calls for {} amendments", amended.len());
    }
}

#[tokio::test]
async fn a_server_whose_clock_is_years_apart_counts_in_its_own_windows() {
    for days in [-800, 800] {
        let setup = Setup { clock_offset: days * 86_400, ..Setup::default() };
        let redis = Redis::start_as(setup).await;
        let rules = ["admitted", "always"].map(|charge| {
            format!("requests_per_unit: 5, unit: year, calendar: true, time_zone: Asia/Tokyo, charge: {charge}")
        });
        let policies = Policies::of(&policy(&[("admitted", &rules[0]), ("always", &rules[1])]));
        // Two processes; the first has learnt of the server's clock before the second sends a
        // request.
        let (_one, one) = serve(&policies, &redis.url(), &[]).await;
        let (_other, other) = serve(&policies, &redis.url(), &[]).await;
        for key in ["admitted", "always"] {
            let mut admitted = 0;
            for client in [&one, &other, &one, &other, &one, &other, &one, &other, &one, &other] {
                let answer = client.decide(request(vec![descriptor(&[(key, "")])])).await.unwrap();
                admitted += u32::from(answer.overall_code() == Code::Ok);
            }
            assert_eq!(admitted, 5, "{key}, {days} days apart");
        }
    }
}
