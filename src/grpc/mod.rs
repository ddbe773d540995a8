//! The gRPC layer: Envoy's RLS, holds for other callers, health and reflection, and a client. The
//! only module that handles protobuf.
//!
//! Decodes a request, calls the [limiter](crate::limiter) and encodes the response. Knows neither
//! policies nor stores.
//!
//! | file | subject |
//! |---|---|
//! | `call` | a call of `ShouldRateLimit` in place, or passed to tonic |
//! | `request`, `response` | RLS messages: decoding, encoding |
//! | `service` | decides requests, also of HTTP gateways; operations on holds; leased hits |
//! | `method`, `hold_service`, `lease_service`, `service_call` | tonic's traits |
//! | `quota_service` | RLQS, a stream per proxy |
//! | `server` | the services of a connection |
//! | `head`, `rights`, `large_request` | what is refused before a decision |
//! | `status_encoding`, `headers`, `metadata`, `units` | parts of a response |
//! | `json` | the same messages as proto3 JSON |
//! | `health`, `client`, `proto`, `request_log` | health, a client, generated types, debug logs |

mod call;
pub mod client;
mod head;
pub mod headers;
pub mod health;
mod hold_service;
pub mod json;
mod large_request;
mod lease_service;
mod metadata;
mod method;
pub mod proto;
mod quota_service;
pub mod request;
pub mod request_log;
pub mod response;
pub mod rights;
pub mod server;
pub mod service;
mod service_call;
mod status_encoding;
pub mod units;

/// Length of a message's prefix: the compressed flag (1 byte) and the length (4).
const PREFIX: usize = 5;

/// Sets the length of a message in the prefix before it.
fn set_length(framed: &mut [u8]) {
    let length = u32::try_from(framed.len().saturating_sub(PREFIX)).unwrap_or(u32::MAX);
    if let Some((_, place)) =
        framed.first_chunk_mut::<PREFIX>().and_then(|prefix| prefix.split_first_mut())
    {
        place.copy_from_slice(&length.to_be_bytes());
    }
}
