//! Requests of which the store cannot judge a part: the rest is judged, and charged if the request
//! is admitted. `verdicts` has all combinations of their answers.

use tollgate::grpc::proto::rate_limit_response::Code;
use tollgate::grpc::proto::{RateLimitDescriptor, RateLimitResponse};

use super::{cluster, metric, nodes_of, policy, remaining, serve};
use crate::support::policy::Policies;
use crate::support::redis::Redis;
use crate::support::rls::{Client, descriptor, request};
use crate::support::tollgate::Tollgate;
use crate::support::{TEST_TIMEOUT, becomes};

const UNREADABLE: &str = r#"tollgate_store_errors_total{kind="unreadable"}"#;
const CORRUPTED: &str = "spoilt";
const LOCAL: &str = "unit: year, charge: admitted, on_store_error: local";

/// A service, and the servers of its store.
struct Bench<'a> {
    service: Tollgate,
    client: Client,
    nodes: Vec<&'a Redis>,
}

impl<'a> Bench<'a> {
    async fn start(policy: &str, store: &str, nodes: Vec<&'a Redis>, flags: &[&str]) -> Self {
        let flags = [&["--deny-cache-max", "0s"], flags].concat();
        let (service, client) = serve(&Policies::of(policy), store, &flags).await;
        Self { service, client, nodes }
    }

    /// Makes the counter of a key unreadable, and sends one hit to this process's share of it.
    async fn corrupt_and_hit(&self, key: &str) {
        self.corrupt(key).await;
        self.client.decide(request(vec![descriptor(&[(key, CORRUPTED)])])).await.unwrap();
    }

    /// Makes the counter of a key unreadable.
    async fn corrupt(&self, key: &str) {
        self.client.hit(key, CORRUPTED).await;
        for node in &self.nodes {
            let keys: Vec<Vec<u8>> =
                node.query(&["KEYS", &format!("*{CORRUPTED}*")]).await.unwrap();
            for key in keys {
                node.query_bytes::<redis::Value>(&[b"SET", &key, b"no counter"]).await.unwrap();
            }
        }
    }

    async fn decide(&self, descriptors: &[(&str, &str)]) -> RateLimitResponse {
        let descriptors = descriptors.iter().map(|entry| descriptor(&[*entry])).collect();
        self.client.decide(request(descriptors)).await.unwrap()
    }

    /// Returns how many of `requests` requests are admitted.
    async fn admitted(&self, requests: usize, descriptors: &[(&str, &str)]) -> usize {
        let mut admitted = 0;
        for _ in 0..requests {
            admitted += usize::from(self.decide(descriptors).await.overall_code() == Code::Ok);
        }
        admitted
    }
}

