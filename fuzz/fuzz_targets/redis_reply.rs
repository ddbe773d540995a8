//! cargo-fuzz entry point for the reply of a Redis script: any bytes are refused, or result in a
//! decision and a response.
#![no_main]

use std::time::Instant;

use futures_util::FutureExt as _;
use prost::Message as _;
use tollgate::algorithm::judge::Hits;
use tollgate::descriptor::{Descriptor, Entry, Request};
use tollgate::grpc::headers::HeaderStyle;
use tollgate::grpc::json;
use tollgate::grpc::proto::RateLimitResponse;
use tollgate::grpc::response::{self, AnswerStyle};
use tollgate::limiter::{InForce, Limiter, Modes};
use tollgate::policy::{CompileOptions, Source, load};
use tollgate::store::redis::fuzz::reply::{self, Replying};
use tollgate::telemetry::metrics::Metrics;

/// Keys of the rules in the policy whose limits are not bans.
const KEYS: [&str; 8] = ["k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7"];

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    reply::run(bytes);
    decide(bytes);
});

/// The first byte selects the descriptors of a request, the second their hits; the rest is the
/// reply.
fn decide(bytes: &[u8]) {
    let [keys, hits, reply @ ..] = bytes else { return };
    let source = Source {
        name: "request.yaml".into(),
        text: include_str!("../targets/request.yaml").into(),
    };
    let policies =
        load(&[source], &CompileOptions::default()).expect("the policy is right").policies;
    let in_force = InForce::new(Metrics::new());
    in_force.install(policies);
    let limiter = Limiter::new(in_force, Replying(reply.to_vec()), Modes::default());
    let entries = KEYS.map(|key| [Entry { key: key.as_bytes(), value: b"v" }]);
    let chosen = entries.iter().enumerate().filter(|(number, _)| keys & (1 << number) != 0);
    let hits = match hits % 4 {
        0 => Hits::Peek(0),
        1 => Hits::Charge(1),
        2 => Hits::Charge(u32::MAX),
        _ => Hits::Refund(1),
    };
    let descriptors = chosen.map(|(_, entries)| Descriptor {
        entries: entries[..].into(),
        hits,
        hold: None,
        limit: None,
    });
    let request = Request { domain: "oracle", descriptors: descriptors.collect() };
    let snapshot = limiter.snapshot();
    let decided = limiter.decide(&snapshot, &request, Instant::now()).now_or_never();
    let Ok(decision) = decided.expect("it never waits") else { return };
    let headers = HeaderStyle {
        legacy: Some(["limit", "remaining", "reset"].map(str::to_owned)),
        ietf: true,
    };
    let mut answer = Vec::new();
    let style = AnswerStyle { headers, ..AnswerStyle::default() };
    response::write(&decision, &style, response::Receiver::Proxy, &mut answer);
    let message = RateLimitResponse::decode(answer.as_slice()).expect("an answer is a message");
    assert_eq!(message.statuses.len(), request.descriptors.len());
    json::response(&answer).expect("an answer has a text");
}
