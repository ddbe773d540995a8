//! Assignments as messages.
//!
//! A loan is two actions in one response: DENY_ALL, then a token bucket with its hits that gets one
//! token in 30 years. Envoy 1.40 keeps the filled share of a bucket that is replaced by another one
//! alone; after DENY_ALL the new one is full. It compares buckets by `nanos` and not by `seconds`,
//! so each has other nanoseconds.

use prost::Message as _;
use prost::encoding::message;
use prost_types::Duration;

use super::report;
use crate::grpc::proto::quota::rate_limit_quota_response::BucketAction;
use crate::grpc::proto::quota::rate_limit_quota_response::bucket_action::{
    AbandonAction, BucketAction as Action, QuotaAssignmentAction,
};
use crate::grpc::proto::quota::{BucketId, RateLimitQuotaResponse};
use crate::grpc::proto::rate_limit_strategy::{BlanketRule, Strategy};
use crate::grpc::proto::{RateLimitStrategy, TokenBucket};
use crate::grpc::{PREFIX, set_length};
use crate::rlqs::terms::{Assignment, Blanket};

/// Interval after which a token bucket gets a token, in seconds.
const NEVER: i64 = 1_000_000_000;
/// Number of different values of `nanos`.
const VERSIONS: u32 = 1_000_000_000;
/// Bytes of the actions of a bucket besides its ID, which they have twice, and number of its field.
const ACTIONS: usize = 128;
const ACTION_FIELD: u32 = 1;

/// Longest encoded ID of a bucket beyond the bounds that is answered.
const MAX_REFUSED_ID: usize = 32 << 10;

/// Returns the actions of an assignment; `version` differs from that of the bucket's last one.
pub(super) fn assign(id: &[u8], assignment: &Assignment, version: u32) -> Vec<BucketAction> {
    let bucket_id = bucket_id(id);
    match assignment {
        Assignment::Blanket(blanket, ttl) => vec![blanket_action(bucket_id, *blanket, *ttl)],
        Assignment::Loan(loan, ttl) => {
            let max_tokens = u32::try_from(loan.receipt.hits).unwrap_or(u32::MAX);
            let nanos = i32::try_from(version.rem_euclid(VERSIONS)).unwrap_or_default();
            let fill_interval = Some(Duration { seconds: NEVER, nanos });
            let tokens = TokenBucket { max_tokens, tokens_per_fill: Some(1), fill_interval };
            let deny = blanket_action(bucket_id.clone(), Blanket::Deny, *ttl);
            vec![deny, action(bucket_id, Strategy::TokenBucket(tokens), *ttl)]
        }
    }
}

/// Returns the action with which a proxy forgets a bucket.
pub(super) fn abandon(id: &[u8]) -> BucketAction {
    abandon_named(bucket_id(id))
}

/// Returns the encoded action for a bucket beyond the bounds, by its encoded ID: an assignment, or
/// that the proxy forgets the bucket. `None` if the ID is too long, or no text.
pub(super) fn refused(bucket: &[u8], blanket: Option<(Blanket, u64)>) -> Option<Vec<u8>> {
    if bucket.len() > MAX_REFUSED_ID {
        return None;
    }
    let bucket_id = BucketId::decode(bucket).ok()?;
    let action = match blanket {
        Some((blanket, ttl)) => blanket_action(bucket_id, blanket, ttl),
        None => abandon_named(bucket_id),
    };
    let mut encoded = Vec::new();
    message::encode(ACTION_FIELD, &action, &mut encoded);
    Some(encoded)
}

fn abandon_named(bucket_id: BucketId) -> BucketAction {
    let bucket_action = Some(Action::AbandonAction(AbandonAction {}));
    BucketAction { bucket_id: Some(bucket_id), bucket_action }
}

/// Returns the bytes that the actions of a bucket take at most.
pub(super) fn max_length(id: &[u8]) -> usize {
    2 * id.len() + ACTIONS
}

/// Returns the bytes that actions take in a response.
pub(super) fn length(actions: &[BucketAction]) -> usize {
    actions.iter().map(|action| message::encoded_len(ACTION_FIELD, action)).sum()
}

/// Encodes a response with the prefix of gRPC; `refused` are encoded actions.
pub(super) fn encode(bucket_action: Vec<BucketAction>, refused: &[u8]) -> Vec<u8> {
    let response = RateLimitQuotaResponse { bucket_action };
    let mut framed = Vec::with_capacity(PREFIX + response.encoded_len() + refused.len());
    framed.resize(PREFIX, 0);
    response.encode_raw(&mut framed);
    framed.extend_from_slice(refused);
    set_length(&mut framed);
    framed
}

fn blanket_action(bucket_id: BucketId, blanket: Blanket, ttl: u64) -> BucketAction {
    let rule = match blanket {
        Blanket::Allow => BlanketRule::AllowAll,
        Blanket::Deny => BlanketRule::DenyAll,
    };
    action(bucket_id, Strategy::BlanketRule(rule.into()), ttl)
}

fn action(bucket_id: BucketId, strategy: Strategy, ttl: u64) -> BucketAction {
    let ttl = Duration { seconds: i64::try_from(ttl).unwrap_or(i64::MAX), nanos: 0 };
    let assignment = QuotaAssignmentAction {
        assignment_time_to_live: Some(ttl),
        rate_limit_strategy: Some(RateLimitStrategy { strategy: Some(strategy) }),
    };
    let bucket_action = Some(Action::QuotaAssignmentAction(assignment));
    BucketAction { bucket_id: Some(bucket_id), bucket_action }
}

/// IDs that are not UTF-8 are beyond the bounds.
fn bucket_id(id: &[u8]) -> BucketId {
    let pairs = report::pairs(id);
    let bucket = pairs.iter().map(|pair| (text(pair.key), text(pair.value)));
    BucketId { bucket: bucket.collect() }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::algorithm::Receipt;
    use crate::algorithm::time::Timestamp;
    use crate::rlqs::terms::ChargedLoan;

    #[test]
    fn the_actions_of_a_bucket_are_no_longer_than_their_bound() {
        let now = Instant::now();
        let receipt =
            Receipt { at: Timestamp::from_micros(1), hits: u32::MAX.into(), of_grant: false };
        let loan = ChargedLoan { receipt, asked_at: now, charged_at: now, window_rest: None };
        for (pairs, length) in [(0, 0), (1, 1), (1, 2_000), (16, 0), (16, 1), (16, 100)] {
            let mut id = Vec::new();
            for number in 0..pairs {
                for text in [format!("{number:02}"), "x".repeat(length)] {
                    id.extend_from_slice(&u32::try_from(text.len()).unwrap().to_be_bytes());
                    id.extend_from_slice(text.as_bytes());
                }
            }
            let actions = assign(&id, &Assignment::Loan(loan, 300), 999_999_999);
            let length = super::length(&actions);
            assert!(length <= max_length(&id), "{length} bytes of {pairs} pairs");
            assert_eq!(encode(actions, &[]).len(), PREFIX + length);
        }
    }
}
