//! Credentials that change, on a Cluster, with sentinels, and on per-second servers.

use super::{
    Loaded, REAUTHENTICATIONS, add_password, clients, guarded, password, remove_password, replaced,
};
use crate::redis::{calm, nodes_of};
use crate::support::policy::Policies;
use crate::support::redis::Redis;
use crate::support::redis::cluster::{Cluster, Layout};
use crate::support::redis::sentinels::{Sentinels, Watch};
use crate::support::{TEST_TIMEOUT, becomes};

/// Rotates the password of `app` on all of these servers, once for each of `numbers`.
async fn rotate(
    loaded: &Loaded,
    servers: &[&Redis],
    files: &Policies,
    numbers: std::ops::RangeInclusive<usize>,
) {
    for number in numbers {
        let before = loaded.metric(REAUTHENTICATIONS).await;
        for server in servers {
            add_password(server, number).await;
        }
        files.write("password", &password(number));
        loaded.each_counted(REAUTHENTICATIONS, before).await;
        for server in servers {
            remove_password(server, number - 1).await;
        }
    }
}

fn passwords() -> (Policies, String) {
    let files = Policies::none();
    files.write("password", &password(0));
    let file = files.file("password").to_str().unwrap().to_owned();
    (files, file)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn connections_to_all_nodes_of_a_cluster_follow() {
    let cluster = Cluster::start_as(Layout { setup: guarded(), ..calm() }).await;
    let nodes = nodes_of(&cluster);
    let (files, file) = passwords();
    let flags = [
        ["--redis-user", "app"],
        ["--redis-password-file", &file],
        ["--redis-connection-max-age", "1h"],
    ];
    let loaded = Loaded::start(&cluster.url(), flags.as_flattened()).await;
    rotate(&loaded, &nodes, &files, 1..=2).await;
    loaded.end("a Cluster, its password rotated");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn connections_to_nodes_of_a_cluster_are_replaced_at_their_age() {
    let cluster = Cluster::start_as(calm()).await;
    let loaded = Loaded::start(&cluster.url(), &["--redis-connection-max-age", "1s"]).await;
    for node in nodes_of(&cluster) {
        let before = clients(node).await;
        replaced(node, &before).await;
    }
    loaded.end("a Cluster, a maximum age of a second");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn connections_to_sentinels_and_their_master_follow() {
    let group = Sentinels::start_as(Watch { setup: guarded(), ..Watch::default() }).await;
    for sentinel in &group.sentinels {
        let user = ["ACL", "SETUSER", "app", "on", ">secret-0", "~*", "+@all", "allchannels"];
        sentinel.command(&user).await;
    }
    let (files, file) = passwords();
    files.write("user", "app");
    let user = files.file("user").to_str().unwrap().to_owned();
    let url = group.url();
    let flags = [
        ["--redis-user-file", &user],
        ["--redis-password-file", &file],
        ["--sentinel-user-file", &user],
        ["--sentinel-password-file", &file],
    ];
    let loaded = Loaded::start(&url, flags.as_flattened()).await;
    let all: Vec<_> = group.servers.iter().chain(&group.sentinels).collect();
    rotate(&loaded, &all, &files, 1..=2).await;
    loaded.end("sentinels and their master, the password rotated");
    let loaded = Loaded::start(
        &url,
        &[flags.as_flattened(), &["--redis-connection-max-age", "1s"]].concat(),
    )
    .await;
    for server in group.sentinels.iter().chain(&group.servers[..1]) {
        let before = clients(server).await;
        replaced(server, &before).await;
    }
    loaded.end("sentinels and their master, a maximum age of a second");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn connections_to_per_second_servers_follow_their_own_file() {
    let redis = Redis::start().await;
    let other = Redis::start_as(guarded()).await;
    let (files, file) = passwords();
    files.write("user", "app");
    let user = files.file("user").to_str().unwrap().to_owned();
    let url = format!("redis://{}", other.address);
    let flags = [
        ["--per-second-store", &url],
        ["--per-second-user-file", &user],
        ["--per-second-password-file", &file],
    ];
    let loaded = Loaded::start(&redis.url(), flags.as_flattened()).await;
    let first = clients(&other).await;
    add_password(&other, 1).await;
    files.write("password", &password(1));
    // Those to the other server have no password that changes.
    let counted =
        || async { (loaded.metric(REAUTHENTICATIONS).await, clients(&other).await.len() as u64) };
    let is_each = |(count, open): &(u64, u64)| *open > 0 && count >= open;
    becomes("they follow", TEST_TIMEOUT, counted, is_each).await;
    remove_password(&other, 0).await;
    loaded.load.go_on(500).await;
    assert!(clients(&other).await.is_subset(&first));
    loaded.end("per-second servers, the password rotated");
}
