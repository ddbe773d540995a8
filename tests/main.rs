//! Integration tests that need nothing but Rust: the binary as a process, with the store in
//! memory, and its clients in this process. Those with real parts are in `parts.rs`, long ones in
//! `long.rs`, those that measure in `load`.
//!
//! | module | subject |
//! |---|---|
//! | `serve`, `health`, `drain` | the process: start, health, shutdown |
//! | `reload` | policy files that change at run time |
//! | `listen` | listeners for gRPC: sockets, maximum connection age |
//! | `readiness` | the conditions under which each probe reports ready |
//! | `answers` | headers, dynamic metadata, and process-wide modes |
//! | `http` | decisions in JSON, and the admin pages |
//! | `requests`, `calls` | invalid and unusual requests; split messages, streams other than gRPC |
//! | `authority` | calls with an invalid or missing `:authority` |
//! | `abuse` | abusive clients and their effect on others |
//! | `holds` | `HoldService` over gRPC and JSON, and holds by the command line |
//! | `loans` | `LeaseService` over gRPC and JSON |
//! | `gateways` | ext_authz and ForwardAuth |
//! | `secrets` | passwords and keys, which appear in no output |
//! | `allocations` | allocations of a decision |
//! | `administration` | the admin API: content, authorization; metrics |
//! | `rollout` | policy changes before they are in force: tests, diffs, replays, candidates |
//! | `commands`, `first_steps`, `migrate` | the other subcommands, by their exit codes and files |
//! | `backend` | a store that only the tests know, with the whole service over it |
//! | `docs` | the reference and the pictures of the book are those that the code makes |
//! | `model` | protocols between processes and stores, in every interleaving of a few steps |
//! | `vectors` | `replay` against recorded decisions of a model |
//! | `fuzz_smoke` | the fuzz targets of `fuzz/`, for a bounded number of inputs |
//! | `tidy` | the rules of the code base: dependencies between modules, length of files |
//!
//! `tests/kit` starts and stops the servers: everything listens on 127.0.0.1 and free ports, and
//! nothing outlives its test.
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
mod commands;
mod docs;
mod drain;
mod first_steps;
mod fuzz_smoke;
mod gateways;
mod health;
mod holds;
mod http;
mod listen;
mod loans;
mod migrate;
mod model;
mod readiness;
mod reload;
mod requests;
mod rollout;
mod secrets;
mod serve;
mod tidy;
mod vectors;

use tollgate_testkit as support;
