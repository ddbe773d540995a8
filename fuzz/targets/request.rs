//! Bytes from the network as a sequence of requests against one store: decoded, decided by every
//! algorithm, answered.

use prost::Message as _;
use tollgate::algorithm::time::{Micros, Timestamp};
use tollgate::grpc::proto::RateLimitRequest;
use tollgate::grpc::request::{self, RequestBounds};
use tollgate::policy::{CompileOptions, Source, load};

use super::service::Service;

/// Bounds lower than the service's own, so that inputs reach them.
pub(super) const BOUNDS: RequestBounds =
    RequestBounds { descriptors: 8, entries: 4, all_entries: 16 };
/// Time of the first request.
pub(super) const BEGIN: Timestamp = Timestamp::from_micros(1_780_000_000_000_000);
/// Latest time of the clock, in the year 2100. The memory store represents seconds up to 2106.
const END: Timestamp = Timestamp::from_micros(4_102_444_800_000_000);

/// Reads a sequence of requests, each of which is a byte that moves the clock and a length-prefixed
/// message.
pub(crate) fn run(mut bytes: &[u8]) {
    let service = service();
    service.set_time(BEGIN);
    while let Some((step, rest)) = bytes.split_first() {
        bytes = rest;
        service.set_time(moved(service.now(), *step));
        let Ok(length) = prost::decode_length_delimiter(&mut bytes) else { break };
        let Some((message, rest)) = bytes.split_at_checked(length) else { break };
        bytes = rest;
        if let Ok(request) = request::read(message, &BOUNDS) {
            let expected = RateLimitRequest::decode(message).expect("what is read is a message");
            assert_eq!(request.descriptors.len(), expected.descriptors.len());
            service.decide(&request);
        }
    }
    service.end();
}

/// Returns the clock after a step. The low six bits are the exponent of a power of two in
/// microseconds; the highest bit is set for a step back.
fn moved(now: Timestamp, step: u8) -> Timestamp {
    let length = Micros::new(1 << (step & 0x3f));
    if step & 0x80 == 0 { (now + length).min(END) } else { now - length }
}

pub(super) fn service() -> Service {
    let source = Source { name: "request.yaml".into(), text: include_str!("request.yaml").into() };
    let loaded =
        load(&[source], &CompileOptions::default()).unwrap_or_else(|report| panic!("{report}"));
    Service::new(loaded.policies)
}
