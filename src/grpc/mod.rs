//! The protocol: Envoy's RLS, gRPC health and reflection, and a client. The only room that knows protobuf.
//!
//! What it does with a request is to read it, ask the [limiter](crate::limiter), and write the answer. It refuses to know
//! policies and stores.

mod bodies;
mod call;
mod caller;
pub mod client;
mod connection;
pub mod headers;
pub mod health;
pub mod json;
mod metadata;
pub mod places;
pub mod proto;
pub mod request;
pub mod response;
pub mod rights;
mod routed;
pub mod server;
pub mod service;
pub mod socket;
pub mod tls;
mod units;
