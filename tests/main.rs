//! The tests of the whole: the binary as a process, with real clients and a real Envoy around it.
//!
//! | module | subject |
//! |---|---|
//! | `serve`, `health`, `drain` | the process: how it starts, what it says of itself, how it ends |
//! | `reload` | policy files that change under a running process |
//! | `listen`, `tls` | how gRPC is reached: sockets, certificates, how old a connection gets |
//! | `readiness` | when every probe says that it can be asked |
//! | `answers` | headers, dynamic metadata, and modes of the whole process |
//! | `http` | decisions in JSON, and the pages of administration |
//! | `requests`, `calls` | what no proxy sends, and what every client may; in pieces, or by streams that are no calls |
//! | `authority` | calls whose `:authority` is no authority of a URI, or missing |
//! | `abuse` | clients that flood, hoard, dawdle or do not read, and what others notice of them |
//! | `clients` | clients of gRPC in other languages, curl and h2load; `tests/run` installs them |
//! | `conformance` | HTTP/2 by the book: h2spec, which `tests/run` installs |
//! | `secrets` | passwords and keys, which are said nowhere |
//! | `allocations` | what a decision allocates |
//! | `administration` | the API of administration, what it tells and to whom; metrics |
//! | `rollout` | changes of policies before they are in force: tests, differences, replays, candidates |
//! | `page` | the page of administration in Chromium, by its driver; `tests/run` installs both |
//! | `commands` | the other subcommands, by their exit codes |
//! | `envoy` | Envoy 1.40 as the client; `tests/run` installs it |
//! | `redis` | the store in Redis: what it decides, what it costs, how it is reached, what callers see while it fails |
//! | `statistics` | what envoyproxy/ratelimit counts, under its names: over StatsD, and for Prometheus |
//! | `spans` | tracing: spans of calls, from a real Envoy to a collector in Python |
//! | `xds` | policies from a control plane, in Python, whose packages `tests/run` installs |
//! | `drop_in` | the binary in the place of envoyproxy/ratelimit, told by its variables: after Istio and after Envoy Gateway |
//! | `deploy` | what `deploy` holds: alerts and dashboard before a real Prometheus, manifests by their schemas, Envoys that run |
//! | `docs` | the book: it builds, its commands print what it shows, its reference is as the code is |
//! | `servers` | the Redis servers that other tests build on |
//! | `vectors` | `replay` against recorded decisions that a model made |
//! | `speed` | that it is near the ceiling and takes no more instructions than it did, within wide margins |
//! | `fuzz_smoke` | the fuzz targets of `fuzz/`, for a bounded time |
//! | `tidy` | the rules of the house: who may use whom, how long a file may be |
//!
//! `support` starts and stops what they need: everything on 127.0.0.1 and free ports, nothing outlives its test.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a test that panics is a test that fails"
)]

mod abuse;
mod administration;
mod allocations;
mod answers;
mod authority;
mod calls;
mod clients;
mod commands;
mod conformance;
mod deploy;
mod docs;
mod drain;
mod drop_in;
mod envoy;
mod fuzz_smoke;
mod health;
mod http;
mod listen;
mod page;
mod readiness;
mod redis;
mod reload;
mod requests;
mod rollout;
mod secrets;
mod serve;
mod servers;
mod spans;
mod speed;
mod statistics;
mod support;
mod tidy;
mod tls;
mod vectors;
mod xds;
