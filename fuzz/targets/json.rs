//! Arbitrary text as the body of `/json`: it is refused, or decoded, decided and answered in JSON.

use prost::Message as _;
use tollgate::grpc::json;
use tollgate::grpc::proto::{RateLimitRequest, RateLimitResponse};
use tollgate::grpc::request;

use super::request::{BEGIN, BOUNDS, service};

/// Reads the bytes as one body.
pub(crate) fn run(bytes: &[u8]) {
    let Ok(message) = json::request_text(bytes) else { return };
    let expected = RateLimitRequest::decode(message.as_slice()).expect("a message is written");
    let Ok(request) = request::read(&message, &BOUNDS) else { return };
    assert_eq!(request.descriptors.len(), expected.descriptors.len());
    let service = service();
    service.set_time(BEGIN);
    if let Some(answer) = service.answer(&request) {
        let text = json::response(&answer).expect("an answer has a text").to_string();
        let statuses = RateLimitResponse::decode(answer.as_slice())
            .expect("an answer is a message")
            .statuses
            .len();
        assert_eq!(text.matches("\"code\":").count(), statuses, "{text}");
    }
    service.decide(&request);
    service.end();
}
