//! The store in Redis, by real servers: it decides what memory decides, in one step, for many processes at once.
//!
//! | module | subject |
//! |---|---|
//! | `replay` | recorded traces give the same lines on every server and every topology |
//! | `rates` | rates whose amount changes, or whose numbers are large |
//! | `random` | so do traces and policies that nobody has thought of, amounts that change meanwhile included |
//! | `sides` | the stores that `random` compares |
//! | `straight` | the script of the frequent requests does what the long one does |
//! | `gather` | requests in flight go together, and none spoils another |
//! | `amounts` | who judges by other amounts makes no room for others |
//! | `atomic` | one round trip a request, and nothing left of what a Cluster's other slot denied |
//! | `calendar` | windows of a calendar, where clocks are days apart |
//! | `cancelled` | requests whose callers go away charge nothing that is not admitted |
//! | `failing` | requests of which the store cannot judge a part |
//! | `verdicts` | what is charged is what the verdict on the request says |
//! | `exactness` | never more than the limit, whoever asks at the same time |
//! | `reloads` | never more than the highest amount, whoever changes the amounts at the same time |
//! | `memory` | what a counter costs, and when it goes |
//! | `deny_cache` | who is known to be denied is not asked for |
//! | `lease` | hits taken in advance: what they cost, and that there are never more than the limit |
//! | `amend` | what people do to one counter: reset, refund, grant |
//! | `slots` | which slots of a Cluster counters are in, whatever clients send |
//! | `per_second` | limits of a second on servers of their own |
//! | `who` | `record`, and `tollgate who` |
//! | `replicas` | how many processes a process thinks that there are |
//! | `hashed` | `hash_values`: values that are nowhere to be read |
//! | `clock` | replicas whose clocks are not their masters' |
//! | `faults` | what callers see under load while servers die, hang, refuse or move |
//! | `access` | users, passwords, certificates, sockets, databases, prefixes; warnings at the start |

mod access;
mod amend;
mod amounts;
mod atomic;
mod calendar;
mod cancelled;
mod clock;
mod deny_cache;
mod exactness;
mod failing;
mod faults;
mod gather;
mod hashed;
mod lease;
mod memory;
mod per_second;
mod random;
mod rates;
mod reloads;
mod replay;
mod replicas;
mod sides;
mod slots;
mod straight;
mod verdicts;
mod who;

use crate::support::policy::Policies;
use crate::support::redis::Redis;
use crate::support::redis::cluster::{Cluster, Layout};
use crate::support::rls::{Client, descriptor};
use crate::support::tollgate::Tollgate;
use crate::support::web::Web;
use crate::support::{PATIENCE, becomes};

/// A policy for domain `test`, whose rules are given as `key: rate_limit`.
fn policy(rules: &[(&str, &str)]) -> String {
    let rule = |(key, limit): &(&str, &str)| format!("  - key: {key}\n    rate_limit: {{ {limit} }}\n");
    format!("domain: test\ndescriptors:\n{}", rules.iter().map(rule).collect::<String>())
}

/// Three masters.
async fn cluster() -> Cluster {
    Cluster::start_as(calm()).await
}

/// Nobody fails here, and nobody shall be thought to have failed where the machine is busy.
fn calm() -> Layout {
    Layout { replicas: 0, node_timeout_ms: 15_000, ..Layout::default() }
}

/// A service whose counters are at `store`, ready; it waits for slow answers, since a busy machine is no subject here.
async fn serve(policies: &Policies, store: &str, flags: &[&str]) -> (Tollgate, Client) {
    let service = start(policies, store, flags);
    becomes("the service is ready", PATIENCE, || is_ready(&service), |ready| *ready).await;
    let client = Client::connect(service.grpc).await;
    (service, client)
}

/// The same before it is ready.
fn start(policies: &Policies, store: &str, flags: &[&str]) -> Tollgate {
    // Without `--replicas` a heartbeat would now and then be among the commands that tests count.
    let usual = ["--store", store, "--store-timeout", "15s", "--replicas", "1", "--workers", "2"];
    Tollgate::serve_with(policies.path(), &[&usual, flags].concat())
}

async fn is_ready(service: &Tollgate) -> bool {
    Web::new(service.http).get("/readyz").await.status == 200
}

/// Hits left of a counter, without a hit.
async fn remaining(client: &Client, key: &str, value: &str) -> u32 {
    let mut peek = descriptor(&[(key, value)]);
    peek.hits_addend = Some(0);
    client.status(peek).await.limit_remaining
}

/// How often some nodes were asked for a command.
async fn calls(nodes: &[&Redis], command: &str) -> u64 {
    let mut sum = 0;
    for node in nodes {
        sum += node.commandstats().await.get(command).copied().unwrap_or_default();
    }
    sum
}

/// The nodes of a cluster.
fn nodes_of(cluster: &Cluster) -> Vec<&Redis> {
    cluster.nodes.iter().map(|node| &node.redis).collect()
}

/// A metric of a service.
async fn metric(service: &Tollgate, name: &str) -> u64 {
    let text = Web::new(service.http).get("/metrics").await.body;
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value.unwrap_or_else(|| panic!("{name} is not in\n{text}")).parse().unwrap()
}
