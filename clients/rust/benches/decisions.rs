//! The time of a decision in memory, with a block in hand.
//!
//! `cargo bench -p tollgate-client` prints medians. A service in this process lends blocks; the
//! client is used as by its callers, on one thread and on two.

#![allow(clippy::expect_used, reason = "a benchmark, which ends by its errors")]

use std::sync::OnceLock;

use divan::{Bencher, black_box};
use tokio::runtime::Runtime;
use tollgate_client::{Client, Descriptor};

#[path = "../tests/service/mod.rs"]
mod service;

fn main() {
    divan::main();
}

/// A runtime in the background, and a client with blocks of many hits for the user `ann`.
fn client() -> &'static (Runtime, Client) {
    static CLIENT: OnceLock<(Runtime, Client)> = OnceLock::new();
    CLIENT.get_or_init(|| {
        let runtime = Runtime::new().expect("a runtime");
        let client = runtime.block_on(async {
            let target = service::serve_lender(u32::MAX).await;
            let client = Client::builder(target.to_string()).leases().build().expect("a client");
            let ann = [Descriptor::new("user", "ann")];
            while client.lease_stats().decided == 0 {
                client.should_rate_limit("shop", &ann).await.expect("a decision");
            }
            client
        });
        (runtime, client)
    })
}

/// A decision for a descriptor that the caller has.
#[divan::bench(threads = [1, 2], sample_size = 1000)]
fn in_memory(bencher: Bencher<'_, '_>) {
    let (runtime, client) = client();
    let ann = [Descriptor::new("user", "ann")];
    let _entered = runtime.enter();
    bencher.bench(|| decide(client, black_box(&ann)));
}

/// The same, with the descriptor that is made for the request.
#[divan::bench(sample_size = 1000)]
fn in_memory_with_its_descriptor(bencher: Bencher<'_, '_>) {
    let (runtime, client) = client();
    let _entered = runtime.enter();
    bencher.bench(|| decide(client, &[Descriptor::new("user", black_box("ann"))]));
}

fn decide(client: &Client, descriptors: &[Descriptor]) {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let decision = std::pin::pin!(client.should_rate_limit("shop", descriptors).into_future());
    // A decision by the service would not be ready at once.
    assert!(decision.poll(&mut context).is_ready(), "decided by the service");
}
