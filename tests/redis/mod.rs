//! The store in Redis, on real servers: decides as memory does, in one step, for many
//! processes at once.
//!
//! | module | subject |
//! |---|---|
//! | `replay` | recorded traces give the same lines on every topology |
//! | `traces` | traces that memory, servers of each flavor and Clusters judge alike |
//! | `edges` | counters whose stored state is at a bound that no trace reaches |
//! | `simulated` | the simulated server behaves like a real one |
//! | `batching` | requests in flight are sent together, and do not affect one another |
//! | `golden` | stored bytes and replies of the scripts do not change |
//! | `atomic` | one round trip per request, and no charge left if another slot denies |
//! | `cancelled` | cancelled requests charge nothing that is not admitted |
//! | `failing` | requests of which the store cannot judge a part |
//! | `verdicts` | charges follow the verdict on the request |
//! | `exactness` | never more than the limit, with concurrent requests |
//! | `hold_faults` | holds and permits stay exact while calls, processes and masters are lost |
//! | `reloads` | never more than the highest amount, with concurrent reloads |
//! | `preload` | scripts are loaded on connect |
//! | `longest_scripts` | time of the scripts at large states of a counter |
//! | `memory` | memory of a counter, and its expiry |
//! | `deny_cache` | known denials need no call |
//! | `lease` | leases of a running process: their cost, and the return of their hits |
//! | `loans` | loans: returned once, in one round trip |
//! | `amend` | operations on one counter: reset, refund, grant |
//! | `open_holds` | open holds of a counter, listed from every topology |
//! | `slots` | slots of a Cluster that counters are in, for any input |
//! | `per_second` | per-second limits on servers of their own |
//! | `callers` | `record`, and `tollgate inspect --store` |
//! | `administration` | responses of the admin API that depend on the store |
//! | `readiness` | readiness that follows the store |
//! | `secrets` | a wrong password is neither in the log nor on a page |
//! | `replicas` | the number of processes that a process assumes |
//! | `hashed` | `hash_values`: values that cannot be read anywhere |
//! | `clock` | replicas whose clocks differ from their masters' |
//! | `hostile` | servers that redirect anywhere, or send replies and texts that are not Redis' |
//! | `faults` | results of calls under load while servers die, hang, refuse or move |
//! | `credentials` | users and passwords that change under load; connections of a maximum age |
//! | `access` | users, passwords, certificates, sockets, databases, prefixes; warnings at startup |

mod access;
mod administration;
mod ahead;
mod amend;
mod atomic;
mod batching;
mod callers;
mod cancelled;
mod check_store;
mod clock;
mod credentials;
mod deny_cache;
mod edges;
mod exactness;
mod failing;
mod faults;
mod features;
mod golden;
mod hashed;
mod hold_faults;
mod hold_retries;
mod hostile;
mod lease;
mod loans;
mod longest_scripts;
mod memory;
mod open_holds;
mod per_second;
mod preload;
mod readiness;
mod reloads;
mod replay;
mod replicas;
mod rolling;
mod secrets;
mod sharded;
mod simulated;
mod slots;
mod traces;
mod verdicts;

use crate::support::policy::Policies;
use crate::support::redis::Redis;
use crate::support::redis::cluster::{Cluster, Layout};
use crate::support::rls::{Client, descriptor};
use crate::support::tollgate::Tollgate;
use crate::support::web::Web;
use crate::support::{TEST_TIMEOUT, becomes};

/// Returns a policy for domain `test`, with rules given as `key: rate_limit`.
fn policy(rules: &[(&str, &str)]) -> String {
    let rule =
        |(key, limit): &(&str, &str)| format!("  - key: {key}\n    rate_limit: {{ {limit} }}\n");
    format!("domain: test\ndescriptors:\n{}", rules.iter().map(rule).collect::<String>())
}

/// Starts a cluster of three masters.
async fn cluster() -> Cluster {
    Cluster::start_as(calm()).await
}

/// Returns a layout in which no node fails, nor is taken for failed on a busy machine.
fn calm() -> Layout {
    Layout { replicas: 0, node_timeout_ms: 15_000, ..Layout::default() }
}

/// Starts a service whose counters are at `store`, and waits until it is ready. It waits for slow
/// answers, since a busy machine is not the subject here.
async fn serve(policies: &Policies, store: &str, flags: &[&str]) -> (Tollgate, Client) {
    connected(start(policies, store, flags)).await
}

