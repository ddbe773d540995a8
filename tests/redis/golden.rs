//! Stored bytes and replies stay the same: names and values of keys, versions of policies, and
//! replies of the scripts.
//!
//! A release reads the values that the previous one has written, and during a rollout both run side
//! by side, each with its own scripts. A change of these bytes is a change of the format: CHANGELOG
//! lists the counters that restart.
//!
//! With `TOLLGATE_GOLDEN=write` the files are written instead of compared.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use tollgate::algorithm::amend::Amendment;
use tollgate::algorithm::time::Micros;
use tollgate::grpc::proto::RateLimitDescriptor;
use tollgate::limiter::Modes;
use tollgate::policy::{self, Source};

use super::traces::RealServers;
use crate::support::redis::Redis;
use crate::support::rls::{descriptor, limit, request};
use crate::support::traces::sides::Sides;
use crate::support::traces::simulated::replies;
use crate::support::traces::{TraceCase, TraceOperation, run};
use crate::support::world::server::resp::Resp;

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
const PREFIX: &str = "golden:";
const SECOND: i64 = 1_000_000;

#[tokio::test]
async fn names_and_values_of_keys_and_versions_of_policies_do_not_change() {
    let servers = RealServers::start().await;
    let sides = Sides::new(&servers.urls(), PREFIX, Modes::default()).await;
    let policy = std::fs::read_to_string(file("policy.yaml")).unwrap();
    let mut texts = vec![format!("version {}\n", version(&policy)); servers.single.len()];
    for (heading, case) in ["after requests", "after amendments"].iter().zip(traces()) {
        run(&sides, &case).await.unwrap();
        for (text, redis) in texts.iter_mut().zip(&servers.single) {
            add(text, heading, redis).await;
        }
    }
    texts.iter().for_each(|text| compare("stored.txt", text));
}

#[test]
fn replies_of_the_scripts_do_not_change() {
    let lines = replies(&traces()).into_iter().map(|reply| text_of(&reply) + "\n");
    compare("replies.txt", &lines.collect::<String>());
}

/// Returns a reply as text: the bytes in hexadecimal.
fn text_of(reply: &Resp) -> String {
    match reply {
        Resp::Bulk(bytes) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        Resp::Array(all) => format!("[{}]", all.iter().map(text_of).collect::<Vec<_>>().join(" ")),
        Resp::Status(_) | Resp::Error(_) | Resp::Integer(_) | Resp::Nil => panic!("{reply:?}"),
    }
}

/// Returns the same requests of every rule: admitted, denied, several hits, refunds, later ones,
/// and requests of several descriptors. Then amendments.
fn traces() -> [TraceCase; 2] {
    let of = |key: &str, hits: Option<u64>| RateLimitDescriptor {
        hits_addend: hits,
        ..descriptor(&[(key, "a")])
    };
    let user = descriptor(&[("recorded", "a"), ("user", "ann")]);
    let named = descriptor(&[("named", "prefix-{x}\u{0}\u{ff}")]);
    let own = RateLimitDescriptor { limit: limit(3, 2), ..descriptor(&[("own", "a")]) };
    let decide = |descriptors| TraceOperation::Decide(request(descriptors));
    let amend = |key, value, what| TraceOperation::Amend(format!("{key}={value}"), what);
    let grant = Amendment::Grant { hits: 3, length: Micros::from_secs(3_600) };
    let mut requests = Vec::new();
    let mut amendments = Vec::new();
    for key in KEYS {
        let back = RateLimitDescriptor { is_negative_hits: true, ..of(key, Some(1)) };
        requests.extend([
            (0, decide(vec![of(key, None)])),
            (1_234_567, decide(vec![of(key, Some(2))])),
            (2_345_678, decide(vec![of(key, Some(4))])),
            (3_456_789, decide(vec![back])),
            (64_567_890, decide(vec![of(key, None)])),
        ]);
        amendments.extend([
            (70 * SECOND, amend(key, "a", Amendment::Refund(1))),
            (71 * SECOND, amend(key, "a", grant)),
            (72 * SECOND, decide(vec![of(key, None)])),
            (73 * SECOND, amend(key, "b", Amendment::Reset)),
        ]);
    }
    requests.extend([
        (65 * SECOND, decide(vec![user.clone(), named.clone()])),
        (66 * SECOND, decide(vec![user, named, of("fixed", Some(9))])),
        (67 * SECOND, decide(vec![own])),
    ]);
    [requests, amendments].map(case)
}

/// Returns a case of operations, each at an instant since the beginning.
fn case(operations: Vec<(i64, TraceOperation)>) -> TraceCase {
    let policy = std::fs::read_to_string(file("policy.yaml")).unwrap();
    let mut before = 0;
    let step = |(at, operation)| (at - std::mem::replace(&mut before, at), operation);
    TraceCase::new(vec![policy], operations.into_iter().map(step).collect())
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

fn compare(name: &str, found: &str) {
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

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/redis/golden").join(name)
}
