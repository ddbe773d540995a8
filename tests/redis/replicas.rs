//! The number of processes that a process assumes, for its share under `on_store_error: local`, and
//! the list of processes.

use serde_json::{Value, json};

use super::{is_ready, metric};
use crate::support::policy::{Policies, yearly};
use crate::support::redis::Redis;
use crate::support::rls::{Client, descriptor};
use crate::support::tollgate::{Tollgate, output};
use crate::support::web::{Web, fetch};
use crate::support::{TEST_TIMEOUT, becomes};

#[tokio::test]
async fn replicas_are_counted_again_after_the_store_lost_its_data() {
    let redis = Redis::start().await;
    let policies = Policies::of(&yearly("user", 10));
    let start = || {
        Tollgate::serve_with(policies.path(), &["--store", &redis.url(), "--store-timeout", "15s"])
    };
    let services = [start(), start()];
    for service in &services {
        becomes("it is ready", TEST_TIMEOUT, || is_ready(service), |ready| *ready).await;
        becomes(
            "both processes are counted",
            TEST_TIMEOUT,
            || metric(service, "tollgate_replicas"),
            |count| *count == 2,
        )
        .await;
    }
    redis.command(&["FLUSHALL"]).await;
    let state = async || {
        let reported: u64 = redis.query(&["ZCARD", "tollgate:replicas"]).await.unwrap();
        let [one, other] = &services;
        let known =
            [metric(one, "tollgate_replicas").await, metric(other, "tollgate_replicas").await];
        assert_eq!(known, [2, 2], "{reported} have reported again");
        reported
    };
    // The first process to report is alone in the store until the other reports.
    becomes("both have reported again", TEST_TIMEOUT, state, |reported| *reported == 2).await;
    state().await;
}

#[tokio::test]
async fn replicas_list_each_other_and_a_reload_waits_until_all_have_its_policies() {
    let redis = Redis::start().await;
    let policies = [1, 2].map(|_| Policies::of(&yearly("user", 10)));
    let start = |policies: &Policies| {
        Tollgate::serve_with(policies.path(), &["--store", &redis.url(), "--store-timeout", "15s"])
    };
    let services = policies.each_ref().map(start);
    let urls = services.each_ref().map(|service| format!("http://{}", service.admin));
    let list = || async { replicas_at(&urls[0]) };
    let are_both = |list: &Value| versions(list).len() == 2;
    let listed = becomes("both are listed", TEST_TIMEOUT, list, are_both).await;
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    for replica in listed["replicas"].as_array().unwrap() {
        assert_eq!((&replica["name"], &replica["release"]), (&json!(name), &json!(RELEASE)));
    }
    assert_eq!(
        listed["replicas"].as_array().unwrap().iter().filter(|one| one["is_this"] == true).count(),
        1
    );
    let everywhere = output(["reload", "--wait", "--admin", &urls[0]]);
    assert_eq!(everywhere.status.code(), Some(0), "{everywhere:?}");
    let found = String::from_utf8(everywhere.stderr).unwrap();
    assert!(found.ends_with(" are in force in 2 replicas\n"), "{found}");

    // The other process has files of its own.
    policies[0].write("policy.yaml", &yearly("user", 11));
    let alone = output(["reload", "--wait", "0s", "--admin", &urls[0]]);
    let found = String::from_utf8(alone.stderr).unwrap();
    assert_eq!(alone.status.code(), Some(1), "{found}");
    assert!(
        found.contains("not in force in all replicas after 0s: 1 of 2 replicas have them\n"),
        "{found}"
    );
    let wait = tokio::task::spawn_blocking({
        let url = urls[0].clone();
        move || output(["replicas", "--wait", "60s", "--json", "--admin", &url])
    });
    policies[1].write("policy.yaml", &yearly("user", 11));
    let waited = wait.await.unwrap();
    assert_eq!(waited.status.code(), Some(0), "{waited:?}");
    let list: Value = serde_json::from_slice(&waited.stdout).unwrap();
    assert_eq!(versions(&list).len(), 2);
    assert_eq!(versions(&list)[0], versions(&list)[1]);
    for replica in list["replicas"].as_array().unwrap() {
        assert!(replica["begun_at"].as_str() < replica["loaded_at"].as_str(), "{replica}");
    }
    let table = String::from_utf8(output(["replicas", "--admin", &urls[1]]).stdout).unwrap();
    assert_eq!(table.matches(&name).count(), 2, "{table}");
}

