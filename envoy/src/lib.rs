//! A filter for Envoy that admits requests inside Envoy, from blocks of hits that Tollgate lent
//! (`tollgate.v1.LeaseService`). Requests that it does not decide go on, untouched, to Envoy's rate
//! limit filter behind it.
//!
//! | file | contents |
//! |---|---|
//! | `bindings` | Envoy's interface for dynamic modules: the only unsafe code |
//! | `guard` | the border of panics |
//! | `host` | the parts of Envoy that the filter uses, as traits |
//! | `config`, `action`, `matcher` | the configuration: actions of Envoy's `rate_limits` |
//! | `filter` | the decision of a request |
//! | `headers` | the headers of its response |
//! | `descriptor` | the key of a loan |
//! | `holder` | what configurations share: keys, blocks and exchanges of a domain |
//! | `exchange`, `wire` | wants and returns, on Envoy's main thread |
//! | `pacer` | the thread that paces exchanges |
//!
//! Keys, blocks and denials are those of `tollgate_lease::holder`: workers take hits without a
//! lock; the main thread alone adds keys, blocks and denials.

#![cfg_attr(test, allow(dead_code, reason = "the bindings are not built for tests"))]

// Built for unit tests, it runs without Envoy, whose functions cannot be linked then.
#[cfg(not(test))]
#[allow(unsafe_code, reason = "Envoy's interface is one of C")]
mod bindings;

mod action;
mod config;
mod descriptor;
mod exchange;
mod filter;
mod guard;
mod headers;
mod holder;
mod host;
mod matcher;
mod pacer;
#[cfg(test)]
mod tests;
mod wire;

#[cfg(not(panic = "unwind"))]
compile_error!("panics must unwind: a panic of this module must not end Envoy");
