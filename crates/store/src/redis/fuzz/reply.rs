//! Fuzz target for the reply of a script: any bytes are refused, or are a result for each check.

use std::time::Instant;

use tollgate_core::algorithm::amend::{Amended, Amendment};
use tollgate_core::algorithm::time::Timestamp;
use tollgate_core::algorithm::verdict::Prior;

use crate::redis::script::decode::{self, ScriptReply};
use crate::{Check, Outcomes, Store, StoreError};

/// A store with these bytes as the reply to every call.
pub struct Replying(pub Vec<u8>);

impl Store for Replying {
    async fn decide(&self, checks: &[Check<'_>], _: Prior, _: Instant) -> Outcomes {
        let refused = || checks.iter().map(|_| Err(StoreError::Refused)).collect();
        outcomes(&self.0, checks.len()).unwrap_or_else(refused)
    }

    async fn amend(&self, _: &Check<'_>, _: Amendment, _: Instant) -> Result<Amended, StoreError> {
        match decode::read(&self.0, [1]).and_then(|all| all.into_iter().next()) {
            Some(ScriptReply::Amended(amended)) => amended.map(|amended| *amended),
            Some(ScriptReply::Judged(_) | ScriptReply::Alone | ScriptReply::Beyond { .. })
            | None => Err(StoreError::Refused),
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp::EPOCH
    }
}

/// Decodes the reply to a request of `count` checks.
fn outcomes(reply: &[u8], count: usize) -> Option<Outcomes> {
    let replies = decode::read(reply, [count])?;
    let answers = replies.into_iter().next()?.judged()?;
    assert_eq!(answers.len(), count);
    Some(answers.into_iter().map(|answer| answer.outcome).collect())
}

/// Runs the target. The first byte selects the numbers of checks, the second is left out; the rest
/// is the reply.
pub fn run(bytes: &[u8]) {
    let [choice, _, reply @ ..] = bytes else { return };
    let _ = outcomes(reply, choice.count_ones() as usize);
    let counts = [choice & 3, (choice >> 2) & 3, (choice >> 4) & 3].map(usize::from);
    let Some(all) = decode::read(reply, counts) else { return };
    assert_eq!(all.len(), counts.len());
    for (reply, count) in all.into_iter().zip(counts) {
        assert!(reply.judged().is_none_or(|answers| answers.len() == count));
    }
}
