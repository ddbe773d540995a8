//! The windows of a limit, with constructors that reject what cannot work, and the bounds of all
//! parameters.

use std::fmt;

use super::calendar::Calendar;
use super::time::{Micros, Timestamp};

/// Maximum number of hits in a counter, 2^53 - 1: the largest count that is exact as a Lua double.
pub const MAX_HITS: u64 = (1 << 53) - 1;
/// Maximum number of windows in one limit.
pub const MAX_WINDOWS: usize = 8;
/// The shortest period.
pub const MIN_PERIOD: Micros = Micros::new(1_000);
/// The longest period: ten years of 365 days.
pub const MAX_PERIOD: Micros = Micros::from_secs(3_650 * 86_400);
/// Maximum number of buckets in a sliding window.
pub const MAX_BUCKETS: u32 = 1_000;
/// Maximum amount of a sliding log per period: each hit may be an entry of its own in memory.
pub const MAX_LOG_LIMIT: u32 = 10_000;

/// Maximum number of hits in flight: each may be a permit of its own in memory.
pub const MAX_IN_FLIGHT: u32 = 10_000;
/// Shortest TTL of a hold.
pub const MIN_TTL: Micros = Micros::from_secs(1);
/// Longest TTL of a hold.
pub const MAX_TTL: Micros = Micros::from_secs(86_400);

/// An amount of hits per period. An amount of 0 is a ban.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    limit: u32,
    period: Micros,
    calendar: Option<Calendar>,
}

impl Window {
    /// Creates a window of `limit` hits in every `period`.
    ///
    /// # Errors
    /// If the period is outside [`MIN_PERIOD`] ..= [`MAX_PERIOD`].
    pub fn new(limit: u32, period: Micros) -> Result<Self, QuotaError> {
        if (MIN_PERIOD..=MAX_PERIOD).contains(&period) {
            Ok(Self { limit, period, calendar: None })
        } else {
            Err(QuotaError::Period { found: period })
        }
    }

    /// Creates a window of `limit` hits in every day, week, month or year of a calendar.
    pub fn on_calendar(limit: u32, calendar: Calendar) -> Self {
        Self { limit, period: calendar.nominal_length(), calendar: Some(calendar) }
    }

    /// Returns the window with another amount.
    pub(super) fn with_limit(&self, limit: u32) -> Self {
        Self { limit, ..self.clone() }
    }

    /// Returns the number of hits that the window admits.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Returns the period; for a calendar window the nominal one (a month: 30 days).
    pub fn period(&self) -> Micros {
        self.period
    }

    /// Returns the calendar that sets the boundaries; without one they are multiples of the period
    /// since the epoch.
    pub fn calendar(&self) -> Option<&Calendar> {
        self.calendar.as_ref()
    }

    /// Returns the start of the window that contains `now`, and the start of the next one.
    #[inline]
    pub(super) fn bounds(&self, now: Timestamp) -> (Timestamp, Timestamp) {
        match &self.calendar {
            Some(calendar) => calendar.bounds(now),
            None => {
                let start = Timestamp::at_index(now.index(self.period), self.period);
                (start, start + self.period)
            }
        }
    }
}

impl fmt::Display for Window {
    /// Formats in words: `100 hits in 1m`, `1 hit in each calendar day of Europe/Berlin`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.limit {
            0 => f.write_str("0 hits (ban)")?,
            1 => f.write_str("1 hit")?,
            limit => write!(f, "{limit} hits")?,
        }
        match &self.calendar {
            None => write!(f, " in {}", self.period),
            Some(calendar) => write!(
                f,
                " in each calendar {} of {}",
                calendar.unit().word(),
                calendar.zone_name()
            ),
        }
    }
}

