//! Replays of the recorded traces with `tollgate replay`, equal line by line on every store. All
//! versions of servers are compared by `traces`.

use std::ffi::OsString;
use std::sync::LazyLock;

use redis::Value;

use super::{cluster, nodes_of};
use crate::support::redis::Redis;
use crate::support::tollgate::output;
use crate::support::vectors::vectors;

const RECORDED: [&str; 6] = ["1", "2", "3", "4", "5", "6"];

/// Output of memory for the recorded traces, which `vectors` verifies.
static IN_MEMORY: LazyLock<Vec<String>> =
    LazyLock::new(|| RECORDED.iter().map(|name| replayed(name, "memory")).collect());

#[tokio::test]
async fn a_server_decides_as_memory_does_and_keeps_nothing() {
    let redis = Redis::start().await;
    agrees(&redis.url());
    assert_eq!(redis.command(&["DBSIZE"]).await, Value::Int(0), "a replay removes its keys");
}

#[tokio::test]
async fn a_cluster_decides_as_memory_does_and_keeps_nothing() {
    let cluster = cluster().await;
    agrees(&cluster.url());
    for node in nodes_of(&cluster) {
        assert_eq!(node.command(&["DBSIZE"]).await, Value::Int(0));
    }
}

#[tokio::test]
async fn a_replay_leaves_the_keys_of_others_alone() {
    let redis = Redis::start().await;
    for key in ["mine", "replay", "replay-1-1:key"] {
        redis.command(&["SET", key, "kept"]).await;
    }
    replayed("1", &redis.url());
    assert_eq!(redis.command(&["DBSIZE"]).await, Value::Int(3));
}

fn agrees(store: &str) {
    for (name, expected) in RECORDED.iter().zip(IN_MEMORY.iter()) {
        same_lines(name, expected, &replayed(name, store));
    }
}

#[tokio::test]
async fn two_servers_decide_as_memory_does() {
    let redis = Redis::start().await;
    let per_second = Redis::start().await;
    for (name, expected) in RECORDED.iter().zip(IN_MEMORY.iter()) {
        let found = replayed_with(name, &redis.url(), &["--per-second-store", &per_second.url()]);
        same_lines(name, expected, &found);
    }
    assert_eq!(per_second.command(&["DBSIZE"]).await, Value::Int(0), "a replay removes its keys");
    assert!(per_second.commandstats().await["evalsha"] > 0);
}

/// Returns the output of a replay of a recorded trace.
fn replayed(name: &str, store: &str) -> String {
    replayed_with(name, store, &[])
}

fn replayed_with(name: &str, store: &str, flags: &[&str]) -> String {
    let folder = vectors(name);
    let file = |name: &str| folder.path().join(name).into_os_string();
    let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
    let arguments = [
        words(&["replay", "--store", store, "--policy"]),
        vec![file("policy.yaml"), file("trace.jsonl")],
    ];
    let replayed = output([arguments.concat(), words(flags)].concat());
    assert!(replayed.status.success(), "{}", String::from_utf8_lossy(&replayed.stderr));
    String::from_utf8(replayed.stdout).unwrap()
}

fn same_lines(name: &str, expected: &str, found: &str) {
    let differs = expected
        .lines()
        .zip(found.lines())
        .enumerate()
        .find(|(_, (expected, found))| expected != found);
    assert_eq!(differs, None, "the first line of {name} that differs");
    assert_eq!(found.lines().count(), expected.lines().count());
}
