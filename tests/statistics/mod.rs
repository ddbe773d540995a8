//! Metrics under the names of envoyproxy/ratelimit.
//!
//! | module | subject |
//! |---|---|
//! | `statsd` | sent to StatsD, over UDP and TCP |
//! | `prometheus` | scraped by Prometheus, with the built-in mapping and with one from a file |
//! | `redis` | metrics of the store |

mod prometheus;
mod redis;
mod statsd;

use std::net::SocketAddr;

use crate::support::policy::Policies;
use crate::support::process::Process;
use crate::support::rls::{Client, descriptor, limit, request};
use crate::support::tollgate::Tollgate;

/// Two rules of different depth, and one with values in its name.
const POLICY: &str = "
domain: test
descriptors:
- {key: user, rate_limit: &two {unit: day, requests_per_unit: 2}}
- {key: plan, value: free, descriptors: [{key: user, rate_limit: *two}]}
- {key: each, detailed_metric: true, rate_limit: *two}
";

/// A service, a client, and the service's files.
struct Serving {
    service: Tollgate,
    client: Client,
    _policies: Policies,
}

/// Starts a service with these flags for statistics.
async fn serve(flags: &[&str]) -> Serving {
    let policies = Policies::of(POLICY);
    let service = Tollgate::serve_with(policies.path(), flags);
    let client = Client::connect(service.grpc).await;
    Serving { service, client, _policies: policies }
}

/// Returns the address on which a process exposes statistics.
fn address(process: &mut Process) -> SocketAddr {
    process.wait_for_line("the address of the statistics", |line| {
        let line: serde_json::Value = serde_json::from_str(line).ok()?;
        let is_it = line["fields"]["protocol"] == "stats";
        is_it.then(|| line["fields"]["address"].as_str().unwrap().parse().unwrap())
    })
}

/// Sends five requests: three for one rule, the last of which is denied; one for a deeper rule; one
/// for an unknown domain.
async fn known_requests(client: &Client) {
    for expected in [true, true, false] {
        assert_eq!(client.hit("user", "ann").await, expected);
    }
    client.status(descriptor(&[("plan", "free"), ("user", "ann")])).await;
    let mut elsewhere = request(vec![descriptor(&[("user", "ann")])]);
    elsewhere.domain = "elsewhere".to_owned();
    client.decide(elsewhere).await.unwrap();
}

/// Sends a request with a limit override.
async fn own_limit(client: &Client, value: &str) {
    let mut own = descriptor(&[("own", value)]);
    own.limit = limit(5, 3);
    client.status(own).await;
}