/// Runs a scenario with its counters on one server, in one slot of a Cluster, and in several.
async fn everywhere(policy: &str, scenario: impl AsyncFn(Bench<'_>)) {
    let redis = Redis::start().await;
    let cluster = cluster().await;
    scenario(Bench::start(policy, &redis.url(), vec![&redis], &[]).await).await;
    scenario(Bench::start(policy, &cluster.url(), nodes_of(&cluster), &[]).await).await;
    for node in nodes_of(&cluster) {
        node.command(&["FLUSHALL"]).await;
    }
    let in_one_slot = format!("atomicity: domain\n{policy}");
    scenario(Bench::start(&in_one_slot, &cluster.url(), nodes_of(&cluster), &[]).await).await;
}

#[tokio::test]
async fn a_limit_with_an_unreadable_local_one_is_enforced() {
    let local = format!("requests_per_unit: 1000, {LOCAL}");
    let few = "requests_per_unit: 5, unit: year, charge: admitted";
    everywhere(&policy(&[("local", &local), ("few", few)]), async |bench| {
        bench.corrupt_and_hit("local").await;
        let before = metric(&bench.service, UNREADABLE).await;
        assert_eq!(bench.admitted(20, &[("local", CORRUPTED), ("few", "x")]).await, 5);
        assert_eq!(
            metric(&bench.service, UNREADABLE).await,
            before + 20,
            "each is counted, and once"
        );
        let twice = [("local", CORRUPTED), ("few", "twice"), ("few", "twice")];
        assert_eq!(bench.admitted(20, &twice).await, 2);
    })
    .await;
}

#[tokio::test]
async fn a_refund_that_fails_fails_its_request_which_charges_nothing() {
    let limit = "requests_per_unit: 9, unit: year, charge: admitted";
    everywhere(&policy(&[("refunded", limit), ("few", limit)]), async |bench| {
        bench.corrupt("refunded").await;
        let refund = RateLimitDescriptor {
            hits_addend: Some(2),
            is_negative_hits: true,
            ..descriptor(&[("refunded", CORRUPTED)])
        };
        let both = request(vec![refund, descriptor(&[("few", "x")])]);
        bench.client.decide(both).await.unwrap_err();
        let left = || remaining(&bench.client, "few", "x");
        becomes("nothing is charged", TEST_TIMEOUT, left, |left| *left == 9).await;
    })
    .await;
}

#[tokio::test]
async fn per_second_limits_on_their_own_server_follow_the_same_rules() {
    let redis = Redis::start().await;
    let other = Redis::start().await;
    let second =
        "algorithm: gcra, requests_per_unit: 1, unit: second, burst: 1000, charge: admitted";
    let local = format!("requests_per_unit: 1000, {LOCAL}");
    let few = "requests_per_unit: 5, unit: year, charge: admitted";
    let rules = policy(&[("second", second), ("local", &local), ("few", few)]);
    let flags = ["--per-second-store", &other.url()];
    let bench = Bench::start(&rules, &redis.url(), vec![&redis], &flags).await;
    bench.corrupt_and_hit("local").await;
    assert_eq!(bench.admitted(20, &[("second", "x"), ("local", CORRUPTED), ("few", "x")]).await, 5);
}

#[tokio::test]
async fn a_hold_that_this_process_took_alone_is_ended_by_it_during_the_outage_and_after() {
    let redis = Redis::start().await;
    let rules = [
        (
            "permits",
            "algorithm: concurrency, in_flight: 2, on_store_error: local, hold: { ttl: 1h }",
        ),
        ("tokens", "unit: year, requests_per_unit: 10, on_store_error: local, hold: { ttl: 1h }"),
    ];
    let bench = Bench::start(&policy(&rules), &redis.url(), vec![&redis], &[]).await;
    let send = async |key: &str, operation: &str, id: &str, hits: u64| {
        let entries = [(key, CORRUPTED), (operation, id)];
        let one = RateLimitDescriptor { hits_addend: Some(hits), ..descriptor(&entries) };
        bench.client.status(one).await.code() == Code::Ok
    };
    let [reserve, commit, settle] = ["tollgate.reserve", "tollgate.commit", "tollgate.settle"];
    bench.corrupt_and_hit("permits").await;
    bench.corrupt_and_hit("tokens").await;
    assert!(send("permits", reserve, "a", 1).await && !send("permits", reserve, "b", 1).await);
    assert!(send("permits", settle, "a", 1).await && send("permits", reserve, "b", 1).await);
    assert!(send("tokens", reserve, "a", 9).await && !send("tokens", reserve, "b", 5).await);
    assert!(send("tokens", commit, "a", 4).await && send("tokens", reserve, "b", 5).await);
    // A cost without a hold here goes to the store, which may have one.
    assert!(send("tokens", commit, "unknown", 9).await && send("tokens", commit, "b", 4).await);
    assert!(send("tokens", reserve, "c", 1).await && !send("tokens", reserve, "d", 1).await);
    // The store is back: the permit of `b` ends in this process, for the next outage.
    redis.command(&["FLUSHALL"]).await;
    assert!(send("permits", settle, "b", 1).await);
    bench.corrupt("permits").await;
    assert!(send("permits", reserve, "c", 1).await && !send("permits", reserve, "d", 1).await);
    let labels = r#"{domain="test",rule="permits"}"#;
    let settled = metric(&bench.service, &format!("tollgate_hold_settled_total{labels}")).await;
    assert_eq!(settled, 2);
}

#[tokio::test]
async fn a_denial_that_a_full_store_could_not_write_still_denies() {
    let redis = Redis::start_with(&["maxmemory-policy noeviction"]).await;
    let always = |on_error| {
        format!("requests_per_unit: 1, unit: year, charge: always, on_store_error: {on_error}")
    };
    let allow = always("allow");
    let local = always("local");
    let rules = [
        ("allow", &*allow),
        ("local", &*local),
        ("few", "requests_per_unit: 5, unit: year, charge: admitted"),
    ];
    let bench = Bench::start(&policy(&rules), &redis.url(), vec![&redis], &[]).await;
    for key in ["allow", "local"] {
        assert!(bench.client.hit(key, "x").await);
    }
    redis.command(&["CONFIG", "SET", "maxmemory", "1"]).await;
    for key in ["allow", "local"] {
        assert_eq!(bench.admitted(10, &[(key, "x"), ("few", "x")]).await, 0, "{key}");
        assert_eq!(bench.admitted(10, &[(key, "x")]).await, 0, "{key} alone");
    }
}
