//! Open holds of a counter: listed from every topology, and bounded. That they are those of memory
//! is in the traces.

use futures_util::future::join_all;
use serde_json::{Value, json};
use tollgate::algorithm::time::Timestamp;
use tollgate::grpc::proto::RateLimitDescriptor;
use tollgate::grpc::proto::rate_limit_response::Code;
use tollgate::limiter::Modes;

use super::amend::inspect;
use super::{cluster, policy, serve};
use crate::support::policy::Policies;
use crate::support::redis::Redis;
use crate::support::redis::sentinels::Sentinels;
use crate::support::rls::{Client, descriptor, request};
use crate::support::tollgate::{Tollgate, output};
use crate::support::traces::calls::{open_holds_at, tallies};
use crate::support::traces::sides::Sides;

const TOKENS: &str = "unit: day, requests_per_unit: 1000000, hold: { ttl: 10m }";
const AT: u64 = 1_780_000_000_000_000;
/// Sends one operation on a hold.
async fn send(client: &Client, key: &str, operation: &str, id: &str, hits: u64) {
    let entries = [(key, "a"), (operation, id)];
    let one = RateLimitDescriptor { hits_addend: Some(hits), ..descriptor(&entries) };
    assert_eq!(client.status(one).await.code(), Code::Ok, "{operation} {id}");
}

#[tokio::test]
async fn open_holds_are_listed_on_a_cluster_and_a_master_of_sentinels() {
    let cluster = cluster().await;
    let group = Sentinels::start().await;
    let rules = [("tokens", TOKENS), ("plain", "unit: day, requests_per_unit: 9")];
    let policies = Policies::of(&policy(&rules));
    for url in [cluster.url(), group.url()] {
        let (service, client) = serve(&policies, &url, &[]).await;
        for (operation, id, hits) in [
            ("reserve", "first", 5),
            ("reserve", "ended", 2),
            ("reserve", "second", 2),
            ("commit", "ended", 1),
        ] {
            send(&client, "tokens", &format!("tollgate.{operation}"), id, hits).await;
        }
        let held = &inspect(&service, "tokens=a").await["held"];
        let listed = ["first", "second"].map(|id| held["holds"].to_string().contains(id));
        assert_eq!(
            (listed, &held["hits"], &held["unread"]),
            ([true; 2], &json!(7), &json!(0)),
            "{url}"
        );
        let view = inspect(&service, "plain=a").await;
        assert_eq!((&view["held"], &view["held_unknown"]), (&Value::Null, &Value::Null));
    }
}

#[tokio::test]
async fn a_counter_with_many_holds_is_listed_by_a_sample_that_is_reported() {
    let redis = Redis::start().await;
    let policies = Policies::of(&policy(&[("tokens", TOKENS)]));
    let (service, client) = serve(&policies, &redis.url(), &[]).await;
    let ids: Vec<String> = (0..700).map(|number| format!("id-{number}")).collect();
    join_all(ids.iter().map(|id| send(&client, "tokens", "tollgate.reserve", id, 1))).await;
    let held = inspect(&service, "tokens=a").await["held"].clone();
    let [count, unread] = [&held["count"], &held["unread"]].map(|number| number.as_u64().unwrap());
    assert!((500..=501).contains(&count) && count + unread == 700, "{count} {unread}");
    assert_eq!(held["holds"].as_array().unwrap().len(), 100);
    let text = shown(&service);
    assert!(text.contains("of a sample; ") && text.contains(" more IDs not read"), "{text}");
}

#[tokio::test]
async fn holds_and_tallies_are_read_from_a_slot_that_moves() {
    let cluster = cluster().await;
    let stores = [
        Sides::new(&[cluster.url()], "", Modes::default()).await,
        Sides::new(&[cluster.url()], "", Modes::default()).await,
    ];
    for sides in &stores {
        sides.install(&policy(&[("tokens", &format!("{TOKENS}, record: [user]"))]));
    }
    let reserve = descriptor(&[("tokens", "a"), ("tollgate.reserve", "first")]);
    let user = descriptor(&[("user", "u")]);
    let reserved = stores[0].decide(AT, &request(vec![reserve, user])).await.unwrap();
    assert_eq!(reserved.unwrap().0.overall_code(), Code::Ok);
    let mut keys: Vec<Vec<u8>> = Vec::new();
    for node in &cluster.nodes {
        keys.extend(node.redis.query::<Vec<Vec<u8>>>(&["KEYS", "*"]).await.unwrap());
    }
    assert_eq!(keys.len(), 2, "the counter and its holds");
    let any = &cluster.nodes[0].redis;
    let slot = any.query_bytes(&[b"CLUSTER", b"KEYSLOT", &keys[0]]).await.unwrap();
    let from = cluster.master_of(slot).await;
    let to = cluster.nodes.iter().find(|node| node.id != from.id).unwrap();
    let listed = async |store: &Sides| {
        open_holds_at(store.last(), "tokens=a", Timestamp::from_micros(AT)).await.holds.len()
    };
    let migration = cluster.begin_migration(slot, to).await;
    migration.move_keys(1).await;
    // With one key at each of two nodes the script cannot run; later, the new node needs ASKING.
    assert_eq!(tokio::join!(listed(&stores[0]), migration.move_keys(1)), (1, 1));
    assert_eq!(listed(&stores[0]).await, 1);
    migration.finish().await;
    // A store each: a store that is redirected learns the new map.
    assert_eq!(listed(&stores[0]).await, 1);
    assert_eq!(tallies(stores[1].last(), "tokens=a").await[0].charged, 1);
}

#[tokio::test]
async fn a_refusal_to_list_leaves_the_rest_of_the_state() {
    let may =
        "+evalsha +eval +ping +select +client +time +get +set +del +hget +hset +hlen +pexpire";
    let redis = Redis::start_with(&[&format!("user app on >first ~* -@all {may}")]).await;
    let policies = Policies::of(&policy(&[("tokens", TOKENS)]));
    let store = format!("redis://app:first@{}", redis.address);
    let (service, client) = serve(&policies, &store, &[]).await;
    send(&client, "tokens", "tollgate.reserve", "first", 2).await;
    let view = inspect(&service, "tokens=a").await;
    assert_eq!(view["state"]["windows"][0]["used"], 2);
    let reason = "open holds cannot be listed: store refused the request";
    assert_eq!((&view["held"], &view["held_unknown"]), (&Value::Null, &json!(reason)));
    assert!(shown(&service).contains(reason));
}

/// Returns the output of `tollgate inspect`.
fn shown(service: &Tollgate) -> String {
    let url = format!("http://{}", service.admin);
    String::from_utf8(output(["inspect", "--admin", &url, "test", "tokens=a"]).stdout).unwrap()
}
