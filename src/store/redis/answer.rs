//! A script's reply, read: what the heads of `lua/decide.lua` and `lua/amend.lua` define.

use smallvec::SmallVec;

use super::question::{NOT_KNOWN, Undo};
use crate::algorithm::amend::{Amended, Grant, Look, WindowLook};
use crate::algorithm::judge::{JudgedBy, Outcome};
use crate::algorithm::quota::Report;
use crate::algorithm::time::{Micros, Timestamp};
use crate::store::StoreError;

/// What stands where a time is absent.
const ABSENT: u64 = 1 << 55;
/// What stands for the answers to a request that was passed on, before what became of a counter, and before the instant at
/// which no window of a calendar was known.
const PASSED_ON: u64 = 2;
const AMENDED: u64 = 3;
const BEYOND: u64 = 4;

/// What became of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    /// The counter after the request, as far as this slot knows it.
    pub(super) outcome: Result<Outcome, StoreError>,
    /// Whether hits were charged, and the instant at which.
    pub(super) written: Option<Timestamp>,
    /// Whether they were taken of a grant.
    pub(super) of_grant: bool,
    /// What there is besides where other slots have a say.
    pub(super) otherwise: Option<Box<Otherwise>>,
}

/// What would be if the request were not admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Otherwise {
    /// The counter without what only an admitted request is charged; `None` where the check could not be judged.
    pub(super) outcome: Option<Outcome>,
    /// How to undo the charge.
    pub(super) undo: Undo,
}

/// The answers to the checks of a request.
pub(super) type Answers = SmallVec<[Answer; 1]>;

/// What became of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Said {
    /// Its checks were judged.
    Judged(Answers),
    /// Its counter was amended.
    Amended(Result<Box<Amended>, StoreError>),
    /// A script passed it on, with nothing written, to the one that knows all.
    PassedOn,
    /// Nothing was written: a counter's instant is in no window of its calendar that the script was told.
    Beyond {
        /// What time it is by the server's clock.
        now: Timestamp,
        /// The counter's instant.
        instant: Timestamp,
    },
}

impl Said {
    /// What became of checks.
    pub(super) fn judged(self) -> Option<Answers> {
        match self {
            Self::Judged(answers) => Some(answers),
            Self::Amended(_) | Self::PassedOn | Self::Beyond { .. } => None,
        }
    }
}

/// Reads the replies to the requests of one call, `counts` checks each. `None` where the reply is none of a script of ours.
pub(super) fn read(reply: &[u8], counts: impl IntoIterator<Item = usize>) -> Option<Vec<Said>> {
    let mut bytes = Bytes(reply);
    let mut requests = Vec::new();
    for count in counts {
        let alternatives = match bytes.number(1)? {
            0 => false,
            1 => true,
            PASSED_ON => {
                requests.push(Said::PassedOn);
                continue;
            }
            AMENDED => {
                requests.push(Said::Amended(bytes.amended()?));
                continue;
            }
            BEYOND => {
                requests.push(Said::Beyond { now: bytes.instant()?, instant: bytes.instant()? });
                continue;
            }
            _ => return None,
        };
        let answers = (0..count).map(|_| bytes.answer(alternatives));
        requests.push(Said::Judged(answers.collect::<Option<Answers>>()?));
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

    fn answer(&mut self, alternatives: bool) -> Option<Answer> {
        let (allowed, written, at) = (self.verdict()?, self.number(1)?, self.number(7)?);
        let outcome_of = |report| allowed.clone().map(|allowed| Outcome { allowed, report, by: JudgedBy::Store });
        let outcome = outcome_of(self.report()?);
        let otherwise = match alternatives {
            true => Some(Box::new(Otherwise { outcome: outcome_of(self.report()?).ok(), undo: self.undo()? })),
            false => None,
        };
        let at = (written > 0).then(|| Timestamp::from_micros(at));
        Some(Answer { outcome, written: at, of_grant: written == 2, otherwise })
    }

    fn verdict(&mut self) -> Option<Result<bool, StoreError>> {
        Some(match self.number(1)? {
            0 => Err(StoreError::Unreadable),
            1 => Ok(true),
            2 => Ok(false),
            3 => Err(StoreError::NoRoom),
            _ => Err(StoreError::Refused),
        })
    }

    fn amended(&mut self) -> Option<Result<Box<Amended>, StoreError>> {
        Some(match self.verdict()? {
            Ok(_) => Ok(Box::new(Amended { before: self.look()?, after: self.look()? })),
            Err(error) => Err(error),
        })
    }

    fn look(&mut self) -> Option<Look> {
        let at = self.instant()?;
        let grant = Grant { left: self.number(7)?, until: self.instant()? };
        let count = self.number(1)?;
        let windows = (0..count).map(|_| self.window()).collect::<Option<_>>()?;
        Some(Look { at, windows, grant: (grant.left > 0).then_some(grant) })
    }

    fn window(&mut self) -> Option<WindowLook> {
        let (used, remaining) = (self.number(7)?, self.number(7)?);
        Some(WindowLook { used, remaining, reset_after: self.time()?.unwrap_or_default(), retry_after: self.time()? })
    }

    fn instant(&mut self) -> Option<Timestamp> {
        self.number(7).map(Timestamp::from_micros)
    }

    /// A length of time, which may be absent.
    fn time(&mut self) -> Option<Option<Micros>> {
        self.number(7).map(|us| (us != ABSENT).then(|| Micros::new(us)))
    }

    fn undo(&mut self) -> Option<Undo> {
        let length = self.number(2)?;
        let otherwise = if length == NOT_KNOWN { None } else { Some(self.bytes(usize::try_from(length).ok()?)?) };
        Some(Undo { otherwise, digest: self.bytes(16)? })
    }

    fn bytes(&mut self, count: usize) -> Option<Vec<u8>> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes.to_vec())
    }

    fn report(&mut self) -> Option<Report> {
        let (remaining, window) = (self.number(7)?, self.number(1)?);
        let (reset_after, retry_after) = (self.time()?, self.time()?);
        Some(Report { remaining, window: u8::try_from(window).ok()?, reset_after, retry_after })
    }
}
