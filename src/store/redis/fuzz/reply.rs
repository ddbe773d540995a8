//! Fuzz target for the reply of a script: any bytes are refused, or result in a decision and a
//! response.

use std::time::Instant;

use futures_util::FutureExt as _;
use prost::Message as _;

use crate::algorithm::amend::{Amended, Amendment};
use crate::algorithm::judge::Hits;
use crate::algorithm::verdict::Prior;
use crate::descriptor::{Descriptor, Entry, Request};
use crate::grpc::headers::HeaderStyle;
use crate::grpc::json;
use crate::grpc::proto::RateLimitResponse;
use crate::grpc::response::{self, AnswerStyle};
use crate::limiter::{InForce, Limiter, Modes};
use crate::policy::{CompileOptions, Source, load};
use crate::store::redis::script::decode::{self, ScriptReply};
use crate::store::{Check, Outcomes, Store, StoreError};
use crate::telemetry::metrics::Metrics;

/// Keys of the rules in the policy whose limits are not bans.
const KEYS: [&str; 8] = ["k0", "k1", "k2", "k3", "k4", "k5", "k6", "k7"];

/// A store with these bytes as the reply to every call.
struct Replying(Vec<u8>);

impl Store for Replying {
    async fn decide(&self, checks: &[Check<'_>], _: Prior, _: Instant) -> Outcomes {
        let reply = decode::read(&self.0, [checks.len()]).and_then(|all| all.into_iter().next());
        match reply.and_then(ScriptReply::judged) {
            Some(answers) => {
                assert_eq!(answers.len(), checks.len());
                answers.into_iter().map(|answer| answer.outcome).collect()
            }
            None => checks.iter().map(|_| Err(StoreError::Refused)).collect(),
        }
    }

    async fn amend(&self, _: &Check<'_>, _: Amendment, _: Instant) -> Result<Amended, StoreError> {
        match decode::read(&self.0, [1]).and_then(|all| all.into_iter().next()) {
            Some(ScriptReply::Amended(amended)) => amended.map(|amended| *amended),
            Some(ScriptReply::Judged(_) | ScriptReply::Alone | ScriptReply::Beyond { .. })
            | None => Err(StoreError::Refused),
        }
    }
}

/// Runs the target. The first byte selects the descriptors of a request, the second their hits; the
/// rest is the reply.
pub fn run(bytes: &[u8]) {
    let [keys, hits, reply @ ..] = bytes else { return };
    several(*keys, reply);
    let source = Source {
        name: "request.yaml".into(),
        text: include_str!("../../../../fuzz/targets/request.yaml").into(),
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
    decide(&limiter, &request);
}

/// Parses a reply to several requests of up to three checks each.
fn several(choice: u8, reply: &[u8]) {
    let counts = [choice & 3, (choice >> 2) & 3, (choice >> 4) & 3].map(usize::from);
    let Some(all) = decode::read(reply, counts) else { return };
    assert_eq!(all.len(), counts.len());
    for (reply, count) in all.into_iter().zip(counts) {
        assert!(reply.judged().is_none_or(|answers| answers.len() == count));
    }
}

fn decide(limiter: &Limiter<Replying>, request: &Request<'_>) {
    let snapshot = limiter.snapshot();
    let decided = limiter
        .decide(&snapshot, request, Instant::now())
        .now_or_never()
        .expect("it waits for nothing");
    let Ok(decision) = decided else { return };
    let headers = HeaderStyle {
        legacy: Some(["limit", "remaining", "reset"].map(str::to_owned)),
        ietf: true,
    };
    let mut answer = Vec::new();
    response::write(&decision, &AnswerStyle { headers, ..AnswerStyle::default() }, &mut answer);
    let message = RateLimitResponse::decode(answer.as_slice()).expect("an answer is a message");
    assert_eq!(message.statuses.len(), request.descriptors.len());
    json::response(&answer).expect("an answer has a text");
}
