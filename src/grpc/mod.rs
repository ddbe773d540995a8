//! The protocol: Envoy's RLS, gRPC health and reflection, and a client. The only room that knows protobuf.
//!
//! What it does with a request is to read it, ask the [limiter](crate::limiter), and write the answer. It refuses to know
//! policies and stores.

mod call;
pub mod client;
pub mod headers;
pub mod health;
pub mod json;
mod metadata;
mod method;
pub mod proto;
pub mod request;
pub mod response;
pub mod rights;
pub mod server;
pub mod service;
mod units;
