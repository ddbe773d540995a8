//! The Redis servers that other tests build on: each kind starts, responds, fails on demand, and
//! leaves nothing behind.

use std::net::TcpStream;
use std::time::Duration;

use redis::Value;

use crate::support::redis::client::connect;
use crate::support::redis::cluster::{Cluster, Layout};
use crate::support::redis::flavor::Flavor;
use crate::support::redis::partition::Isolation;
use crate::support::redis::sentinels::{Sentinels, Watch};
use crate::support::redis::tls::{Clients, Tls};
use crate::support::redis::wire::Wire;
use crate::support::redis::{Redis, Setup};
use crate::support::{TEST_TIMEOUT, becomes};

#[tokio::test]
async fn every_flavor_starts_and_runs_scripts() {
    for flavor in Flavor::ALL {
        let redis = Redis::start_as(Setup { flavor, ..Setup::default() }).await;
        assert_eq!(
            redis.command(&["EVAL", "return 7 * tonumber(ARGV[1])", "0", "6"]).await,
            Value::Int(42),
            "{flavor:?}"
        );
        assert_eq!(redis.commandstats().await["eval"], 1, "{flavor:?}");
    }
}

#[tokio::test]
async fn a_server_takes_settings_a_password_and_a_unix_socket() {
    let lines = vec!["maxmemory 20mb".to_owned(), "user app on >word ~app:* +@all".to_owned()];
    let redis =
        Redis::start_as(Setup { lines, password: Some("secret"), ..Setup::default() }).await;
    assert_eq!(redis.info("memory").await["maxmemory"], (20 * 1024 * 1024).to_string());
    assert_eq!(redis.command(&["ACL", "DRYRUN", "app", "GET", "app:1"]).await, Value::Okay);
    assert!(std::os::unix::net::UnixStream::connect(redis.socket()).is_ok());
}

#[tokio::test]
async fn a_server_can_require_tls_and_certificates() {
    for clients in [Clients::Anyone, Clients::Certified] {
        let tls = Tls::new(clients);
        let redis = Redis::start_as(Setup { tls: Some(tls.clone()), ..Setup::default() }).await;
        redis.command(&["SET", "key", "value"]).await;

        let untrusted = redis::TlsCertificates {
            client_tls: None,
            root_cert: std::fs::read(tls.authority()).ok(),
        };
        let client = redis::Client::build_with_tls(redis.url(), untrusted).unwrap();
        let is_accepted = match connect(&client, TEST_TIMEOUT).await {
            Ok(mut connection) => {
                redis::cmd("PING").query_async::<Value>(&mut connection).await.is_ok()
            }
            Err(_) => false,
        };
        assert_eq!(is_accepted, clients == Clients::Anyone);
    }
}

#[tokio::test]
async fn a_killed_server_is_gone_and_comes_back_empty_at_its_address() {
    let redis = Redis::start().await;
    redis.command(&["SET", "key", "value"]).await;
    redis.kill();
    assert!(TcpStream::connect(redis.address).is_err());
    redis.restart().await;
    assert_eq!(redis.command(&["GET", "key"]).await, Value::Nil);
}

#[tokio::test]
async fn a_paused_server_answers_when_it_is_resumed_and_not_before() {
    let redis = Redis::start().await;
    redis.pause();
    assert!(
        redis
            .query_within::<Value>(Duration::from_millis(100), &["PING"])
            .await
            .unwrap_err()
            .is_timeout()
    );
    redis.resume();
    redis.command(&["PING"]).await;
}

#[tokio::test]
async fn a_partition_holds_back_what_is_delivered_once_it_heals() {
    let redis = Redis::start().await;
    let wire = Wire::to(redis.address).await;
    let client = redis::Client::open(format!("redis://{}", wire.address)).unwrap();
    let mut connection = connect(&client, TEST_TIMEOUT).await.unwrap();
    connection.set_response_timeout(Duration::from_millis(200));
    wire.silence();
    let set = redis::Cmd::set("key", "late");
    assert!(set.query_async::<Value>(&mut connection).await.unwrap_err().is_timeout());
    assert_eq!(redis.command(&["GET", "key"]).await, Value::Nil);
    wire.heal();
    let is_set = |now: &Value| *now == Value::BulkString(b"late".to_vec());
    becomes("the command arrives", TEST_TIMEOUT, || redis.command(&["GET", "key"]), is_set).await;
}

