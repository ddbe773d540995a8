//! Tests with real parts: the binary as a process, with Redis, Envoy, gateways and a browser around
//! it. `tests/run` installs the programs, by the module's row in `tests/needs`, and runs them.
//!
//! | module | subject |
//! |---|---|
//! | `redis` | the Redis store: decisions, cost, connections, behavior during failures |
//! | `resources` | attacks on memory and file descriptors, with a store as well |
//! | `envoy` | Envoy 1.40 as the client |
//! | `inside` | Envoy with the module of `envoy/` |
//! | `rlqs` | RLQS, with stock Envoys |
//! | `programs` | ext_authz and ForwardAuth behind Envoy, nginx, HAProxy, Caddy |
//! | `verify` | `tollgate verify` with services and gateways, right and wrong ones |
//! | `page` | the admin page in Chromium with its driver |
//! | `statistics` | envoyproxy/ratelimit's metrics: over StatsD, and for Prometheus |
//! | `spans` | tracing: spans of calls, from a real Envoy to a collector in Python |
//! | `xds` | policies from a control plane in Python |
//! | `drop_in` | in place of envoyproxy/ratelimit, after Istio and Envoy Gateway |
//! | `deploy` | alerts and dashboard in a real Prometheus, manifests by schema, running Envoys |
//! | `book` | the book: it builds, its examples run as shown |
//! | `tls` | certificates of kinds that only OpenSSL makes |
//! | `servers` | the Redis servers that other tests build on |
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a test that panics is a test that fails"
)]

mod book;
mod deploy;
mod drop_in;
mod envoy;
mod inside;
mod page;
mod programs;
mod redis;
mod resources;
mod rlqs;
mod servers;
mod spans;
mod statistics;
mod tls;
mod verify;
mod xds;

use tollgate_testkit as support;
