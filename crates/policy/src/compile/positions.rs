//! Positions of the words of a limit, for errors that its algorithm reports.

use tollgate_core::algorithm::quota::{QuotaError, Window};
use tollgate_yaml::report::{Finding, SourceSpan};

use crate::document::written;

/// A window, with the positions of its words.
pub(super) struct PlacedWindow {
    pub(super) window: Window,
    pub(super) amount: SourceSpan,
    pub(super) unit: SourceSpan,
}

/// Positions of the options of a limit.
pub(super) struct OptionPositions {
    pub(super) burst: Option<SourceSpan>,
    pub(super) max_debt: Option<SourceSpan>,
    pub(super) buckets: Option<SourceSpan>,
    pub(super) estimate: Option<SourceSpan>,
    pub(super) charge: Option<SourceSpan>,
}

impl OptionPositions {
    /// Returns the error at the word that has to change.
    pub(super) fn finding(
        &self,
        error: &QuotaError,
        limit: &written::WrittenLimit,
        windows: &[PlacedWindow],
    ) -> Finding {
        let unit_of = |found| {
            windows.iter().find(|placed| placed.window.period() == found).map(|placed| placed.unit)
        };
        let span = match error {
            QuotaError::Period { found } => unit_of(*found),
            QuotaError::Windows { .. } => limit.windows.as_ref().map(|windows| windows.span),
            QuotaError::Buckets { .. } => self.buckets,
            QuotaError::BucketWidth { period, .. } => self.buckets.or_else(|| unit_of(*period)),
            QuotaError::UnevenBuckets { .. } => self.buckets.or(self.estimate),
            QuotaError::LogLimit { found } => windows
                .iter()
                .find(|placed| placed.window.limit() == *found)
                .map(|placed| placed.amount),
            QuotaError::LogCharge { .. } => self.charge,
            QuotaError::InFlight { .. } => limit.in_flight.as_ref().map(|amount| amount.span),
            QuotaError::NoBurst => self.burst,
            QuotaError::BurstTooSlow { period, .. } => self.burst.or_else(|| unit_of(*period)),
            QuotaError::Debt { .. } => self.max_debt,
        };
        Finding::error(span.unwrap_or(limit.span), error.to_string())
    }
}