/// Returns services with the limits on each kind of store. The servers end with the guards.
async fn on_all_stores(limits: &[(&str, &str)]) -> Vec<(Tollgate, Client, Box<dyn Send>)> {
    let policies = Policies::of(&policy(limits));
    let mut services = Vec::new();
    let redis = Redis::start().await;
    let cluster = cluster().await;
    let stores: [(String, Box<dyn Send>); 3] = [
        ("memory".to_owned(), Box::new(())),
        (redis.url(), Box::new(redis)),
        (cluster.url(), Box::new(cluster)),
    ];
    for (url, guard) in stores {
        let (service, client) = serve(&policies, &url, &[]).await;
        services.push((service, client, guard));
    }
    services
}

/// Starts one of several processes on one store, which may be of an earlier release, see
/// [`Tollgate::serve_one_of`].
async fn serve_one_of(
    number: usize,
    policies: &Policies,
    store: &str,
    flags: &[&str],
) -> (Tollgate, Client) {
    connected(Tollgate::serve_one_of(number, &flags_of(policies, store, flags))).await
}

/// Waits until the service is ready and its workers are connected: while one is, it loads scripts,
/// which would be among the commands that tests count.
async fn connected(service: Tollgate) -> (Tollgate, Client) {
    becomes("the service is ready", TEST_TIMEOUT, || is_ready(&service), |ready| *ready).await;
    let admin = Web::new(service.admin);
    let status = async || admin.get("/api/v1/status").await.body;
    let are_connected = |status: &String| !status.contains("workers are connected");
    becomes("its workers are connected", TEST_TIMEOUT, status, are_connected).await;
    let client = Client::connect(service.grpc).await;
    (service, client)
}

/// Starts a service, and does not wait until it is ready.
fn start(policies: &Policies, store: &str, flags: &[&str]) -> Tollgate {
    Tollgate::serve_by(&flags_of(policies, store, flags))
}

fn flags_of<'a>(policies: &'a Policies, store: &'a str, flags: &[&'a str]) -> Vec<&'a str> {
    // Without `--replicas`, a heartbeat would occasionally be among the commands that tests count.
    let usual = ["--store", store, "--store-timeout", "15s", "--replicas", "1", "--workers", "2"];
    [&["--policy", policies.path().to_str().unwrap()], &usual[..], flags].concat()
}

async fn is_ready(service: &Tollgate) -> bool {
    Web::new(service.http).get("/readyz").await.status == 200
}

/// Returns the key that matches a pattern, of which there is only one, and its value.
async fn only_counter(redis: &Redis, pattern: &str) -> (Vec<u8>, Vec<u8>) {
    let mut keys: Vec<Vec<u8>> = redis.query(&["KEYS", pattern]).await.unwrap();
    assert_eq!(keys.len(), 1, "{keys:?}");
    let key = keys.remove(0);
    let value = redis.query_bytes(&[b"GET", &key]).await.unwrap();
    (key, value)
}

/// Returns the instant of the last write of a value, in microseconds: it comes after the tag.
fn last_write(value: &[u8]) -> u64 {
    u64::from_be_bytes([&[0][..], &value[1..8]].concat().try_into().unwrap())
}

/// Returns the hits left of a counter, without taking any.
async fn remaining(client: &Client, key: &str, value: &str) -> u32 {
    let mut peek = descriptor(&[(key, value)]);
    peek.hits_addend = Some(0);
    client.status(peek).await.limit_remaining
}

/// Returns the number of calls of a command on some nodes.
async fn calls(nodes: &[&Redis], command: &str) -> u64 {
    let mut sum = 0;
    for node in nodes {
        sum += node.commandstats().await.get(command).copied().unwrap_or_default();
    }
    sum
}

/// Returns the nodes of a cluster.
fn nodes_of(cluster: &Cluster) -> Vec<&Redis> {
    cluster.nodes.iter().map(|node| &node.redis).collect()
}

/// Returns a metric of a service.
async fn metric(service: &Tollgate, name: &str) -> u64 {
    let text = Web::new(service.http).get("/metrics").await.body;
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("{name} is not in\n{text}")).parse().unwrap()
}

/// Reads a number from an environment variable.
fn from_environment(name: &str) -> Option<u32> {
    std::env::var(name).ok()?.parse().ok()
}
