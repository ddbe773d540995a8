//! HTTP/2 for gRPC servers: from sockets to calls, which a [`Service`] answers.
//!
//! Implements HTTP/2 (RFC 9113), HPACK (RFC 7541), TLS and sockets, and of gRPC only the headers
//! and the trailers of a message with status 0. Must not depend on protobuf or rate limits.
//! Supports no push, no priorities, and no upgrade from HTTP/1.
//!
//! Replaces the crate h2, which rejects any `:authority` that is no authority of a URI, such as the
//! cluster name that Envoy sends by default; costs several allocations and a task per call; and
//! cannot be bounded from outside.
//!
//! | file | holds |
//! |---|---|
//! | `server` | a worker's connections: accept, handshake, run, shutdown |
//! | `io` | the task of a connection: its socket and its timers |
//! | `connection` | the protocol without IO |
//! | `frame`, `fields`, `hpack` | frames, header lists, their compression |
//! | `stream`, `call_slots`, `service` | a call: state, future, its service |
//! | `body`, `message`, `refusal` | its body, message by message, and what is refused |
//! | `delivery` | an answer in pieces: room for them, and their arrival |
//! | `budget`, `account`, `abuse`, `registry` | bounds: memory, abuse, connections |
//! | `observer` | events of connections, for metrics and logs |
//! | `socket`, `tls` | TCP, Unix sockets, TLS |
//! | `fuzz` | fuzz targets, compiled for fuzzing and tests only |
// Lengths and windows are those that a client sends: an overflow would end the process or lift a
// bound.
#![warn(clippy::arithmetic_side_effects)]

mod abuse;
mod account;
mod body;
mod budget;
mod call_slots;
mod connection;
mod delivery;
mod fields;
mod frame;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod hpack;
mod io;
mod message;
pub mod observer;
mod refusal;
pub mod registry;
pub mod server;
mod service;
pub mod socket;
mod stream;
pub mod tls;

pub use self::account::{CallAccount, CallHold};
pub use self::body::{BodyError, BodySender, MessageProgress, RequestBody};
pub use self::budget::{Budget, BudgetExceeded, BudgetHold};
pub use self::connection::Limits;
pub use self::delivery::Delivery;
pub use self::fields::HeaderFields;
pub use self::refusal::Refusal;
pub use self::service::{Answer, Exchange, MessageCall, ResponseFuture, Route, Service, WholeCall};

/// Returns the time of the clock that tests may pause.
fn now() -> std::time::Instant {
    tokio::time::Instant::now().into()
}
