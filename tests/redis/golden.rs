//! Stored bytes stay the same: names and values of keys, and the versions of policies.
//!
//! A release reads the values that the previous one has written, and both run side by side during a
//! rollout. A change of these bytes is a change of the format: CHANGELOG lists the counters that
//! restart.
//!
//! With `TOLLGATE_GOLDEN=write` the file is written instead of compared.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use tollgate::algorithm::amend::Amendment;
use tollgate::algorithm::time::Micros;
use tollgate::grpc::proto::{RateLimitDescriptor, RateLimitRequest};
use tollgate::limiter::Modes;
use tollgate::policy::{self, Source};

use crate::support::redis::Redis;
use crate::support::rls::{descriptor, limit, request};
use crate::support::traces::sides::Sides;

/// Keys without entries below them, in the order of the policy.
const KEYS: [&str; 15] = [
    "fixed",
    "fixed_always",
    "fixed_blamed",
    "fixed_windows",
    "calendar",
    "ten_minutes",
    "sliding",
    "sliding_windows",
    "log",
    "log_windows",
    "gcra",
    "gcra_fraction",
    "gcra_large",
    "bucket",
    "recorded",
];
/// 2026-05-28T20:26:40Z, in microseconds.
const START: u64 = 1_780_000_000_000_000;
pub(super) const PREFIX: &str = "golden:";

#[tokio::test]
async fn names_and_values_of_keys_and_versions_of_policies_do_not_change() {
    let redis = Redis::start().await;
    let sides = Sides::new(&[redis.url()], PREFIX, Modes::default()).await;
    let policy = std::fs::read_to_string(file("policy.yaml")).unwrap();
    sides.install(&policy);
    let mut text = format!("version {}\n", version(&policy));
    write_requests(&sides).await;
    add(&mut text, "after requests", &redis).await;
    write_amendments(&sides).await;
    add(&mut text, "after amendments", &redis).await;
    compare("stored.txt", &text);
}

/// Makes the same requests of every rule: admitted, denied, several hits, refunds, later ones, and
/// requests of several descriptors.
pub(super) async fn write_requests(sides: &Sides) {
    let of = |key: &str, hits: Option<u64>| RateLimitDescriptor {
        hits_addend: hits,
        ..descriptor(&[(key, "a")])
    };
    for key in KEYS {
        decide(sides, START, request(vec![of(key, None)])).await;
        decide(sides, START + 1_234_567, request(vec![of(key, Some(2))])).await;
        decide(sides, START + 2_345_678, request(vec![of(key, Some(4))])).await;
        let back = RateLimitDescriptor { is_negative_hits: true, ..of(key, Some(1)) };
        decide(sides, START + 3_456_789, request(vec![back])).await;
        decide(sides, START + 64_567_890, request(vec![of(key, None)])).await;
    }
    let user = descriptor(&[("recorded", "a"), ("user", "ann")]);
    let named = descriptor(&[("named", "prefix-{x}\u{0}\u{ff}")]);
    decide(sides, START + 65_000_000, request(vec![user.clone(), named.clone()])).await;
    decide(sides, START + 66_000_000, request(vec![user, named, of("fixed", Some(9))])).await;
    let own = RateLimitDescriptor { limit: limit(3, 2), ..descriptor(&[("own", "a")]) };
    decide(sides, START + 67_000_000, request(vec![own])).await;
}

pub(super) async fn write_amendments(sides: &Sides) {
    let grant = Amendment::Grant { hits: 3, length: Micros::new(3_600_000_000) };
    for key in KEYS {
        let counter = format!("{key}=a");
        sides.amend(START + 70_000_000, &counter, Amendment::Refund(1)).await.unwrap().unwrap();
        sides.amend(START + 71_000_000, &counter, grant).await.unwrap().unwrap();
        decide(sides, START + 72_000_000, request(vec![descriptor(&[(key, "a")])])).await;
        sides
            .amend(START + 73_000_000, &format!("{key}=b"), Amendment::Reset)
            .await
            .unwrap()
            .unwrap();
    }
}

async fn decide(sides: &Sides, now: u64, message: RateLimitRequest) {
    sides.decide(now, &message).await.unwrap().unwrap();
}

fn version(policy: &str) -> String {
    let source = Source { name: "policy.yaml".to_owned(), text: policy.to_owned() };
    let loaded = policy::load(&[source], &policy::CompileOptions::default())
        .unwrap_or_else(|report| panic!("{report}"));
    loaded.policies.version().to_owned()
}

/// Adds all keys of a server with their values.
async fn add(text: &mut String, heading: &str, redis: &Redis) {
    let keys: Vec<Vec<u8>> = redis.query(&["KEYS", "*"]).await.unwrap();
    let mut values = BTreeMap::new();
    for key in keys {
        let value: Vec<u8> = redis.query_bytes(&[b"GET", &key]).await.unwrap();
        values.insert(key, value);
    }
    writeln!(text, "\n{heading}").unwrap();
    for (key, value) in values {
        let value: String = value.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(text, "{} {value}", key.escape_ascii()).unwrap();
    }
}

pub(super) fn compare(name: &str, found: &str) {
    let file = file(name);
    if std::env::var_os("TOLLGATE_GOLDEN").is_some_and(|value| value == "write") {
        std::fs::write(&file, found).unwrap();
    }
    let expected = std::fs::read_to_string(&file).unwrap_or_default();
    for (expected, found) in expected.lines().zip(found.lines()) {
        assert_eq!(found, expected, "bytes of {name} have changed");
    }
    assert_eq!(
        found.lines().count(),
        expected.lines().count(),
        "lines of {name} have come or gone"
    );
}

pub(super) fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/redis/golden").join(name)
}
