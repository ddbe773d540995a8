//! A flood of resets on one connection (CVE-2023-44487) ends it.
//!
//! Time forgives resets, so the connection ends once the service processes them several times as
//! fast for some milliseconds. Only the release build is that fast, and only while it has a CPU: on
//! a busy machine, the flood goes on until then.

use std::iter::once;

use crate::support::http2::{Http2, INDEXED, PATH, indexing, opened_and_reset};
use crate::support::load::no_other_load;
use crate::support::policy::{Policies, daily};
use crate::support::release::{artifact, release};
use crate::support::rls::Client;
use crate::support::tollgate::{Tollgate, command_of};
use crate::support::web::Web;
use crate::support::{TEST_TIMEOUT, becomes};

/// Number of calls per write.
const CALLS: u32 = 1_000;

#[tokio::test]
async fn a_flood_of_resets_ends_its_connection_alone_and_is_counted() {
    release(&["build", "--bin", "tollgate"], &[]);
    let _alone = no_other_load().await;
    let policies = Policies::of(&daily("user", 5));
    let flags = ["--policy", policies.path().to_str().unwrap(), "--workers", "1"];
    let service = Tollgate::serve_as(&mut command_of(artifact("tollgate"), ["serve"]), &flags);
    let other = Client::connect(service.grpc).await;
    let mut client = Http2::connect(service.grpc).await;
    client.gets_enhance_your_calm_by(resets()).await;
    let counted = "tollgate_grpc_connections_cut_total{kind=\"given_up_calls\"}";
    let web = Web::new(service.http);
    becomes("it is counted", TEST_TIMEOUT, || web.metric(counted), |count| *count == 1).await;
    assert!(other.hit("user", "ann").await);
}

/// Returns endless calls that are reset at once, in as few bytes as possible.
fn resets() -> impl Iterator<Item = Vec<u8>> {
    let first = opened_and_reset(1, &indexing(PATH));
    let some = |from: u32| {
        (0..CALLS).flat_map(|number| opened_and_reset(from + 2 * number, &INDEXED)).collect()
    };
    once(first).chain((3..).step_by(2 * CALLS as usize).map(some))
}
