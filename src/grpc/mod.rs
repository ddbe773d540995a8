//! The gRPC layer: Envoy's RLS, holds for other callers, health and reflection, and a client. The
//! only module that handles protobuf.
//!
//! Decodes a request, calls the [limiter](crate::limiter) and encodes the response. Knows neither
//! policies nor stores.
//!
//! | file | subject |
//! |---|---|
//! | `fast_path` | calls of `ShouldRateLimit` and `Check` in place, or passed to tonic |
//! | `request`, `response` | RLS messages: decoding, encoding |
//! | `service` | decides requests, also of HTTP gateways; operations on holds; leased hits |
//! | `rls_service`, `hold_service`, `lease_service`, `tonic_call` | tonic's traits |
//! | `server`, `methods` | the services of a connection; the methods, and how each is read |
//! | `call_headers`, `refusal`, `rights`, `large_request` | what is refused before a decision |
//! | `status_encoding`, `headers`, `metadata`, `units` | parts of a response |
//! | `json` | the same messages as proto3 JSON |
//! | `health`, `client`, `proto`, `request_log` | health, a client, generated types, debug logs |

mod call_headers;
pub mod client;
mod fast_path;
pub mod headers;
pub mod health;
mod hold_service;
pub mod json;
mod large_request;
mod lease_service;
mod metadata;
pub mod methods;
pub mod proto;
mod refusal;
pub mod request;
pub mod request_log;
pub mod response;
pub mod rights;
mod rls_service;
pub mod server;
pub mod service;
mod status_encoding;
mod tonic_call;
pub mod units;

/// Length of a message's prefix: the compressed flag (1 byte) and the length (4).
const PREFIX: usize = 5;

/// Sets the length of a message in the prefix before it.
fn set_length(framed: &mut [u8]) {
    let Some((prefix, message)) = framed.split_first_chunk_mut::<PREFIX>() else { return };
    let [_, length @ ..] = prefix;
    *length = u32::try_from(message.len()).unwrap_or(u32::MAX).to_be_bytes();
}
