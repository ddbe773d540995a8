//! Times of decisions: until hits fit, until a counter is unused, and what a caller should wait.

use super::*;

const RULES: &str = "
  - {key: minute, rate_limit: {unit: minute, requests_per_unit: 2}}
  - {key: hour, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: rate, rate_limit: {unit: minute, requests_per_unit: 60, algorithm: gcra, burst: 2}}
  - {key: ban, rate_limit: {unit: minute, requests_per_unit: 0}}
  - {key: free, rate_limit: {unlimited: true}}
  - {key: vote, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 1}}
  - {key: no vote, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 0}}
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

/// Returns the times of the only status, in seconds: to retry, to the reset, and to wait, which is
/// `never` if no retry is admitted.
fn times(bench: &LimiterFixture, input: DescriptorInput<'_>) -> (Option<u64>, Option<u64>, String) {
    let read = |decision: &Decision<'_>| {
        let status = &decision.statuses()[0];
        let wait = decision.wait_of(status).map_or_else(String::new, text);
        (seconds(status.retry_after()), seconds(status.reset_after()), wait)
    };
    bench.read("d", &[input], false, read).unwrap()
}

fn text(wait: CallerWait) -> String {
    match wait {
        CallerWait::Unknown => "unknown".to_owned(),
        CallerWait::For(time) => seconds(Some(time)).unwrap().to_string(),
        CallerWait::Never(hint) => format!("never, hint {:?}", seconds(hint)),
    }
}

/// Returns the time after which a request is admitted, in seconds.
fn retry_after(bench: &LimiterFixture, entries: &[&str]) -> String {
    let inputs: Vec<_> = entries.iter().map(|entries| take(entries)).collect();
    bench.read("d", &inputs, false, |decision| text(decision.retry())).unwrap()
}

#[test]
fn a_caller_waits_until_its_hits_fit_or_the_counter_resets() {
    let bench = after_ten_seconds();
    let [_, allowed, denied] = [(); 3].map(|()| times(&bench, take("minute")));
    assert_eq!(allowed, (None, Some(50), "50".to_owned()));
    assert_eq!(denied, (Some(50), Some(50), "50".to_owned()));
    let [_, allowed, denied] = [(); 3].map(|()| times(&bench, take("rate")));
    assert_eq!(allowed, (None, Some(2), "2".to_owned()));
    assert_eq!((denied.0, denied.2), (Some(1), "1".to_owned()));
    assert_eq!(times(&bench, take("free")), (None, None, String::new()));
    assert_eq!(times(&bench, take("none")), (None, None, String::new()));
}

#[test]
fn of_hits_that_never_fit_proxies_get_the_rest_of_a_window_or_a_period() {
    let bench = after_ten_seconds();
    for (entries, count, hint) in [
        ("ban", 1, Some(50)),
        ("minute", 3, Some(50)),
        ("hour", 2, Some(3_590)),
        ("rate", 3, Some(60)),
    ] {
        let found = times(&bench, hits(entries, Hits::Charge(count)));
        assert_eq!(found.2, format!("never, hint {hint:?}"), "{entries}");
        assert_eq!(found.0, None, "{entries}");
    }
}

#[test]
fn a_request_waits_for_all_limits_that_deny_it_and_for_one_of_those_in_quota_mode() {
    let bench = after_ten_seconds();
    for entries in ["minute", "minute", "hour", "vote", "slow"] {
        assert_eq!(retry_after(&bench, &[entries]), "unknown", "{entries}");
    }
    for (entries, time) in [
        (&["minute"][..], "50"),
        (&["minute", "hour"], "3590"),
        (&["vote", "slow"], "50"),
        (&["slow"], "3590"),
        (&["minute", "slow"], "3590"),
        (&["hour", "vote"], "3590"),
        (&["minute", "free"], "50"),
        (&["minute", "ban"], "never, hint Some(50)"),
        (&["vote", "no vote"], "50"),
        (&["no vote"], "never, hint Some(50)"),
    ] {
        assert_eq!(retry_after(&bench, entries), time, "{entries:?}");
    }
    // A vote that passes leaves the limits that are enforced.
    let bench = after_ten_seconds();
    retry_after(&bench, &["slow"]);
    assert_eq!(retry_after(&bench, &["slow", "vote", "ban"]), "never, hint Some(50)");
}

/// A proxy takes the time of one descriptor: that of each vote is the time of the request.
#[test]
fn each_limit_in_quota_mode_that_denies_has_the_shortest_wait_of_them() {
    let bench = after_ten_seconds();
    let waits = |entries: &[&str]| {
        let inputs: Vec<_> = entries.iter().map(|entries| take(entries)).collect();
        let read = |decision: &Decision<'_>| {
            let waits = decision.statuses().iter().map(|status| decision.wait_of(status));
            waits.map(|wait| wait.map_or_else(String::new, text)).collect::<Vec<_>>()
        };
        bench.read("d", &inputs, false, read).unwrap()
    };
    assert_eq!(waits(&["vote", "slow"]), ["50", "3590"], "both admit");
    assert_eq!(waits(&["slow", "vote", "no vote", "minute"]), ["50", "50", "50", "50"]);
    assert_eq!(waits(&["slow", "free"]), ["3590", ""]);
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
