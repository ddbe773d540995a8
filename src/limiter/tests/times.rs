//! Times of decisions: until hits fit, until a counter is unused, and what a caller should wait.

use super::*;

const RULES: &str = "
  - {key: minute, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: hour, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: rate, rate_limit: {unit: minute, requests_per_unit: 60, algorithm: gcra, burst: 2}}
  - {key: ban, rate_limit: {unit: minute, requests_per_unit: 0}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: vote, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: slow, quota_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}
";

/// Creates a limiter ten seconds after the start of a minute.
fn after_ten_seconds() -> LimiterFixture {
    let bench = bench(RULES);
    bench.at(10 * SECOND);
    bench
}

fn seconds(time: Option<Micros>) -> Option<u64> {
    time.map(|time| time.get().div_ceil(SECOND))
}

/// Returns the times of the only status, in seconds: to retry, to the reset, to the end of the
/// window of a ban, and to wait.
fn times(bench: &LimiterFixture, entries: &str) -> [Option<u64>; 4] {
    let read = |decision: &Decision<'_>| {
        let status = &decision.statuses()[0];
        let times = [
            status.retry_after(),
            status.reset_after(),
            status.ban_window_ends_after(),
            status.wait_hint(),
        ];
        times.map(seconds)
    };
    bench.read("d", &[take(entries)], false, read).unwrap()
}

/// Returns the time after which a request is admitted, in seconds.
fn retry_after(bench: &LimiterFixture, entries: &[&str]) -> Option<u64> {
    let inputs: Vec<_> = entries.iter().map(|entries| take(entries)).collect();
    bench.read("d", &inputs, false, |decision| seconds(decision.retry_after())).unwrap()
}

#[test]
fn a_caller_waits_until_its_hits_fit_or_the_counter_resets_or_a_ban_has_a_new_window() {
    let bench = after_ten_seconds();
    let [_, allowed, denied] = [(); 3].map(|()| times(&bench, "minute"));
    assert_eq!(allowed, [None, Some(50), None, Some(50)]);
    assert_eq!(denied, [Some(50), Some(50), None, Some(50)]);
    let [_, allowed, denied] = [(); 3].map(|()| times(&bench, "rate"));
    assert_eq!(allowed, [None, Some(2), None, Some(2)]);
    assert_eq!(denied[0], Some(1));
    assert_eq!(denied[3], Some(1));
    assert_eq!(times(&bench, "ban"), [None, None, Some(50), Some(50)]);
    assert_eq!(times(&bench, "free"), [None; 4]);
    assert_eq!(times(&bench, "none"), [None; 4]);
}

#[test]
fn a_request_waits_for_all_limits_that_deny_it_and_for_one_of_those_in_quota_mode() {
    let bench = after_ten_seconds();
    for entries in ["minute", "minute", "hour", "vote", "slow"] {
        assert_eq!(retry_after(&bench, &[entries]), None, "{entries}");
    }
    for (entries, time) in [
        (&["minute"][..], Some(50)),
        (&["minute", "hour"], Some(3_590)),
        (&["vote", "slow"], Some(50)),
        (&["slow"], Some(3_590)),
        (&["minute", "slow"], Some(3_590)),
        (&["hour", "vote"], Some(3_590)),
        (&["minute", "free"], Some(50)),
    ] {
        assert_eq!(retry_after(&bench, entries), time, "{entries:?}");
    }
    // A vote that passes leaves the limits that are enforced.
    let bench = after_ten_seconds();
    retry_after(&bench, &["slow"]);
    assert_eq!(retry_after(&bench, &["slow", "vote", "ban"]), Some(50));
}

#[test]
fn a_status_has_the_amount_that_binds_and_what_is_left_of_it() {
    let bench = after_ten_seconds();
    let read = |decision: &Decision<'_>| {
        let status = &decision.statuses()[0];
        let limit = status.limit().map(|limit| (limit.amount, seconds(limit.period)));
        (status.remaining(), status.left(), limit)
    };
    let of = |entries| bench.read("d", &[take(entries)], false, read).unwrap();
    let minute = Some((2, Some(60)));
    assert_eq!(of("minute"), (Some(1), Some(1), minute));
    of("minute");
    assert_eq!(of("minute"), (Some(0), Some(0), minute));
    let several = hits("rate", Hits::Charge(3));
    let found = bench.read("d", &[several], false, read).unwrap();
    assert_eq!(found, (Some(0), Some(2), Some((60, Some(60)))));
    assert_eq!(of("free"), (None, None, None));
    assert_eq!(of("none"), (None, None, None));
}
