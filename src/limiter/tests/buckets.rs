//! Buckets of RLQS: the limits that proxies enforce, and what becomes of the others.

use super::*;
use crate::limiter::BucketTarget;

const RULES: &str = "
  - key: lent
    rate_limit: { unit: minute, requests_per_unit: 6000, lease: LEASE }
  - { key: plain, rate_limit: { unit: minute, requests_per_unit: 60 } }
  - { key: held, rate_limit: { unit: minute, requests_per_unit: 60, hold: { ttl: 1m } } }
  - key: tried
    shadow_mode: true
    rate_limit: { unit: minute, requests_per_unit: 6000, lease: LEASE }
  - { key: tried_plain, shadow_mode: true, rate_limit: { unit: minute, requests_per_unit: 60 } }
  - key: tried_held
    shadow_mode: true
    rate_limit: { unit: minute, requests_per_unit: 60, hold: { ttl: 1m } }
  - { key: free, rate_limit: { unlimited: true } }
";
const LEASE: &str = "{ size: 1%, ttl: 1s, rlqs: { ttl: 15s, size: 10% } }";

/// Returns the treatment of a bucket with one pair, in words.
fn treated(bench: &LimiterFixture, domain: &str, pair: &str) -> String {
    let snapshot = bench.limiter.snapshot();
    let live = snapshot.as_deref().unwrap();
    match bench.limiter.bucket_target(live, domain, &[entry(pair)]) {
        BucketTarget::Unlimited => "unlimited".to_owned(),
        BucketTarget::Limited(_, lease) => format!("limited, {} at a time", lease.hits),
        BucketTarget::Shadow(target) => format!("shadow of {}", target.rule().path()),
        BucketTarget::Unsupported(_, reason, answer) => format!("{reason:?}: {}", answer.word()),
    }
}

#[test]
fn a_bucket_is_limited_if_its_limit_is_lent_and_nothing_in_shadow_mode_denies() {
    let bench = bench(&RULES.replace("LEASE", LEASE));
    for (pair, treatment) in [
        ("lent=1", "limited, 600 at a time"),
        ("plain=1", "NoSection: deny"),
        ("held=1", "Holds: deny"),
        ("tried=1", "shadow of tried"),
        ("tried_plain=1", "shadow of tried_plain"),
        ("tried_held=1", "unlimited"),
        ("free=1", "unlimited"),
        ("none=1", "unlimited"),
    ] {
        assert_eq!(treated(&bench, "d", pair), treatment, "{pair}");
    }
    assert_eq!(treated(&bench, "e", "lent=1"), "unlimited");
    let snapshot = bench.limiter.snapshot();
    let answer =
        |domain| bench.limiter.unsupported_quota(snapshot.as_deref().unwrap(), domain).word();
    assert_eq!(["d", "e"].map(answer), ["deny", "allow"]);
}
