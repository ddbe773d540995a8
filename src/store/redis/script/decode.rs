//! Decodes a script's reply, in the formats that the heads of `lua/decide.lua`,
//! `lua/fast/decide.lua` and `lua/amend.lua` define.

use smallvec::SmallVec;

use super::encode::{NOT_KNOWN, Undo};
use crate::algorithm::amend::{Amended, CounterReading, Grant};
use crate::algorithm::hold::HoldEffect;
use crate::algorithm::judge::{JudgedBy, Outcome};
use crate::algorithm::quota::{Report, WindowUsage};
use crate::algorithm::time::{Micros, Timestamp};
use crate::store::StoreError;

/// Encoding of an absent time.
const ABSENT: u64 = 1 << 55;
/// Tags of a reply to a request that was passed on, of an amended counter, and of an instant for
/// which no window of the calendar was sent.
const PASSED_ON: u64 = 2;
const AMENDED: u64 = 3;
const BEYOND: u64 = 4;
/// Tags of a reply of the fast path: to a whole request, and to a part of one.
const JUDGED: u64 = 5;
const PARTLY: u64 = 6;
/// Flag in a verdict of the fast path: hits were written.
const WRITTEN: u64 = 8;
/// Flag in a verdict of the fast path: the hits are from a grant.
const OF_GRANT: u64 = 16;
/// Flag in a verdict: the effect on a hold follows.
const HOLDS: u64 = 64;

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store::redis) struct CheckReply {
    /// The counter after the request, as far as this slot knows it.
    pub(in crate::store::redis) outcome: Result<Outcome, StoreError>,
    /// The instant at which hits were charged, if they were; on the fast path only if other slots
    /// judge a part of the request.
    pub(in crate::store::redis) written: Option<Timestamp>,
    /// Set if the hits were taken from a grant.
    pub(in crate::store::redis) of_grant: bool,
    /// The result without the charge, if other slots or this process decide the rest of the
    /// request.
    pub(in crate::store::redis) if_denied: Option<Box<IfDenied>>,
    /// Expiry of the record of a hold after the request and before it; the epoch if there is none.
    pub(in crate::store::redis) record: (Timestamp, Timestamp),
}

/// The result if the request is not admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store::redis) struct IfDenied {
    /// The counter without the hits charged only to an admitted request; `None` if the check could
    /// not be judged.
    pub(in crate::store::redis) outcome: Option<Outcome>,
    /// Data for undoing the charge.
    pub(in crate::store::redis) undo: Undo,
}

/// The results of the checks of a request.
pub(in crate::store::redis) type Answers = SmallVec<[CheckReply; 1]>;

/// The reply to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store::redis) enum ScriptReply {
    /// Its checks were judged.
    Judged(Answers),
    /// Its counter was amended.
    Amended(Result<Box<Amended>, StoreError>),
    /// The fast path wrote nothing and passed the request on to the general script.
    PassedOn,
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
    /// Returns the results of the checks, or `None` if this is no reply to checks.
    pub(in crate::store::redis) fn judged(self) -> Option<Answers> {
        match self {
            Self::Judged(answers) => Some(answers),
            Self::Amended(_) | Self::PassedOn | Self::Beyond { .. } => None,
        }
    }
}

/// Decodes the replies to the requests of one call, with `counts` checks each. Returns `None` if no
/// script of this crate sends such a reply.
pub(in crate::store::redis) fn read(
    reply: &[u8],
    counts: impl IntoIterator<Item = usize>,
) -> Option<Vec<ScriptReply>> {
    let mut bytes = Bytes(reply);
    let mut requests = Vec::new();
    for count in counts {
        let alternatives = match bytes.number(1)? {
            0 => false,
            1 => true,
            PASSED_ON => {
                requests.push(ScriptReply::PassedOn);
                continue;
            }
            AMENDED => {
                requests.push(ScriptReply::Amended(bytes.amended()?));
                continue;
            }
            BEYOND => {
                requests
                    .push(ScriptReply::Beyond { now: bytes.instant()?, instant: bytes.instant()? });
                continue;
            }
            kind @ (JUDGED | PARTLY) => {
                let answers = (0..count).map(|_| bytes.fast_answer(kind == PARTLY));
                requests.push(ScriptReply::Judged(answers.collect::<Option<Answers>>()?));
                continue;
            }
            _ => return None,
        };
        let answers = (0..count).map(|_| bytes.answer(alternatives));
        requests.push(ScriptReply::Judged(answers.collect::<Option<Answers>>()?));
    }
    bytes.0.is_empty().then_some(requests)
}

struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn number(&mut self, bytes: usize) -> Option<u64> {
        let (number, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(number.iter().fold(0, |sum, byte| (sum << 8) | u64::from(*byte)))
    }

    fn answer(&mut self, alternatives: bool) -> Option<CheckReply> {
        let verdict = self.number(1)?;
        let allowed = verdict_of(verdict & !HOLDS);
        let written = self.number(1)?;
        let at = self.number(7)?;
        let outcome_of = |report| {
            allowed.map(|allowed| Outcome {
                allowed,
                report,
                by: JudgedBy::Store,
                hold: HoldEffect::Nothing,
            })
        };
        let mut outcome = outcome_of(self.report()?);
        let mut if_denied = if alternatives {
            Some(Box::new(IfDenied {
                outcome: outcome_of(self.report()?).ok(),
                undo: self.undo()?,
            }))
        } else {
            None
        };
        let at = (written > 0).then(|| Timestamp::from_micros(at));
        let mut record = <(Timestamp, Timestamp)>::default();
        if verdict & HOLDS != 0 {
            let (effect, of_charge) = self.hold_reply()?;
            record = of_charge;
            outcome.iter_mut().for_each(|outcome| outcome.hold = effect);
            if let Some(if_denied) = &mut if_denied {
                let (effect, _) = self.hold_reply()?;
                if_denied.outcome.iter_mut().for_each(|outcome| outcome.hold = effect);
            }
        }
        Some(CheckReply { outcome, written: at, of_grant: written == 2, if_denied, record })
    }

    /// Decodes the effect of an operation on a hold, and the expiry of its record after the
    /// request and before it.
    fn hold_reply(&mut self) -> Option<(HoldEffect, (Timestamp, Timestamp))> {
        Some((self.hold_effect()?, (self.instant()?, self.instant()?)))
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

    /// Decodes a result of the fast path; with `is_part`, one of a part of a request.
    fn fast_answer(&mut self, is_part: bool) -> Option<CheckReply> {
        let (outcome, verdict) = self.fast_outcome()?;
        let record = <(Timestamp, Timestamp)>::default();
        if !is_part {
            let written = None;
            return Some(CheckReply { outcome, written, of_grant: false, if_denied: None, record });
        }
        let (without, _) = self.fast_outcome()?;
        let at = self.instant()?;
        let undo = Undo { without_charge: self.value()?, digest: None, ..Undo::default() };
        // A check that failed has no alternative either: it would become an admission.
        let without = outcome.as_ref().ok().and(without.ok());
        let if_denied = Some(Box::new(IfDenied { outcome: without, undo }));
        let written = (verdict & WRITTEN != 0).then_some(at);
        let of_grant = verdict & OF_GRANT != 0;
        Some(CheckReply { outcome, written, of_grant, if_denied, record })
    }

    fn fast_outcome(&mut self) -> Option<(Result<Outcome, StoreError>, u64)> {
        let verdict = self.number(1)?;
        let allowed = verdict_of(verdict & !(WRITTEN | OF_GRANT | HOLDS));
        let left = self.number(5)?;
        let window = self.number(1)?;
        let reset_after = self.time()?;
        let retry_after = if allowed == Ok(false) { self.time()? } else { None };
        let (remaining, beyond) = left_of(left, 40);
        let window = u8::try_from(window).ok()?;
        let report = Report {
            remaining,
            beyond,
            window,
            reset_after,
            retry_after,
            ban_window_ends_after: None,
        };
        let hold = if verdict & HOLDS == 0 { HoldEffect::Nothing } else { self.hold_effect()? };
        Some((
            allowed.map(|allowed| Outcome { allowed, report, by: JudgedBy::Store, hold }),
            verdict,
        ))
    }

    fn verdict(&mut self) -> Option<Result<bool, StoreError>> {
        self.number(1).map(verdict_of)
    }

    fn amended(&mut self) -> Option<Result<Box<Amended>, StoreError>> {
        Some(match self.verdict()? {
            Ok(_) => Ok(Box::new(Amended { before: self.look()?, after: self.look()? })),
            Err(error) => Err(error),
        })
    }

    fn look(&mut self) -> Option<CounterReading> {
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

    fn undo(&mut self) -> Option<Undo> {
        let without_charge = self.value()?;
        let digest = Some(self.bytes(16)?.try_into().ok()?);
        Some(Undo { without_charge, digest, ..Undo::default() })
    }

    /// Decodes a counter's value with its length; the inner `None` is a value that the script did
    /// not return.
    fn value(&mut self) -> Option<Option<Vec<u8>>> {
        match self.number(2)? {
            NOT_KNOWN => Some(None),
            length => self.bytes(usize::try_from(length).ok()?).map(|value| Some(value.to_vec())),
        }
    }

    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    fn report(&mut self) -> Option<Report> {
        let left = self.number(7)?;
        let window = self.number(1)?;
        let reset_after = self.time()?;
        let retry_after = self.time()?;
        let (remaining, beyond) = left_of(left, 56);
        Some(Report {
            remaining,
            beyond,
            window: u8::try_from(window).ok()?,
            reset_after,
            retry_after,
            ban_window_ends_after: None,
        })
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

/// Returns the hits left, and those beyond the limit if `left`, a two's complement number of `bits`
/// bits, is negative.
fn left_of(left: u64, bits: u32) -> (u64, u64) {
    match left.checked_shr(bits.saturating_sub(1)) {
        Some(0) => (left, 0),
        Some(_) | None => (0, (1_u64 << bits).saturating_sub(left)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_request_has_the_effects_on_holds_of_both_cases() {
        let report = [0; 7 + 1 + 7 + 7];
        let undo = [0; 2 + 16];
        let head = [1, 1 | 64, 1, 0, 0, 0, 0, 0, 0, 9];
        let hold = |effect: u8| [&[effect][..], &[0; 4 + 4 + 7 + 7]].concat();
        let reply = [&head[..], &report, &report, &undo, &hold(1), &hold(0)].concat();
        let answer = read(&reply, [1]).unwrap().remove(0).judged().unwrap().remove(0);
        assert_eq!(answer.outcome.unwrap().hold, HoldEffect::Reserved { repeated: false });
        let if_denied = answer.if_denied.unwrap().outcome.unwrap();
        assert_eq!(if_denied.hold, HoldEffect::Nothing);
    }

    #[test]
    fn a_check_that_failed_in_a_part_of_a_request_has_no_alternative() {
        // Refused, hits left, window, absent time; then the same allowed; instant and no value.
        let result = |verdict: u8| {
            let left = [0; 5];
            let window = [0];
            let time = &ABSENT.to_be_bytes()[1..];
            [&[verdict][..], &left, &window, time].concat()
        };
        let reply =
            |first, second| [&[6][..], &result(first), &result(second), &[0; 7], &[0; 2]].concat();
        let alternative = |first, second| {
            let reply = read(&reply(first, second), [1]).unwrap().remove(0);
            let answer = reply.judged().unwrap().remove(0);
            (answer.outcome.is_ok(), answer.if_denied.unwrap().outcome.is_some())
        };
        assert_eq!(alternative(1, 1), (true, true));
        assert_eq!(alternative(4, 1), (false, false), "an error must not become an admission");
    }
}
