//! The history of a world: calls, answers and faults, in their order.

use sha1::{Digest as _, Sha1};
use tollgate::algorithm::hold::HoldEffect;

use super::loans::LoanHistory;
use super::plan::{Fault, PlannedCall};
use super::server::fleet::Moment;

/// The end of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Ending {
    /// A decision: `true` if over the limit; and a status for each part.
    Decided(bool, Vec<PartStatus>),
    /// No decision, with the kind of error.
    Failed(&'static str),
    /// The caller went away.
    Cancelled,
}

impl Ending {
    /// Returns the name of the end, for coverage.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Decided(false, _) => "OK",
            Self::Decided(true, _) => "OVER_LIMIT",
            Self::Failed(kind) => kind,
            Self::Cancelled => "canceled",
        }
    }

    /// Returns the names of the effects on holds, for coverage.
    pub fn effects(&self) -> impl Iterator<Item = &'static str> {
        let statuses = match self {
            Self::Decided(_, statuses) => statuses.as_slice(),
            Self::Failed(_) | Self::Cancelled => &[],
        };
        statuses.iter().filter_map(|status| {
            Some(match status.effect? {
                HoldEffect::Nothing => "nothing",
                HoldEffect::Reserved { repeated: false } => "reserved",
                HoldEffect::Reserved { repeated: true } => "reserved again",
                HoldEffect::Unrecorded => "unrecorded",
                HoldEffect::Committed { reserved, cost } if cost > reserved => "committed more",
                HoldEffect::Committed { reserved, cost } if cost < reserved => "committed less",
                HoldEffect::Committed { .. } => "committed",
                HoldEffect::Unknown { .. } => "unknown",
                HoldEffect::Settled => "settled",
                HoldEffect::Extended => "extended",
                HoldEffect::Open { .. } => "open",
                HoldEffect::Held => "held",
                HoldEffect::Conflict => "conflict",
            })
        })
    }
}

/// The status of one part of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct PartStatus {
    pub standing: &'static str,
    /// Hits left; `None` if the store did not judge.
    pub left: Option<u64>,
    pub retry_after_us: Option<u64>,
    /// `true` if a remembered denial answered.
    pub is_cached: bool,
    /// Effect of an operation on a hold.
    pub effect: Option<HoldEffect>,
}

/// A call with its answer.
#[derive(Clone, Debug)]
pub struct CallRecord {
    pub call: PlannedCall,
    pub begun: Moment,
    pub ended: Moment,
    pub ending: Ending,
}

/// All that happened.
#[derive(Debug, Default)]
pub struct Chronicle {
    pub calls: Vec<CallRecord>,
    pub faults: Vec<(Moment, Fault)>,
    pub loans: LoanHistory,
    /// Lines of events, in their order.
    pub lines: Vec<String>,
}

impl Chronicle {
    /// Adds an event.
    pub fn note(&mut self, at: Moment, text: &str) {
        self.lines.push(format!("{:>6}.{:03} {text}", at / 1_000, at % 1_000));
    }

    /// Adds a call that has ended.
    pub fn record(&mut self, record: CallRecord) {
        let CallRecord { call, begun, ended, ending } = &record;
        let text = format!("{call} since {}.{:03}: {ending:?}", begun / 1_000, begun % 1_000);
        self.note(*ended, &text);
        self.calls.push(record);
    }

    /// Returns the digest of all events.
    pub fn hash(&self) -> String {
        let digest = Sha1::digest(self.lines.join("\n"));
        digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
    }
}
