//! `POST /api/v1/try` predicts the result of the next call, in all modes of the rules and of the
//! process.

use serde_json::{Value, json};
use tollgate::grpc::proto::RateLimitDescriptor;
use tollgate::grpc::proto::rate_limit_response::Code;

use crate::support::policy::Policies;
use crate::support::redis::Redis;
use crate::support::rls::{Client, descriptor, request};
use crate::support::tollgate::Tollgate;
use crate::support::web::{Web, fetch};

/// More than all calls of a test take together.
const PLENTY: u64 = 1_000_000;
/// Rules by mode, then a rule without a limit and a key without a rule.
const KEYS: [&str; 6] = ["enforced", "shadow", "quota", "both", "unlimited", "none"];
const LIMITED: usize = 4;
const MODES: [&[&str]; 4] =
    [&[], &["--shadow-mode"], &["--quota-mode"], &["--shadow-mode", "--quota-mode"]];

/// A descriptor and its hits.
type Wanted<'a> = (&'a str, &'a str, u64);

/// A service that receives both tries and calls.
struct Bench {
    _service: Tollgate,
    client: Client,
    admin: Web,
    compared: usize,
    /// Requests with different results for the try and the call.
    wrong: Vec<String>,
}

#[tokio::test]
async fn a_dry_run_equals_the_following_call_in_every_mode() {
    let redis = Redis::start().await;
    let policies = policies();
    let mut wrong = Vec::new();
    for modes in MODES {
        wrong.extend(
            a_try_is_the_call(Bench::start(&policies, &["--store", "memory"], modes).await, modes)
                .await,
        );
        // Each service has counters of its own.
        let prefix = format!("--redis-prefix={}:", modes.concat());
        let store = ["--store", &redis.url(), "--store-timeout", "15s", &prefix];
        wrong.extend(a_try_is_the_call(Bench::start(&policies, &store, modes).await, modes).await);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns the requests with different results for the try and the call.
async fn a_try_is_the_call(mut bench: Bench, modes: &[&str]) -> Option<String> {
    for key in &KEYS[..LIMITED] {
        bench.take(&[(key, "full", PLENTY)]).await;
    }
    let all: Vec<Wanted<'_>> = KEYS
        .iter()
        .flat_map(|key| [(*key, "full", 1), (*key, "free", 1)])
        .take(KEYS.len() * 2 - 1)
        .collect();
    for first in &all {
        for second in &all {
            bench.compare(&[*first, *second]).await;
        }
    }
    // Of two descriptors on one counter, the second one sees the hits of the first.
    bench.take(&[("enforced", "few", PLENTY - 3)]).await;
    for hits in [[2, 2], [4, 1], [0, 4], [2, 1], [0, 1], [0, 0]] {
        bench.compare(&hits.map(|hits| ("enforced", "few", hits))).await;
    }
    bench.compare(&[("after", "a", 0)]).await;
    bench.compare(&[("after", "a", 2), ("after", "a", 0), ("after", "a", 1)]).await;
    bench.compare(&[("after", "a", 0)]).await;
    bench.compare(&[("after", "b", PLENTY)]).await;
    bench.compare(&[("after", "b", 0)]).await;
    // Tries match calls with a grant, too.
    bench.take(&[("quota", "granted", PLENTY)]).await;
    let grant = json!({"domain": "test", "descriptor": "quota=granted", "hits": 5, "for": "1h"});
    assert_eq!(bench.send("/api/v1/counter/grant", &grant).await["after"]["remaining"], 5);
    for hits in [[3, 3], [3, 2], [1, 1]] {
        bench.compare(&hits.map(|hits| ("quota", "granted", hits))).await;
    }
    // With `charge: always`, a denial from the deny cache still charges a call, but not a try.
    bench.take(&[("always", "a", PLENTY)]).await;
    let before = bench.used("always=a").await;
    for _ in 0..5 {
        let tried = bench.tried(&[("always", "a", 1)]).await;
        assert_eq!(tried["statuses"][0]["standing"], "no room", "{tried}");
    }
    assert_eq!(bench.used("always=a").await, before);
    let Bench { compared, wrong, .. } = bench;
    (!wrong.is_empty())
        .then(|| format!("{modes:?}: {} of {compared}:\n{}", wrong.len(), wrong.join("\n")))
}

fn policies() -> Policies {
    let modes =
        ["", "shadow_mode: true, ", "quota_mode: true, ", "shadow_mode: true, quota_mode: true, "];
    let limit = format!("requests_per_unit: {PLENTY}, unit: year");
    let rule = |(key, modes): (&&str, &str)| {
        format!("  - {{ key: {key}, {modes}rate_limit: {{ {limit}, charge: admitted }} }}\n")
    };
    let rules: String = KEYS.iter().zip(modes).map(rule).collect();
    let more = [
        ("after", format!("{limit}, charge: afterwards")),
        ("always", format!("{limit}, algorithm: sliding_window, charge: always")),
        ("unlimited", "unlimited: true".to_owned()),
    ];
    let more = more
        .map(|(key, limit)| format!("  - {{ key: {key}, rate_limit: {{ {limit} }} }}\n"))
        .concat();
    Policies::of(&format!("domain: test\ndescriptors:\n{rules}{more}"))
}

impl Bench {
    async fn start(policies: &Policies, store: &[&str], modes: &[&str]) -> Self {
        let service = Tollgate::serve_with(policies.path(), &[store, modes].concat());
        service.wait_until_ready().await;
        let client = Client::connect(service.grpc).await;
        let admin = Web::new(service.admin);
        Self { _service: service, client, admin, compared: 0, wrong: Vec::new() }
    }

    /// Tries a request, sends it, and compares the results.
    async fn compare(&mut self, wanted: &[Wanted<'_>]) {
        let tried = self.tried(wanted).await;
        let (admits, codes) = self.take(wanted).await;
        let has_no_room = |status: &Value| status["standing"] == "no room";
        let has_none: Vec<_> =
            tried["statuses"].as_array().unwrap().iter().map(has_no_room).collect();
        let over: Vec<_> = codes.iter().map(|code| *code == Code::OverLimit).collect();
        self.compared += 1;
        if tried["would_admit"] != admits || has_none != over {
            self.wrong.push(format!("{wanted:?}: {tried}, then {admits} {codes:?}"));
        }
    }

    async fn tried(&self, wanted: &[Wanted<'_>]) -> Value {
        let one = |(key, value, hits): &Wanted<'_>| json!({"entries": [{"key": key, "value": value}], "hits": hits});
        let descriptors: Vec<_> = wanted.iter().map(one).collect();
        self.send("/api/v1/try", &json!({"domain": "test", "descriptors": descriptors})).await
    }

    /// Returns the hits in a descriptor's counter.
    async fn used(&self, descriptor: &str) -> Value {
        let counter =
            fetch(&self.admin, &format!("/api/v1/counter?domain=test&descriptor={descriptor}"))
                .await;
        counter["state"]["windows"][0]["used"].clone()
    }

    /// Sends a request. Returns `true` if it is admitted, and the code of each descriptor.
    async fn take(&self, wanted: &[Wanted<'_>]) -> (bool, Vec<Code>) {
        let one = |(key, value, hits): &Wanted<'_>| RateLimitDescriptor {
            hits_addend: Some(*hits),
            ..descriptor(&[(key, value)])
        };
        let answer = self.client.decide(request(wanted.iter().map(one).collect())).await.unwrap();
        let codes = answer.statuses.iter().map(|status| status.code()).collect();
        (answer.overall_code() == Code::Ok, codes)
    }

    async fn send(&self, path: &str, body: &Value) -> Value {
        let headers = [("content-type", "application/json")];
        let reply = self.admin.send_with("POST", path, &headers, body.to_string()).await;
        assert_eq!(reply.status, 200, "{path} {body}: {}", reply.body);
        serde_json::from_str(&reply.body).unwrap()
    }
}
