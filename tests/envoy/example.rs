//! `deploy/envoy/envoy.yaml`, the example of the README.

use std::process::Command;

use crate::support::envoy::{Envoy, binary, on_free_ports};
use crate::support::root;
use crate::support::tollgate::Tollgate;
use crate::support::web::Reply;

#[test]
fn envoy_finds_nothing_wrong_with_the_example() {
    let mut validate = Command::new(binary());
    validate.args(["--mode", "validate", "-c"]).arg(root().join("deploy/envoy/envoy.yaml"));
    let ended = validate.output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
}

#[tokio::test]
async fn the_example_admits_100_requests_a_minute() {
    let tollgate = Tollgate::serve(&root().join("config/policies"));
    let port = tollgate.grpc.port().to_string();
    let envoy = Envoy::start_by(&example(), &[("TOLLGATE", &port)]).await;

    let mut passed = Vec::new();
    let refused = loop {
        let reply = envoy.edge.get("/").await;
        if reply.status != 200 {
            break reply;
        }
        // A new minute has begun.
        if reply.header("x-ratelimit-remaining") == "99" {
            passed.clear();
        }
        passed.push(reply);
        assert!(passed.len() <= 100, "more than 100 passed");
    };
    assert_eq!(passed.len(), 100);
    is_as_the_readme_says(&refused);
}

#[tokio::test]
async fn the_example_does_not_trust_addresses_of_clients() {
    let tollgate = Tollgate::serve(&root().join("config/policies"));
    let port = tollgate.grpc.port().to_string();
    let envoy = Envoy::start_by(&example(), &[("TOLLGATE", &port)]).await;
    let mut left = Vec::new();
    for address in ["198.51.100.1", "198.51.100.2", "198.51.100.3"] {
        let reply = envoy.edge.get_with("/", &[("x-forwarded-for", address.as_bytes())]).await;
        left.push(reply.header("x-ratelimit-remaining").parse::<u32>().unwrap());
    }
    // A new minute begins between at most two of them.
    assert!(left[0] > left[1] || left[1] > left[2], "{left:?}");
}

fn is_as_the_readme_says(refused: &Reply) {
    assert_eq!(refused.status, 429);
    assert_eq!(refused.header("x-envoy-ratelimited"), "true");
    assert_eq!(refused.header("x-ratelimit-limit"), "100, 100;w=60");
    assert_eq!(refused.header("x-ratelimit-remaining"), "0");
    assert_eq!(refused.header("x-ratelimit-reset"), refused.header("retry-after"));
    let retry_after: u64 = refused.header("retry-after").parse().unwrap();
    assert!((1..=60).contains(&retry_after), "{retry_after}");
}

/// Returns the example on free ports, with the tests' upstream as the application.
pub(crate) fn example() -> String {
    on_free_ports(&std::fs::read_to_string(root().join("deploy/envoy/envoy.yaml")).unwrap())
}
