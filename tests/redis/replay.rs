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
    LazyLock::new(|| RECORDED.iter().map(|name| replayed(name, "memory", &[])).collect());

#[tokio::test]
async fn a_server_a_cluster_and_two_servers_decide_as_memory_does_and_keep_nothing() {
    let redis = Redis::start().await;
    let per_second = Redis::start().await;
    let cluster = cluster().await;
    for key in ["mine", "replay", "replay-1-1:key"] {
        redis.command(&["SET", key, "kept"]).await;
    }
    let per_second_url = per_second.url();
    for (store, flags) in [
        (redis.url(), &[][..]),
        (cluster.url(), &[]),
        (redis.url(), &["--per-second-store", &per_second_url]),
    ] {
        for (name, expected) in RECORDED.iter().zip(IN_MEMORY.iter()) {
            same_lines(name, expected, &replayed(name, &store, flags));
        }
    }
    assert!(per_second.commandstats().await["evalsha"] > 0);
    assert_eq!(
        redis.command(&["DBSIZE"]).await,
        Value::Int(3),
        "the keys of others are left alone"
    );
    for node in nodes_of(&cluster).into_iter().chain([&per_second]) {
        assert_eq!(node.command(&["DBSIZE"]).await, Value::Int(0), "a replay removes its keys");
    }
}

/// Returns the output of a replay of a recorded trace.
fn replayed(name: &str, store: &str, flags: &[&str]) -> String {
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