/// An error for a limit that cannot work. Each variant names the policy field to change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the text of each variant says what its fields are")]
pub enum QuotaError {
    #[error("unit must be from {MIN_PERIOD} to {MAX_PERIOD}, found {found}")]
    Period { found: Micros },
    #[error("`windows` must have from 1 to {MAX_WINDOWS} items, found {found}")]
    Windows { found: usize },
    #[error("buckets must be from 1 to {MAX_BUCKETS}, found {found}")]
    Buckets { found: u32 },
    #[error(
        "{buckets} buckets of whole microseconds would make the period of {period} more than 1 % longer"
    )]
    BucketWidth { buckets: u32, period: Micros },
    #[error(
        "with estimate: weighted, buckets must divide the unit evenly, found {buckets} buckets in {period}"
    )]
    UnevenBuckets { buckets: u32, period: Micros },
    #[error(
        "sliding_log stores every hit and supports at most {MAX_LOG_LIMIT} requests_per_unit, found {found}; use sliding_window"
    )]
    LogLimit { found: u32 },
    #[error(
        "sliding_log does not support `charge: {charge}`, which has no bound; use sliding_window"
    )]
    LogCharge { charge: &'static str },
    #[error("in_flight must be at most {}, found {found}", MAX_IN_FLIGHT)]
    InFlight { found: u32 },
    #[error("burst must be at least 1, found 0")]
    NoBurst,
    #[error(
        "a burst of {burst} takes more than 71 years to refill at {limit} in {period}; lower burst or unit"
    )]
    BurstTooSlow { burst: u32, limit: u32, period: Micros },
    #[error(
        "max_debt of {found} hits would take more than 285 years to pay back; at most {allowed} fits"
    )]
    Debt { found: u64, allowed: u64 },
}

/// A readable view of one window of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowUsage {
    /// Hits that count, including those past the limit.
    pub used: u64,
    /// Remaining hits, without those of a grant.
    pub remaining: u64,
    /// Time until the window equals an unused one.
    pub reset_after: Micros,
    /// Time until one hit fits; absent: never.
    pub retry_after: Option<Micros>,
}

/// The state of one window after a request.
pub(super) struct WindowReport {
    pub(super) remaining: u64,
    pub(super) reset_after: Micros,
    /// Computed only if the limit denied the hits; `None`: never.
    pub(super) retry_after: Option<Micros>,
}

impl WindowReport {
    /// Returns a rank among the windows of a limit, by which the largest binds.
    #[inline]
    fn rank(&self, denied: bool) -> u64 {
        if denied {
            self.retry_after.map_or(u64::MAX, Micros::get)
        } else {
            u64::MAX.saturating_sub(self.remaining)
        }
    }
}

/// The state of a limit after a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Remaining hits, the fewest over all windows.
    pub remaining: u64,
    /// Hits counted beyond the limit of a fixed window with one period. 0 for every other limit,
    /// and while any hits are left.
    pub beyond: u64,
    /// Index of the binding window, which the times refer to.
    pub window: u8,
    /// Time until the counter equals an unused one; absent for a ban.
    pub reset_after: Option<Micros>,
    /// Time until the same hits are admitted, without other traffic. Absent: not denied, or never.
    pub retry_after: Option<Micros>,
}

impl Report {
    /// Returns the report of a ban, of which `window` is an index.
    pub(super) fn of_ban(window: u8) -> Self {
        Self { remaining: 0, beyond: 0, window, reset_after: None, retry_after: None }
    }

    /// Returns the report of the binding window: of a denial the one with the longest wait, else
    /// the one with the fewest remaining hits; ties go to the longer period. Remaining hits are
    /// those of all windows.
    #[inline]
    pub(super) fn of_binding(
        windows: &[Window],
        denied: bool,
        reports: impl Iterator<Item = WindowReport>,
    ) -> Self {
        let mut remaining = u64::MAX;
        let reports = reports.inspect(|report| remaining = remaining.min(report.remaining));
        let binding =
            windows.iter().zip(reports).enumerate().max_by(|(a, (wa, ra)), (b, (wb, rb))| {
                let one = (ra.rank(denied), wa.period);
                // equal in all: the first one in policy order
                one.cmp(&(rb.rank(denied), wb.period)).then(b.cmp(a))
            });
        match binding {
            Some((window, (_, report))) => Self {
                remaining,
                beyond: 0,
                window: u8::try_from(window).unwrap_or_default(), // at most MAX_WINDOWS
                reset_after: Some(report.reset_after),
                retry_after: report.retry_after.filter(|_| denied),
            },
            None => Self::of_ban(0),
        }
    }
}