/// Release 0.1.0 takes each member of the set for a process, and itself publishes nothing else.
#[tokio::test]
async fn heartbeats_are_those_of_release_0_1_0_whose_processes_are_listed_without_a_description() {
    let redis = Redis::start().await;
    let policies = Policies::of(&yearly("user", 10));
    let flags = ["--store", &redis.url(), "--store-timeout", "15s"];
    let service = Tollgate::serve_with(policies.path(), &flags);
    let url = format!("http://{}", service.admin);
    let described =
        || async { redis.query::<Vec<String>>(&["KEYS", "tollgate:replica:*"]).await.unwrap() };
    let keys = becomes("it is described", TEST_TIMEOUT, described, |keys| keys.len() == 1).await;
    let registered = || async {
        redis.query::<Vec<String>>(&["ZRANGE", "tollgate:replicas", "0", "-1"]).await.unwrap()
    };
    let ids = becomes("it is registered", TEST_TIMEOUT, registered, |ids| ids.len() == 1).await;
    assert_eq!(ids[0].len(), 32);
    assert!(ids[0].chars().all(|digit| digit.is_ascii_hexdigit()), "{ids:?}");
    assert_eq!(keys, [format!("tollgate:replica:{}", ids[0])]);
    let ttl: i64 = redis.query(&["PTTL", &keys[0]]).await.unwrap();
    assert!((1..=15_000).contains(&ttl), "{ttl}");

    let [seconds, micros]: [u64; 2] = redis.query(&["TIME"]).await.unwrap();
    let now = (seconds * 1_000_000 + micros).to_string();
    redis.command(&["ZADD", "tollgate:replicas", &now, &"0".repeat(32)]).await;
    let list = replicas_at(&url);
    let replicas = list["replicas"].as_array().unwrap();
    let older = replicas.iter().find(|one| one["id"] == "0".repeat(32)).unwrap();
    assert_eq!((replicas.len(), older.get("name"), older.get("policies")), (2, None, None));
    let waited = output(["replicas", "--wait", "0s", "--admin", &url]);
    assert_eq!(waited.status.code(), Some(1), "it may have other policies");
    let age = 16_000_000;
    let gone = (seconds * 1_000_000 + micros - age).to_string();
    redis.command(&["ZADD", "tollgate:replicas", &gone, &"0".repeat(32)]).await;
    assert_eq!(replicas_at(&url)["replicas"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_process_that_shares_nothing_lists_itself() {
    let policies = Policies::of(&yearly("user", 10));
    let service = Tollgate::serve(policies.path());
    let url = format!("http://{}", service.admin);
    let list = replicas_at(&url);
    assert_eq!((&list["is_shared"], versions(&list).len()), (&json!(false), 1));
    assert_eq!((list.get("missing"), list.get("rejected")), (None, None));
    policies.write("policy.yaml", "domain: test\ndescriptors: [{ key: user, rate_limt: {} }]\n");
    assert_eq!(output(["reload", "--admin", &url]).status.code(), Some(2));
    let shown = output(["replicas", "--admin", &url]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    policies.write("policy.yaml", &yearly("user", 10));
    assert!(
        shown.contains("warning: the last policy change was rejected: unknown key `rate_limt`"),
        "{shown}"
    );

    let redis = Redis::start().await;
    let flags = ["--store", &redis.url(), "--store-timeout", "15s", "--replicas", "2"];
    let service = Tollgate::serve_with(policies.path(), &flags);
    let list = replicas_at(&format!("http://{}", service.admin));
    assert!(list["missing"].as_str().unwrap().contains("--replicas"), "{list}");
    let stored: Vec<String> = redis.query(&["KEYS", "tollgate:replica*"]).await.unwrap();
    assert_eq!(stored, [""; 0]);
}

const RELEASE: &str = env!("CARGO_PKG_VERSION");

fn replicas_at(url: &str) -> Value {
    let output = output(["replicas", "--json", "--admin", url]);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

/// Returns the versions of policies of those that have described themselves.
fn versions(list: &Value) -> Vec<&str> {
    let replicas = list["replicas"].as_array().unwrap();
    replicas.iter().filter_map(|replica| replica["policies"].as_str()).collect()
}

#[tokio::test]
async fn rates_of_the_last_minute_are_those_of_all_replicas() {
    let redis = Redis::start().await;
    let policies = Policies::of(&yearly("user", 10));
    let start = || {
        Tollgate::serve_with(policies.path(), &["--store", &redis.url(), "--store-timeout", "15s"])
    };
    let [idle, busy] = [start(), start()];
    let client = Client::connect(busy.grpc).await;
    for _ in 0..15 {
        client.status(descriptor(&[("user", "ann")])).await;
    }
    let web = Web::new(idle.admin);
    let rules =
        async || -> Value { serde_json::from_str(&web.get("/api/v1/rules").await.body).unwrap() };
    let denied = |list: &Value| list["rules"][0]["rates"]["1m_replicas"]["denied"].as_f64();
    let is_known = |list: &Value| denied(list).is_some_and(|denied| denied > 0.0);
    let list = becomes("the other's rates are known", TEST_TIMEOUT, rules, is_known).await;
    assert_eq!(list["replicas"], 2, "{list}");
    let rates = &list["rules"][0]["rates"];
    assert_eq!((&rates["1m"]["denied"], &rates["1m"]["allowed"]), (&json!(0.0), &json!(0.0)));
    let [allowed, denied] =
        ["allowed", "denied"].map(|outcome| rates["1m_replicas"][outcome].as_f64().unwrap());
    assert!((allowed / denied - 2.0).abs() < 0.1, "10 allowed, 5 denied: {list}");
    let top = output(["top", "--once", "--admin", &format!("http://{}", idle.admin)]);
    let text = String::from_utf8(top.stdout).unwrap();
    assert!(text.contains("1m columns: all 2 replicas, up to 5s late"), "{text}");
}

#[tokio::test]
async fn rates_are_shown_while_the_store_hangs() {
    let redis = Redis::start().await;
    let policies = Policies::of(&yearly("user", 10));
    let flags = ["--store", &redis.url(), "--store-timeout", "60s"];
    let service = Tollgate::serve_with(policies.path(), &flags);
    becomes("it is ready", TEST_TIMEOUT, || is_ready(&service), |ready| *ready).await;
    let web = Web::new(service.admin);
    redis.pause();
    for _ in 0..3 {
        // Before the timeout of the store.
        let list = tokio::time::timeout(TEST_TIMEOUT, fetch(&web, "/api/v1/rules")).await.unwrap();
        assert_eq!(list["replicas"], 1, "{list}");
    }
    redis.resume();
}
