//! The service away, and Envoys that die with their blocks.

use super::{policy, start};
use crate::support::tollgate::Tollgate;
use crate::support::{TEST_TIMEOUT, becomes};

#[tokio::test]
async fn without_the_service_blocks_are_used_to_their_end_and_then_the_filter_decides() {
    let (mut service, envoy) = start(&policy(1_000_000, "day", "3s")).await;
    envoy.heat("ann").await;
    // Until a whole block of the longest time has just been lent.
    let blocks = || envoy.stat("blocks");
    becomes("a block is in hand", TEST_TIMEOUT, blocks, |blocks| *blocks > 0).await;
    service.process.signal(rustix::process::Signal::KILL);
    service.process.wait_for_end();
    let decided = envoy.stat("decided").await;
    assert_eq!(envoy.send("ann").await.status, 200);
    assert_eq!(envoy.stat("decided").await, decided + 1, "a block is in hand");
    let status = || async { envoy.send("ann").await.status };
    becomes("the filter refuses, as configured", TEST_TIMEOUT, status, |code| *code == 500).await;
    let errors = || envoy.stat("exchange_errors");
    becomes("lost exchanges are counted", TEST_TIMEOUT, errors, |errors| *errors > 0).await;
    // Another service takes its place.
    let listen = service.grpc.to_string();
    let policies = policy(1_000_000, "day", "3s");
    let _service = Tollgate::serve_with(policies.path(), &["--grpc-listen", &listen]);
    becomes("the filter decides again", TEST_TIMEOUT, status, |code| *code == 200).await;
    let before = envoy.stat("decided").await;
    let decided = || async {
        envoy.send("ann").await;
        envoy.stat("decided").await
    };
    becomes("the module decides again", TEST_TIMEOUT, decided, |count| *count > before).await;
}
