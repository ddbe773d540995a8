//! The protocol: Envoy's RLS, gRPC health and reflection, and a client. The only room that knows protobuf.
//!
//! What it does with a request is to read it, ask the [limiter](crate::limiter), and write the answer. It refuses to know
//! policies and stores.

pub mod client;
pub mod convert;
pub mod health;
pub mod json;
pub mod proto;
pub mod server;
pub mod service;
mod timed;
