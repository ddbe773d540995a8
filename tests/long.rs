//! Tests that take minutes or need the tools of several languages: `tests/run --all`.
//!
//! | module | subject |
//! |---|---|
//! | `clients` | gRPC clients in other languages, curl and h2load |
//! | `conformance` | HTTP/2 conformance by h2spec |
//! | `guided` | adding an algorithm: compile errors lead to every place |
//! | `long_run` | eight Envoys with RLQS, while processes die and connections are cut |
//! | `stock_envoy` | RLQS of Envoy 1.40, on which the server relies, with a scripted server |
//! | `report` | `examples/report`, with a Redis Cluster |
//! | `worlds` | a thousand simulated worlds, in a release build |
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a test that panics is a test that fails"
)]

mod clients;
mod conformance;
mod guided;
mod long_run;
mod report;
mod stock_envoy;
mod worlds;

use tollgate_testkit as support;
