//! Memory cost of a counter, from the growth of the process.

use std::sync::Arc;

use super::case::{Place, Policy};
use super::load::{InFlight, Load, Requests};
use super::servers::{Running, Store};
use tollgate_testkit::usage::resident_bytes;

/// Number of counters created.
pub(crate) const COUNT: usize = 1_000_000;
/// Maximum bytes per counter.
pub(crate) const TARGET: f64 = 120.0;
/// Digits in each key's value, which make the key 32 bytes long.
const WIDTH: usize = 32;
const IN_FLIGHT: InFlight = InFlight { connections: 4, streams: 64 };

/// Returns the bytes per counter. The same number of calls for a single key runs first, so that
/// memory of connections and buffers does not count.
pub(crate) async fn bytes_of_one() -> f64 {
    let store = Store::start(Place::Memory).await;
    let service = Running::tollgate(Policy::Usual, &store, &[]);
    let load = |descriptor: &str, count: usize| {
        let requests = Arc::new(Requests::new("bench", &[descriptor], count, WIDTH));
        let answers = Load { service: service.address, requests, in_flight: IN_FLIGHT }.run_all();
        assert_eq!(answers.ok, count as u64, "every counter has room");
    };
    load("user=one", COUNT / 10);
    let before = resident_bytes(service.process);
    load("user=%n", COUNT);
    (resident_bytes(service.process) - before) as f64 / COUNT as f64
}
