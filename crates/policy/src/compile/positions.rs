//! Positions of the words of a limit, for errors that its algorithm reports.

use tollgate_core::algorithm::quota::{QuotaError, Window};
use tollgate_core::algorithm::time::Micros;
use tollgate_yaml::report::{Finding, SourceSpan};

use super::algorithm::{ParameterOptions, WindowOptions};
use crate::document::written;

/// A window, with the positions of its words.
pub(super) struct PlacedWindow {
    pub(super) window: Window,
    pub(super) amount: SourceSpan,
    pub(super) unit: SourceSpan,
}

impl WindowOptions<'_> {
    /// Returns the error at the word that has to change.
    pub(super) fn finding(
        &self,
        error: &QuotaError,
        limit: &written::WrittenLimit,
        windows: &[PlacedWindow],
    ) -> Finding {
        let ParameterOptions { burst, max_debt, buckets, estimate } = &self.parameters;
        let [burst, max_debt, buckets] =
            [burst, max_debt, buckets].map(|option| option.map(|option| option.span));
        let span = match error {
            QuotaError::Period { found } => unit_of(windows, *found),
            QuotaError::Windows { .. } => limit.windows.as_ref().map(|windows| windows.span),
            QuotaError::Buckets { .. } => buckets,
            QuotaError::BucketWidth { period, .. } => buckets.or_else(|| unit_of(windows, *period)),
            QuotaError::UnevenBuckets { .. } => buckets.or(estimate.map(|option| option.span)),
            QuotaError::LogLimit { found } => windows
                .iter()
                .find(|placed| placed.window.limit() == *found)
                .map(|placed| placed.amount),
            QuotaError::LogCharge { .. } => self.charge.map(|option| option.span),
            QuotaError::InFlight { .. } => limit.in_flight.as_ref().map(|amount| amount.span),
            QuotaError::NoBurst => burst,
            QuotaError::BurstTooSlow { period, .. } => burst.or_else(|| unit_of(windows, *period)),
            QuotaError::Debt { .. } => max_debt,
        };
        Finding::error(span.unwrap_or(limit.span), error.to_string())
    }
}

/// Returns the position of the unit of the window with a period.
fn unit_of(windows: &[PlacedWindow], period: Micros) -> Option<SourceSpan> {
    windows.iter().find(|placed| placed.window.period() == period).map(|placed| placed.unit)
}
