//! Tollgate decides whether a request is within its limits.
//!
//! # The way of a request
//!
//! ```text
//! transport         frames of HTTP/2 to calls, and back
//! grpc::call        a call of ShouldRateLimit: its message, or tonic's services for anything else
//! grpc::service     reads the message (request), asks the limiter, writes the answer (response)
//!   limiter         one policy snapshot; matches each descriptor; asks the store once; combines
//!     policy        domain -> rules -> the limit that applies, and the key of its counter
//!     store         judges all checks at one instant of its clock, and charges
//!       algorithm   pure: judge -> one file an algorithm; verdict: how several become one
//!       descriptor  domains, entries, keys: what everything above speaks of
//! ```
//!
//! # The rooms
//!
//! | room | what it knows | what it must not know |
//! |---|---|---|
//! | [`algorithm`] | the arithmetic of limits; a new algorithm goes here, see its table | clocks, IO, locks, everything else |
//! | [`descriptor`] | requests and counter keys, as values | policies, stores |
//! | [`telemetry`] | logs; the name of every metric | who uses it |
//! | [`spans`] | which calls are traced, and what their spans say | who sends them |
//! | [`watch`] | that files change | what is in them |
//! | [`policy`] | YAML to rules; which rule a descriptor hits; where policies come from | stores, protocols |
//! | [`store`] | where counters live, in memory or in Redis; layers around a store; the clock | policies, protocols |
//! | [`journal`] | what was denied lately, to whom; how much each rule decides | policies, stores, protocols |
//! | [`limiter`] | where policies and stores meet | protocols |
//! | [`transport`] | HTTP/2 for gRPC servers: connections, TLS, bounds | protobuf, rate limits |
//! | [`grpc`] | Envoy's protocol, health, reflection, a client | HTTP/2, policies, stores |
//! | [`xds`] | policies from a control plane: asking for them, and how they read as YAML | rules, stores |
//! | [`otlp`] | sending spans to a collector | whose they are |
//! | [`admin`] | HTTP: probes, metrics; what is in force, who is denied, and who may ask | gRPC, stores |
//! | [`settings`] | flags, variables of the environment, defaults | who uses it |
//! | [`app`], [`cli`] | how the concrete parts are put together; one file a subcommand | |
//!
//! A room may use rooms above it in this list, never one below; `tests/tidy` says which, and holds it.
//!
//! # Invariants
//!
//! - Hits admitted less hits refunded never exceed a limit that is charged when `admitted`; with leases, as far as
//!   [`algorithm::lease`] says; beyond it only what people grant, [`algorithm::amend`].
//! - A clock that steps back by S grants nothing: a counter written before stands still for S, until the clock has caught up, and
//!   its callers wait that much longer than they are told; times are reckoned from the counter's instant. Others are not affected.
//! - A full store refuses new counters; it never forgets a live one.
//! - Over limit is a value; an error means that nobody decided.
//! - Everything that a caller controls has a bound, and no input makes a panic.
//!
//! # Words
//!
//! *Domain*: a namespace of policies. *Descriptor*: an ordered list of *entries*, key and value. *Rule*: a node of a policy;
//! may impose a *limit*. *Hits*: how much a request wants to take; a *peek* wants to know; a *refund* gives back. *Counter*:
//! the state of one limit for one set of values. *Outcome*: a store's answer for one counter; *decision*: for a request. *Lease*:
//! leave to charge a *block* of hits in advance.

pub mod admin;
pub mod algorithm;
pub mod app;
pub mod cli;
pub mod descriptor;
pub mod grpc;
pub mod journal;
pub mod limiter;
pub mod otlp;
pub mod policy;
pub mod settings;
pub mod spans;
pub mod store;
pub mod telemetry;
pub mod transport;
pub mod watch;
pub mod xds;
