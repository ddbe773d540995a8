//! Tollgate decides whether a request is within its limits.
//!
//! # Path of a request
//!
//! ```text
//! http2             HTTP/2 frames to calls, and back
//! grpc::fast_path   a ShouldRateLimit call: its message, or tonic's services for anything else
//! grpc::service     parses the message (request), calls the limiter, encodes the reply (response)
//!   gateway         an HTTP request of Check or /auth/NAME, by a mapping of policy::requests
//!   limiter         one policy snapshot; matches each descriptor; calls the store once; combines
//!     policy        domain -> rules -> the limit that applies, and the key of its counter
//!     store         judges all checks at one instant of its clock, and charges
//!       algorithm   pure: judge -> one file per algorithm; verdict: combines several
//!       descriptor  domains, entries, keys: the types shared by all modules above
//!     telemetry     the counts of the decision, by limiter::count, and the journal of denials, by
//!                   limiter::recording
//! ```
//!
//! # Modules
//!
//! | module | responsibility | independent of |
//! |---|---|---|
//! | [`algorithm`] | arithmetic of limits; new algorithms go here | clocks, IO, locks, the rest |
//! | [`backoff`] | waits between attempts | clocks |
//! | [`descriptor`] | requests and counter keys, as values | policies, stores |
//! | [`lease`] | the contract of stores; blocks of hits charged in advance | runtimes, stores |
//! | [`printable`] | the characters that are escaped in text for people | its readers |
//! | [`yaml`] | YAML to a tree; vocabularies; reports with excerpts | the words of any file |
//! | [`bounded_file`] | reads of secrets and keys, with a maximum size | their contents |
//! | [`tls`] | trusted certificates; configuration of clients | connections |
//! | [`http2`] | HTTP/2 for gRPC servers: connections (`registry`), TLS, bounds | protobuf |
//! | [`telemetry`] | metrics, logs, statistics, spans; the journal of denials | its users |
//! | [`watch`] | notification of changed files | file contents |
//! | [`problem`] | errors and denials over HTTP | their causes |
//! | [`http_client`] | HTTP/1.1 requests to a server | their contents |
//! | [`policy`] | YAML to rules; matching; differences of two sets; sources | stores, protocols |
//! | [`verify`] | calls to a service; contradictions of its answers and limits | protocols |
//! | [`envoyproxy`] | the variables of envoyproxy/ratelimit, as flags | the flags, policies |
//! | [`migrate`] | deployments of envoyproxy/ratelimit: report, export | stores, protocols |
//! | [`store`] | counters in memory or Redis; layers around it; the clock | policies, protocols |
//! | [`receipts`] | receipts of loans, and the keys that sign them | stores, policies, protocols |
//! | [`rlqs`] | hits that proxies hold by RLQS: sizes, times, returns | policies, stores, IO |
//! | [`limiter`] | decisions, from policies and stores | protocols |
//! | [`scenario`] | policy tests and access log maps, decided in memory | files, protocols |
//! | [`grpc`] | Envoy's protocol, health, reflection, a client | HTTP/2, policies, stores |
//! | [`xds`] | policies from a control plane: requests, conversion to YAML | rules, stores |
//! | [`otlp`] | export of spans to a collector | their origin |
//! | [`operations`] | actions of operators: inspect, change, reload | HTTP, the command line |
//! | [`admin`] | HTTP: probes, metrics, the API and page, access control | gRPC, stores |
//! | [`settings`] | flags, environment variables, defaults | its users |
//! | [`app`], [`cli`] | assembly of the concrete parts; one file per subcommand | |
//!
//! A module may use modules above it in this list, never one below; `tests/tidy` lists and enforces
//! the allowed dependencies. Those down to [`watch`], and from [`policy`] to [`store`], are in the
//! crates below `crates/`, and exported here; a build can leave out `verify` and `migrate`. The
//! `mod.rs` or `lib.rs` of a large folder has a table of its files.
//!
//! # Invariants
//!
//! - Hits admitted less hits refunded never exceed a limit that is charged when `admitted`, except
//!   for leases, within the bound in [`algorithm::lease`], and for operator grants,
//!   [`algorithm::amend`].
//! - A clock that steps back by S grants nothing: a counter written before the step is frozen for
//!   S, until the clock has caught up, and its callers wait that much longer than reported; times
//!   are relative to the counter's instant. Other counters are not affected.
//! - A full store refuses new counters; it never drops a live one.
//! - Over limit is a value; an error means that there is no decision.
//! - Everything that a caller controls has a bound, and no input makes a panic.
//!
//! # Words
//!
//! *Domain*: a namespace of policies. *Descriptor*: an ordered list of *entries*, key and value.
//! *Rule*: a node of a policy; may impose a *limit*. *Hits*: the amount that a request takes; a
//! *peek* takes none; a *refund* returns them; each descriptor has its own. *Counter*: the state of
//! one limit for one set of values. *Slot*: a part of the keys of a Redis Cluster. *Lease*:
//! permission to charge a *block* of hits in advance. *Permit*: the hits that a limit of
//! concurrency has in flight for one request.
//!
//! *Verdict*: of one limit, whether hits fit. *Outcome*: of one check, the verdict and the state of
//! the counter afterwards. *Decision*: of a request, from the verdicts of its limits. *Status*: of
//! one descriptor in a decision. *Answer*: a decision or an error, as its caller receives it.

pub mod admin;
pub mod app;
pub mod cli;
pub mod grpc;
pub mod http_client;
pub mod limiter;
pub mod operations;
pub mod otlp;
pub mod problem;
pub mod receipts;
pub mod rlqs;
pub mod scenario;
pub mod settings;
pub mod xds;

pub use tollgate_core::{algorithm, backoff, descriptor, printable};
pub use tollgate_envoyproxy as envoyproxy;
pub use tollgate_files::{bounded_file, watch};
pub use tollgate_http2 as http2;
pub use tollgate_lease as lease;
#[cfg(feature = "migrate")]
pub use tollgate_migrate as migrate;
pub use tollgate_policy as policy;
pub use tollgate_store as store;
pub use tollgate_telemetry as telemetry;
pub use tollgate_tls as tls;
#[cfg(feature = "verify")]
pub use tollgate_verify as verify;
pub use tollgate_yaml as yaml;
