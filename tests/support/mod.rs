//! Servers and clients shared by the tests.

pub(crate) mod certificates;
pub(crate) mod control_plane;
pub(crate) mod envoy;
pub(crate) mod http2;
pub(crate) mod load;
pub(crate) mod loans;
pub(crate) mod model;
pub(crate) mod policy;
pub(crate) mod process;
pub(crate) mod prometheus;
pub(crate) mod quotas;
pub(crate) mod random;
pub(crate) mod raw_headers;
pub(crate) mod redis;
pub(crate) mod release;
pub(crate) mod rls;
pub(crate) mod secure;
pub(crate) mod tollgate;
pub(crate) mod upstream;
pub(crate) mod web;

use std::fmt::Debug;
use std::time::{Duration, Instant};

/// Timeout for operations that should complete immediately. Generous, so that a busy machine fails
/// no test.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Polls a closure until it returns a value, and panics after `within`. `what` describes the
/// expected event.
#[track_caller]
pub(crate) fn eventually<T>(
    what: &str,
    within: Duration,
    mut poll: impl FnMut() -> Option<T>,
) -> T {
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
pub(crate) async fn becomes<T: Debug, F: Future<Output = T>>(
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
