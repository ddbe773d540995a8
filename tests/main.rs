//! Integration tests: the binary as a process, with real clients and a real Envoy around it.
//!
//! | module | subject |
//! |---|---|
//! | `serve`, `health`, `drain` | the process: start, health, shutdown |
//! | `inside` | Envoy with the module of `envoy/` |
//! | `rlqs` | RLQS: a stock Envoy, measured with a scripted server |
//! | `reload` | policy files that change at run time |
//! | `listen`, `tls` | listeners for gRPC: sockets, certificates, maximum connection age |
//! | `readiness` | the conditions under which each probe reports ready |
//! | `answers` | headers, dynamic metadata, and process-wide modes |
//! | `http` | decisions in JSON, and the admin pages |
//! | `requests`, `calls` | invalid and unusual requests; split messages, streams other than gRPC |
//! | `authority` | calls with an invalid or missing `:authority` |
//! | `abuse` | abusive clients and their effect on others |
//! | `clients` | gRPC clients in other languages, curl and h2load, installed by `tests/run` |
//! | `conformance` | HTTP/2 conformance by h2spec, installed by `tests/run` |
//! | `holds` | `HoldService` over gRPC and JSON, and holds by the command line |
//! | `loans` | `LeaseService` over gRPC and JSON |
//! | `secrets` | passwords and keys, which appear in no output |
//! | `allocations` | allocations of a decision |
//! | `administration` | the admin API: content, authorization; metrics |
//! | `rollout` | policy changes before they are in force: tests, diffs, replays, candidates |
//! | `page` | the admin page in Chromium with its driver, both installed by `tests/run` |
//! | `commands`, `first_steps` | the other subcommands, by their exit codes and files |
//! | `backend` | a store that only the tests know, with the whole service over it |
//! | `gateways` | ext_authz and ForwardAuth: by themselves, behind Envoy, nginx, HAProxy, Caddy |
//! | `envoy` | Envoy 1.40 as the client, installed by `tests/run` |
//! | `redis` | the Redis store: decisions, cost, connections, behavior during failures |
//! | `statistics` | envoyproxy/ratelimit's metrics: over StatsD, and for Prometheus |
//! | `spans` | tracing: spans of calls, from a real Envoy to a collector in Python |
//! | `xds` | policies from a control plane in Python, with packages installed by `tests/run` |
//! | `drop_in` | in place of envoyproxy/ratelimit, after Istio and Envoy Gateway |
//! | `deploy` | alerts and dashboard in a real Prometheus, manifests by schema, running Envoys |
//! | `docs` | the book: it builds, its examples run as shown, its reference is current |
//! | `servers` | the Redis servers that other tests build on |
//! | `model` | protocols between processes and stores, in every interleaving of a few steps |
//! | `vectors` | `replay` against recorded decisions of a model |
//! | `guided` | adding an algorithm: compile errors lead to every place |
//! | `fuzz_smoke` | the fuzz targets of `fuzz/`, for a bounded time |
//! | `tidy` | the rules of the code base: dependencies between modules, length of files |
//!
//! Tests that measure are in a binary of their own, `load`. `tests/kit` starts and stops the
//! servers: everything listens on 127.0.0.1 and free ports, and nothing outlives its test.
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
mod backend;
mod calls;
mod clients;
mod commands;
mod conformance;
mod deploy;
mod docs;
mod drain;
mod drop_in;
mod envoy;
mod first_steps;
mod fuzz_smoke;
mod gateways;
mod guided;
mod health;
mod holds;
mod http;
mod inside;
mod listen;
mod loans;
mod model;
mod page;
mod readiness;
mod redis;
mod reload;
mod requests;
mod rlqs;
mod rollout;
mod secrets;
mod serve;
mod servers;
mod spans;
mod statistics;
mod tidy;
mod tls;
mod vectors;
mod verify;
mod xds;

use tollgate_testkit as support;
use tollgate_testkit::world;
