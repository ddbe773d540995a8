//! Decodes a script's reply, in the formats that the heads of `lua/decide.lua` and `lua/amend.lua`
//! define.

use smallvec::SmallVec;
use tollgate_core::algorithm::amend::{Amended, CounterReading, Grant};
use tollgate_core::algorithm::hold::HoldEffect;
use tollgate_core::algorithm::judge::{JudgedBy, Outcome};
use tollgate_core::algorithm::quota::{Report, WindowUsage};
use tollgate_core::algorithm::time::{Micros, Timestamp};

use crate::StoreError;

/// Encoding of an absent time.
const ABSENT: u64 = 1 << 55;
/// Tags of a reply: the request must be sent alone; a counter was amended; no window of the
/// calendar was sent for an instant; a request was judged; a part of one was.
const AGAIN: u64 = 2;
const AMENDED: u64 = 3;
const BEYOND: u64 = 4;
const JUDGED: u64 = 5;
const PARTLY: u64 = 6;
/// Flag in a verdict: hits were written.
const WRITTEN: u64 = 8;
/// Flag in a verdict: the hits are from a grant.
const OF_GRANT: u64 = 16;
/// Flag in a verdict: the effect on a hold follows.
const HOLDS: u64 = 64;

/// The reply about one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::redis) struct CheckReply {
    /// The counter after the request, as far as this slot knows it.
    pub(in crate::redis) outcome: Result<Outcome, StoreError>,
    /// The instant at which hits were charged, if they were and may have to be taken back.
    pub(in crate::redis) written: Option<Timestamp>,
    /// Set if the hits were taken from a grant.
    pub(in crate::redis) of_grant: bool,
    /// The counter without the hits charged only to an admitted request, if other slots or this
    /// process decide the rest of the request; `None` if the check could not be judged.
    pub(in crate::redis) if_denied: Option<Box<Outcome>>,
    /// Data for taking the charge back, as `lua/amend.lua` defines it.
    pub(in crate::redis) undo: Vec<u8>,
}

/// The replies about the checks of a request.
pub(in crate::redis) type CheckReplies = SmallVec<[CheckReply; 1]>;

/// The reply to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::redis) enum ScriptReply {
    /// Its checks were judged.
    Judged(CheckReplies),
    /// Its counter was amended.
    Amended(Result<Box<Amended>, StoreError>),
    /// Nothing was written: the node refused keys of a slot that is not the first request's.
    Alone,
    /// Nothing was written: a counter's instant is in none of its calendar's windows that were
    /// sent.
    Beyond {
        /// The server's time.
        now: Timestamp,
        /// The counter's instant.
        instant: Timestamp,
    },
}

impl ScriptReply {
    /// Returns the replies about the checks, or `None` if this is no reply to checks.
    pub(in crate::redis) fn judged(self) -> Option<CheckReplies> {
        match self {
            Self::Judged(answers) => Some(answers),
            Self::Amended(_) | Self::Alone | Self::Beyond { .. } => None,
        }
    }
}

/// Decodes the replies to the requests of one call, with `counts` checks each. Returns `None` if no
/// script of this crate sends such a reply.
pub(in crate::redis) fn read(
    reply: &[u8],
    counts: impl IntoIterator<Item = usize>,
) -> Option<Vec<ScriptReply>> {
    let mut bytes = Bytes(reply);
    let mut requests = Vec::new();
    for count in counts {
        requests.push(match bytes.number(1)? {
            AGAIN => ScriptReply::Alone,
            AMENDED => ScriptReply::Amended(bytes.amended()?),
            BEYOND => ScriptReply::Beyond { now: bytes.instant()?, instant: bytes.instant()? },
            JUDGED => {
                ScriptReply::Judged((0..count).map(|_| bytes.answer()).collect::<Option<_>>()?)
            }
            PARTLY => {
                let answers = (0..count).map(|_| bytes.answer_of_part());
                ScriptReply::Judged(answers.collect::<Option<_>>()?)
            }
            _ => return None,
        });
    }
    bytes.0.is_empty().then_some(requests)
}

struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn number(&mut self, bytes: usize) -> Option<u64> {
        let (number, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(number.iter().fold(0, |sum, byte| (sum << 8) | u64::from(*byte)))
    }

    /// Decodes the effect of an operation on a hold.
    fn hold_effect(&mut self) -> Option<HoldEffect> {
        let kind = self.number(1)?;
        let held = u32::try_from(self.number(4)?).ok()?;
        let cost = u32::try_from(self.number(4)?).ok()?;
        Some(match kind {
            0 => HoldEffect::Nothing,
            1 | 2 => HoldEffect::Reserved { repeated: kind == 2 },
            3 => HoldEffect::Unrecorded,
            4 => HoldEffect::Committed { reserved: held, cost },
            5 => HoldEffect::Unknown { cost },
            6 => HoldEffect::Settled,
            7 => HoldEffect::Extended,
            8 => HoldEffect::Open { hits: held },
            9 => HoldEffect::Held,
            10 => HoldEffect::Conflict,
            _ => return None,
        })
    }

    /// Decodes the reply about a check.
    fn answer(&mut self) -> Option<CheckReply> {
        let (outcome, verdict) = self.outcome()?;
        Some(CheckReply {
            outcome,
            written: None,
            of_grant: verdict & OF_GRANT != 0,
            if_denied: None,
            undo: Vec::new(),
        })
    }

    /// Decodes the reply about a check in a part of a request.
    fn answer_of_part(&mut self) -> Option<CheckReply> {
        let (outcome, verdict) = self.outcome()?;
        let (without, _) = self.outcome()?;
        let at = self.instant()?;
        let length = usize::try_from(self.number(2)?).ok()?;
        Some(CheckReply {
            outcome,
            written: (verdict & WRITTEN != 0).then_some(at),
            of_grant: verdict & OF_GRANT != 0,
            // A check that failed has no alternative either: it would become an admission.
            if_denied: outcome.ok().and(without.ok()).map(Box::new),
            undo: self.bytes(length)?.to_vec(),
        })
    }

    fn outcome(&mut self) -> Option<(Result<Outcome, StoreError>, u64)> {
        let verdict = self.number(1)?;
        let allowed = verdict_of(verdict & !(WRITTEN | OF_GRANT | HOLDS));
        let left = self.number(5)?;
        let window = u8::try_from(self.number(1)?).ok()?;
        let reset_after = self.time()?;
        let retry_after = if allowed == Ok(false) { self.time()? } else { None };
        let (remaining, beyond) = left_of(left);
        let report = Report { remaining, beyond, window, reset_after, retry_after };
        let hold = if verdict & HOLDS == 0 { HoldEffect::Nothing } else { self.hold_effect()? };
        let outcome = allowed.map(|allowed| Outcome { allowed, report, by: JudgedBy::Store, hold });
        Some((outcome, verdict))
    }

    fn bytes(&mut self, count: usize) -> Option<&[u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    fn verdict(&mut self) -> Option<Result<bool, StoreError>> {
        self.number(1).map(verdict_of)
    }

    fn amended(&mut self) -> Option<Result<Box<Amended>, StoreError>> {
        Some(match self.verdict()? {
            Ok(_) => Ok(Box::new(Amended { before: self.reading()?, after: self.reading()? })),
            Err(error) => Err(error),
        })
    }

    fn reading(&mut self) -> Option<CounterReading> {
        let at = self.instant()?;
        let grant = Grant { left: self.number(7)?, until: self.instant()? };
        let count = self.number(1)?;
        let windows = (0..count).map(|_| self.window()).collect::<Option<_>>()?;
        Some(CounterReading { at, windows, grant: (grant.left > 0).then_some(grant) })
    }

    fn window(&mut self) -> Option<WindowUsage> {
        let used = self.number(7)?;
        let remaining = self.number(7)?;
        Some(WindowUsage {
            used,
            remaining,
            reset_after: self.time()?.unwrap_or_default(),
            retry_after: self.time()?,
        })
    }

    fn instant(&mut self) -> Option<Timestamp> {
        self.number(7).map(Timestamp::from_micros)
    }

    /// Decodes a duration, which may be absent.
    fn time(&mut self) -> Option<Option<Micros>> {
        self.number(7).map(|us| (us != ABSENT).then(|| Micros::new(us)))
    }
}

fn verdict_of(number: u64) -> Result<bool, StoreError> {
    match number {
        0 => Err(StoreError::Unreadable),
        1 => Ok(true),
        2 => Ok(false),
        3 => Err(StoreError::NoRoom),
        _ => Err(StoreError::Refused),
    }
}

/// Returns the hits left, and those beyond the limit if `left`, a two's complement number of five
/// bytes, is negative.
fn left_of(left: u64) -> (u64, u64) {
    if left >> 39 == 0 { (left, 0) } else { (0, (1_u64 << 40).saturating_sub(left)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A result: the verdict, hits left, window, absent time.
    fn result(verdict: u8) -> Vec<u8> {
        [&[verdict, 0, 0, 0, 0, 0, 0][..], &ABSENT.to_be_bytes()[1..]].concat()
    }

    fn part(first: &[u8], second: &[u8]) -> CheckReply {
        let reply = [&[6][..], first, second, &[0; 7], &[0; 2]].concat();
        read(&reply, [1]).unwrap().remove(0).judged().unwrap().remove(0)
    }

    #[test]
    fn a_part_of_a_request_has_the_effects_on_holds_of_both_cases() {
        let with_effect = |effect: u8| [&result(1 | 64)[..], &[effect], &[0; 8]].concat();
        let answer = part(&with_effect(1), &with_effect(0));
        assert_eq!(answer.outcome.unwrap().hold, HoldEffect::Reserved { repeated: false });
        assert_eq!(answer.if_denied.unwrap().hold, HoldEffect::Nothing);
    }

    #[test]
    fn a_check_that_failed_in_a_part_of_a_request_has_no_alternative() {
        let alternative = |first, second| {
            let answer = part(&result(first), &result(second));
            (answer.outcome.is_ok(), answer.if_denied.is_some())
        };
        assert_eq!(alternative(1, 1), (true, true));
        assert_eq!(alternative(4, 1), (false, false), "an error must not become an admission");
    }
}
