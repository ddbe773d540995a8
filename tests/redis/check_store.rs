//! `tollgate check-store`: the capabilities of a store at each version, and its problems.

use std::process::Output;

use super::cluster;
use super::sharded::Sharded;
use crate::support::redis::flavor::Flavor;
use crate::support::redis::{Redis, Setup};
use crate::support::tollgate::{output, stderr, stdout};

fn check(url: &str) -> Output {
    output(["check-store", url])
}

/// Returns the grade and the text of a topic.
fn line<'a>(report: &'a str, topic: &str) -> (&'a str, &'a str) {
    let of_topic = |line: &&str| line.split_whitespace().nth(1) == Some(topic);
    let line =
        report.lines().find(of_topic).unwrap_or_else(|| panic!("no line about {topic}:\n{report}"));
    let (grade, rest) = line.trim_start().split_once(' ').unwrap();
    (grade, rest.trim_start().strip_prefix(topic).unwrap().trim_start())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn every_supported_version_passes() {
    for flavor in Flavor::ALL {
        let lines = vec!["appendonly yes".to_owned(), "maxmemory-policy noeviction".to_owned()];
        let redis = Redis::start_as(Setup { flavor, lines, ..Setup::default() }).await;
        let output = check(&redis.url());
        assert_eq!(output.status.code(), Some(0), "{flavor:?}: {}", stdout(&output));
        for topic in ["version", "scripts", "permissions", "keys", "eviction", "persistence"] {
            assert_eq!(line(&stdout(&output), topic).0, "ok", "{flavor:?}: {}", stdout(&output));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn settings_that_break_a_guarantee_are_warnings() {
    let redis = Redis::start_with(&["maxmemory-policy allkeys-lru", "save \"\""]).await;
    let output = check(&redis.url());
    assert_eq!(output.status.code(), Some(0));
    assert!(line(&stdout(&output), "eviction").1.contains("allkeys-lru may evict live counters"));
    assert_eq!(
        line(&stdout(&output), "persistence"),
        ("warning", "none: a restart of the server loses all counters")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_cluster_is_reported_by_node() {
    let cluster = cluster().await;
    let output = check(&cluster.url());
    assert_eq!(output.status.code(), Some(0));
    let text = stdout(&output);
    assert_eq!(text.lines().filter(|line| line.contains("coverage")).count(), 3, "{text}");
    assert_eq!(line(&text, "scripts").0, "ok");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn missing_rights_are_listed_with_the_command_that_grants_them() {
    let lines = vec![
        "user old on >first ~* -@all +auth +hello +client +select +ping +get +incrby +expire"
            .to_owned(),
        "user new on >first ~* -@all +evalsha +eval +ping +select +client +time +get +set +del"
            .to_owned(),
    ];
    let redis = Redis::start_as(Setup { lines, ..Setup::default() }).await;
    let output = check(&format!("redis://old:first@{}", redis.address));
    assert_eq!(output.status.code(), Some(1));
    let report = stdout(&output);
    let (grade, rights) = line(&report, "permissions");
    assert!(
        grade == "problem" && rights.contains("ACL SETUSER old +evalsha +eval +time +set +del"),
        "{rights}"
    );
    // The command grants all permissions, those of features other than decisions as well.
    let (_, command) = rights.split_once("run ").unwrap();
    redis.command(&command.split(' ').collect::<Vec<_>>()).await;
    assert_eq!(
        line(&stdout(&check(&format!("redis://old:first@{}", redis.address))), "permissions").0,
        "ok"
    );
    let output = check(&format!("redis://new:first@{}", redis.address));
    assert_eq!(output.status.code(), Some(0));
    let report = stdout(&output);
    let (grade, rights) = line(&report, "permissions");
    assert!(grade == "warning" && rights.contains("hgetall (denials of all replicas)"), "{rights}");
    let (_, command) = rights.split_once("run ").unwrap();
    redis.command(&command.split(' ').collect::<Vec<_>>()).await;
    assert_eq!(
        line(&stdout(&check(&format!("redis://new:first@{}", redis.address))), "permissions").0,
        "ok"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_missing_password_is_the_only_finding() {
    let redis = Redis::start().await;
    redis.command(&["CONFIG", "SET", "requirepass", "first"]).await;
    let output = check(&format!("redis://{}", redis.address));
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    let report = stdout(&output);
    let (grade, password) = line(&report, "password");
    assert!(grade == "problem" && password.contains("--redis-password-file FILE"), "{report}");
    assert_eq!(report.lines().count(), 2, "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_sharding_proxy_is_detected() {
    let sharded = Sharded::start().await;
    let output = check(&sharded.url());
    assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
    let report = stdout(&output);
    let (grade, keys) = line(&report, "keys");
    assert!(
        grade == "warning" && keys.contains("a proxy distributes keys over several servers"),
        "{keys}"
    );
}

#[test]
fn an_unreachable_store_is_distinguished_from_an_unusable_one() {
    let output = check("redis://127.0.0.1:1");
    assert_eq!(output.status.code(), Some(2));
    let error = stderr(&output);
    assert!(
        error.contains("cannot connect to the store within 5s: ") && error.contains("refused"),
        "{error}"
    );
    assert_eq!(check("memory").status.code(), Some(2));
}
