//! The gRPC layer: Envoy's RLS, holds for other callers, health and reflection, and a client. The
//! only module that handles protobuf.
//!
//! Decodes a request, calls the [limiter](crate::limiter) and encodes the response. Knows neither
//! policies nor stores.

mod call;
pub mod client;
mod head;
pub mod headers;
pub mod health;
mod hold_service;
pub mod json;
mod large_request;
mod metadata;
mod method;
pub mod proto;
pub mod request;
pub mod request_log;
pub mod response;
pub mod rights;
pub mod server;
pub mod service;
mod service_call;
mod units;
