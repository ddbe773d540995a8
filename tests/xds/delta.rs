//! The incremental protocol variant (delta xDS).

use serde_json::{Value, json};

use super::{broken, daily, follow, limit_becomes, metric, refuses};
use crate::support::control_plane::ControlPlane;
use crate::support::{TEST_TIMEOUT, becomes};

fn other(amount: u32) -> Value {
    json!({ "name": "other", "domain": "other", "descriptors": [super::limit("user", amount)] })
}

#[tokio::test]
async fn added_changed_and_removed_resources_add_up() {
    let mut plane = ControlPlane::start(&[daily("user", 5)]);
    let service = follow(&plane, &["--xds-delta"]);
    limit_becomes(&service, Some(5)).await;
    plane.serve("2", &[daily("user", 5), other(1)]);
    let taken = plane
        .wait_for_request("that the second is taken", |request| request["response_nonce"] == "2");
    assert!(!refuses(&taken));
    assert_eq!(plane.events("delta")[1]["changed"], json!(["other"]));
    limit_becomes(&service, Some(5)).await;
    plane.serve("3", &[daily("user", 7), other(1)]);
    limit_becomes(&service, Some(7)).await;
    plane.serve("4", &[other(1)]);
    limit_becomes(&service, None).await;
}

#[tokio::test]
async fn a_bad_change_is_refused_and_the_rest_of_its_response_is_applied_with_the_fix() {
    let mut plane = ControlPlane::start(&[other(1)]);
    let service = follow(&plane, &["--xds-delta"]);
    limit_becomes(&service, None).await;
    let bad =
        json!({ "name": "bad", "domain": "bad", "descriptors": broken()["descriptors"].clone() });
    plane.serve("2", &[other(1), daily("user", 5), bad]);
    let refused = plane.wait_for_request("that the second is refused", refuses);
    assert!(
        refused["error_detail"]["message"].as_str().unwrap().contains("invalid unit `unknown`"),
        "{refused}"
    );
    limit_becomes(&service, None).await;
    plane.serve("3", &[other(1), daily("user", 5)]);
    limit_becomes(&service, Some(5)).await;
    assert_eq!(
        plane.events("delta")[2],
        json!({ "event": "delta", "changed": [], "removed": ["bad"] })
    );
}

#[tokio::test]
async fn a_new_stream_sends_the_known_versions() {
    let mut plane = ControlPlane::start(&[daily("user", 5)]);
    let service = follow(&plane, &["--xds-delta"]);
    limit_becomes(&service, Some(5)).await;
    plane.restart();
    becomes(
        "it is retried",
        TEST_TIMEOUT,
        || metric(&service, "tollgate_xds_reconnects_total"),
        |count| *count > 0,
    )
    .await;
    let first = plane.wait_for_request("the first request", |_| true);
    assert!(first["initial_resource_versions"]["test"].is_string(), "{first}");
    limit_becomes(&service, Some(5)).await;
    plane.serve("2", &[daily("user", 7)]);
    limit_becomes(&service, Some(7)).await;
}
