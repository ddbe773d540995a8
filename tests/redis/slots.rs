//! Cluster slots of counters: clients choose values, never slots.

use tollgate::grpc::proto::rate_limit_response::Code;

use super::callers::{lines, row, who};
use super::{cluster, policy, serve};
use crate::support::policy::Policies;
use crate::support::redis::cluster::Cluster;
use crate::support::rls::{descriptor, request};
use crate::support::tollgate::output;

const KEYS: u64 = 1_000;
const YEARLY: &str = "algorithm: sliding_window, requests_per_unit: 2, unit: year, record: [user]";

#[tokio::test]
async fn values_that_look_like_hash_tags_are_spread_over_all_masters() {
    let cluster = cluster().await;
    let policies = Policies::of(&policy(&[("user", YEARLY)]));
    let (_service, client) = serve(&policies, &cluster.url(), &[]).await;
    for chunk in (0..KEYS).collect::<Vec<_>>().chunks(50) {
        let of_user = |number: &u64| descriptor(&[("user", &format!("{{x}}{number}"))]);
        let answer = client.decide(request(chunk.iter().map(of_user).collect())).await.unwrap();
        assert_eq!(answer.overall_code(), Code::Ok);
    }
    let counters = counters(&cluster).await;
    assert_eq!(counters.iter().sum::<u64>(), KEYS);
    assert!(counters.iter().all(|count| *count > KEYS / 4), "{counters:?} counters at the masters");
}

#[tokio::test]
async fn top_users_are_known_for_values_with_braces() {
    let cluster = cluster().await;
    let policies = Policies::of(&policy(&[("tenant", YEARLY)]));
    let (_service, client) = serve(&policies, &cluster.url(), &[]).await;
    let by_ann = vec![descriptor(&[("tenant", "{acme}")]), descriptor(&[("user", "ann")])];
    client.decide(request(by_ann)).await.unwrap();
    assert_eq!(
        lines(&who(&policies, &cluster.url(), "tenant={acme}")),
        [row(([1, 0], "user=ann"))]
    );
}

#[tokio::test]
async fn a_domain_in_one_slot_stays_there_whatever_its_name_and_its_values() {
    let cluster = cluster().await;
    let rules = policy(&[("user", YEARLY)]).replace("domain: test", "domain: 'te}s{t'");
    let policies = Policies::of(&format!("atomicity: domain\n{rules}"));
    let (_service, client) = serve(&policies, &cluster.url(), &[]).await;
    for value in ["ann", "{x}1", "{y}2", "}", "{"] {
        let mut of_user = request(vec![descriptor(&[("user", value)])]);
        of_user.domain = "te}s{t".to_owned();
        assert_eq!(client.decide(of_user).await.unwrap().overall_code(), Code::Ok);
    }
    let mut counters = counters(&cluster).await;
    counters.sort_unstable();
    assert_eq!(counters, [0, 0, 5]);
}

#[tokio::test]
async fn a_replay_leaves_no_counter_whose_value_has_braces() {
    let cluster = cluster().await;
    let policies = Policies::of(&policy(&[("user", YEARLY)]));
    let line = |number| {
        format!(
            r#"{{"at": {}, "request": {{"domain": "test", "descriptors": [{{"entries": [{{"key": "user", "value": "{{x}}{number}"}}]}}]}}}}"#,
            1_780_000_000_000_000u64 + number
        )
    };
    policies.write("trace.jsonl", &(0..20).map(|number| line(number) + "\n").collect::<String>());
    let [policy, trace] =
        ["policy.yaml", "trace.jsonl"].map(|name| policies.file(name).display().to_string());
    let output = output(["replay", "--policy", &policy, "--store", &cluster.url(), &trace]);
    assert_eq!(
        String::from_utf8_lossy(&output.stdout).matches(r#""overallCode":"OK""#).count(),
        20,
        "{output:?}"
    );
    assert_eq!(counters(&cluster).await, [0, 0, 0]);
}

/// Returns the number of keys on each master, except those that describe processes.
async fn counters(cluster: &Cluster) -> Vec<u64> {
    let script = "local count = 0
        for _, key in ipairs(redis.call('KEYS', '*')) do
          if string.sub(key, 1, 9) ~= 'tollgate:' then count = count + 1 end
        end
        return count";
    let mut counts = Vec::new();
    for node in &cluster.nodes {
        counts.push(node.redis.query(&["EVAL", script, "0"]).await.unwrap());
    }
    counts
}
