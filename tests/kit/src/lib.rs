//! Servers, clients, simulated worlds and inputs that tests, benchmarks and examples share.
//!
//! | module | contents |
//! |---|---|
//! | `tollgate`, `process`, `release` | the binary as a process; programs built as `release` |
//! | `toy`, `toy_service` | a store that `src` does not know, and the service over it |
//! | `probes` | all probes of a service for its readiness |
//! | `redis` | Redis, Valkey, Sentinel and Cluster, as processes |
//! | `rls`, `loans`, `quotas`, `web`, `http2`, `raw_headers` | clients |
//! | `envoy`, `upstream`, `control_plane`, `prometheus`, `model` | other servers and programs |
//! | `fleet`, `quota_wire` | Envoys with RLQS under load, and their connection |
//! | `certificates`, `secure`, `policy` | files and options for a service |
//! | `pages`, `fences` | the book, and the fenced code blocks of its pages |
//! | `faults` | a service whose store fails |
//! | `load`, `usage` | calls at a steady rate; CPU and memory of processes |
//! | `world` | several processes and their Redis servers, simulated in one thread |
//! | `traces` | random traces that several stores must judge alike |
//! | `vectors` | recorded traces, with the answers that a model expects |
//! | `ceiling` | a server with a constant response, to measure against |
//! | `inputs` | policies, requests and limiters of benchmarks |
//!
//! May depend on every crate and on the service. No crate depends on it but for its tests. Servers
//! listen on 127.0.0.1 and free ports, and end with the value that started them.
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::cast_possible_truncation,
    clippy::new_without_default,
    clippy::should_implement_trait,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::missing_errors_doc,
    reason = "for tests, of which one that panics fails"
)]

pub mod ceiling;
pub mod certificates;
pub mod control_plane;
pub mod envoy;
pub mod faults;
pub mod features;
pub mod fences;
pub mod fleet;
pub mod http2;
pub mod inputs;
pub mod load;
pub mod loans;
pub mod model;
pub mod pages;
pub mod peer;
pub mod policy;
pub mod probes;
pub mod process;
pub mod prometheus;
pub mod quota_wire;
pub mod quotas;
pub mod random;
pub mod raw_headers;
pub mod redis;
pub mod release;
pub mod rls;
pub mod secure;
pub mod tollgate;
pub mod toy;
pub mod toy_service;
pub mod traces;
pub mod upstream;
pub mod usage;
pub mod vectors;
pub mod web;
pub mod world;

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Timeout for operations that should complete immediately. Generous, so that a busy machine fails
/// no test: at a load of 17, clients of a killed process took more than 20 s to go on.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Polls a closure until it returns a value, and panics after `within`. `what` describes the
/// expected event.
#[track_caller]
pub fn eventually<T>(what: &str, within: Duration, mut poll: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(answer) = poll() {
            return answer;
        }
        assert!(begun.elapsed() < within, "{what}: not within {within:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Polls an async closure until `is_right` accepts the result; panics with the last result after
/// `within`.
pub async fn becomes<T: Debug, F: Future<Output = T>>(
    what: &str,
    within: Duration,
    mut poll: impl FnMut() -> F,
    is_right: impl Fn(&T) -> bool,
) -> T {
    let begun = Instant::now();
    loop {
        let answer = poll().await;
        if is_right(&answer) {
            return answer;
        }
        assert!(
            begun.elapsed() < within,
            "{what}: not within {within:?}, the last answer was {answer:?}"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Returns the root of the repository.
pub fn root() -> &'static Path {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    root.expect("this crate is two folders below the root")
}

/// Returns the folder of the programs that were built with this one: cargo puts tests, benchmarks
/// and examples into a folder below it.
pub fn built() -> PathBuf {
    let program = std::env::current_exe().expect("a process knows its program");
    program.ancestors().nth(2).expect("this program is below the others").to_owned()
}