#[tokio::test]
async fn a_cluster_replaces_a_killed_master() {
    let cluster = Cluster::start(3, 1).await;
    let master = cluster.master_of(0).await;
    let replica = cluster.replica_of(0).await;
    master.redis.kill();
    cluster.wait_until_promoted(replica).await;
    assert_eq!(cluster.master_of(0).await.id, replica.id);
    master.redis.restart().await;
    becomes("it follows", TEST_TIMEOUT, || master.is_replica_of(replica), |is_replica| *is_replica)
        .await;
}

#[tokio::test]
async fn a_planned_failover_of_a_cluster_loses_nothing() {
    let cluster = Cluster::start(3, 1).await;
    let slot = cluster.slot_of("key").await;
    cluster.master_of(slot).await.redis.command(&["SET", "key", "value"]).await;
    cluster.failover(cluster.replica_of(slot).await).await;
    let value: String = cluster.master_of(slot).await.redis.query(&["GET", "key"]).await.unwrap();
    assert_eq!(value, "value");
}

#[tokio::test]
async fn a_slot_moves_key_by_key_while_both_masters_answer_for_it() {
    let cluster = Cluster::start(3, 0).await;
    let slot = cluster.slot_of("{tag}").await;
    let from = cluster.master_of(slot).await;
    let to = cluster.nodes.iter().find(|node| node.id != from.id).unwrap();
    for key in ["{tag}1", "{tag}2", "{tag}3"] {
        from.redis.command(&["SET", key, key]).await;
    }
    let migration = cluster.begin_migration(slot, to).await;
    assert_eq!(migration.move_keys(2).await, 2);
    let redirected = from.redis.query::<Value>(&["GET", "{tag}new"]).await.unwrap_err();
    assert_eq!(redirected.code(), Some("ASK"));
    migration.finish().await;
    assert_eq!(cluster.master_of(slot).await.id, to.id);
    for key in ["{tag}1", "{tag}2", "{tag}3"] {
        assert_eq!(to.redis.query::<String>(&["GET", key]).await.unwrap(), key);
    }
}

#[tokio::test]
async fn an_isolated_master_serves_clients_until_it_notices_and_follows_when_healed() {
    let cluster = Cluster::start_as(Layout { is_wired: true, ..Layout::default() }).await;
    let slot = cluster.slot_of("key").await;
    let master = cluster.master_of(slot).await;
    let replica = cluster.replica_of(slot).await;
    cluster.isolate(master, Isolation::FromNodes);
    master.redis.command(&["SET", "key", "lost"]).await;
    cluster.wait_until_promoted(replica).await;
    let refused = |answer: &redis::RedisResult<Value>| {
        answer.as_ref().is_err_and(|error| error.code() == Some("CLUSTERDOWN"))
    };
    let _ = becomes(
        "it rejects writes",
        TEST_TIMEOUT,
        || master.redis.query(&["SET", "key", "refused"]),
        refused,
    )
    .await;
    cluster.heal();
    becomes("it follows", TEST_TIMEOUT, || master.is_replica_of(replica), |is_replica| *is_replica)
        .await;
    cluster.wait_until_agreed().await;
    assert_eq!(replica.redis.command(&["GET", "key"]).await, Value::Nil);
}

#[tokio::test]
async fn an_isolated_node_answers_no_client_while_it_runs() {
    let cluster = Cluster::start_as(Layout { is_wired: true, ..Layout::default() }).await;
    let master = cluster.master_of(0).await;
    let replica = cluster.replica_of(0).await;
    let client = redis::Client::open(format!("redis://{}", master.address)).unwrap();
    let mut connection = connect(&client, TEST_TIMEOUT).await.unwrap();
    connection.set_response_timeout(Duration::from_millis(200));
    cluster.isolate(master, Isolation::FromAll);
    assert!(
        redis::cmd("PING").query_async::<Value>(&mut connection).await.unwrap_err().is_timeout()
    );
    assert!(master.redis.is_up());
    cluster.wait_until_promoted(replica).await;
}

#[tokio::test]
async fn sentinels_replace_a_killed_master_and_fail_over_on_request() {
    let group = Sentinels::start().await;
    let first = group.master().await;
    first.kill();
    let second = group.successor_of(first.address).await;
    assert_ne!(second.address, first.address);
    first.restart().await;
    let third = group.failover().await;
    assert_eq!(third.info("replication").await["role"], "master");
}

#[tokio::test]
async fn sentinels_can_require_passwords() {
    let setup = Setup { password: Some("data"), ..Setup::default() };
    let group =
        Sentinels::start_as(Watch { sentinel_password: Some("watch"), setup, ..Watch::default() })
            .await;
    assert_eq!(group.replica().await.info("replication").await["role"], "slave");
}
