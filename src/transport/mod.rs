//! HTTP/2 for gRPC servers: connections from their sockets to their calls, by a [`Service`] that answers them.
//!
//! Knows HTTP/2 (RFC 9113), HPACK (RFC 7541), TLS and sockets, and of gRPC only the head and the trailers of a message with
//! status 0. Refuses to know protobuf and rate limits. No push, no priorities, no upgrade from HTTP/1.
//!
//! The crate h2 served here before. It refuses any `:authority` that is no authority of a URI, such as the cluster's name that
//! Envoy sends by default; costs several allocations and a task a call; and cannot be bounded from outside.
//!
//! | file | holds |
//! |---|---|
//! | `server` | a worker's connections: accepted, handshaken, run, told to go |
//! | `io` | the task of a connection: its socket and the clock |
//! | `connection` | the protocol without IO |
//! | `frame`, `fields`, `hpack` | frames, header lists, their compression |
//! | `stream`, `slots`, `body`, `service` | a call: its state, its future, its body, the trait that answers it |
//! | `budget`, `strikes`, `permits` | bounds: memory, abuse, connections |
//! | `socket`, `tls` | TCP, Unix sockets, TLS |
//! | `fuzz` | targets for fuzzing, compiled for that and for tests only |

mod body;
mod budget;
mod connection;
mod fields;
mod frame;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod hpack;
mod io;
pub mod permits;
pub mod server;
mod service;
mod slots;
pub mod socket;
mod stream;
mod strikes;
pub mod tls;

pub use self::body::{BodyError, RequestBody};
pub use self::budget::{Budget, BudgetExceeded, Held};
pub use self::connection::Limits;
pub use self::fields::Fields;
pub use self::service::{Answer, Exchange, Refusal, ResponseFuture, Route, Service};
