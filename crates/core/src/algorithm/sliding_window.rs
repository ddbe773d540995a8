//! Sliding window: at most L hits in any period P, counted in B buckets.
//!
//! Idea: time is divided into buckets of width `b = ceil(P / B)`, and the window is the current
//! bucket `c = floor(now / b)` with the B buckets before it. `strict` counts the oldest bucket
//! whole, so that no half-open interval of length P admits more than L; `weighted` counts the part
//! of it that is still in the period, `ceil(k * (b - now mod b) / b)`. A hit is allowed iff
//! `used + n <= L`. Memory is bounded by B, whatever L is.
//!
//! Example, L = 3 per minute, B = 6 (b = 10 s): hits at 0:05, 0:15 and 0:25 are admitted; at 0:30
//! the next one is denied. It is admitted when bucket 0 expires, at (0 + 6 + 1) * 10 s = 1:10.

use super::parameter::{Parameter, ParameterValue, Parameters};
use super::quota::{MAX_BUCKETS, MAX_HITS, MAX_WINDOWS, QuotaError, Report, Window, WindowReport};
use super::time::{Micros, Timestamp};
use super::{Receipt, growth_of, words};

words! {
    /// The weight of the oldest bucket.
    #[derive(Default)]
    pub enum Estimate {
        /// Whole: never admits more than the limit in any period.
        #[default]
        Strict = "strict",
        /// The part that is still in the period: closer to the limit, sometimes above it.
        Weighted = "weighted",
    }
}

/// The parameters: one or more windows, all of which must allow the hits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlidingWindow {
    windows: Box<[Window]>,
    /// Bucket widths in window order.
    widths: Box<[Micros]>,
    buckets: u32,
    estimate: Estimate,
}

/// The counter: the used buckets of each window, oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    pub(super) last: Timestamp,
    rings: Box<[Vec<Bucket>]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Bucket {
    index: u64,
    hits: u64,
}

/// A view of one window at one instant.
struct View<'a> {
    window: &'a Window,
    width: Micros,
    span: u64,
    estimate: Estimate,
    /// Buckets that still count, oldest first.
    live: &'a [Bucket],
    now: Timestamp,
}

impl SlidingWindow {
    /// Creates a limit of one or more windows with `buckets` buckets each.
    ///
    /// # Errors
    /// If there are too few or too many windows or buckets, if buckets of whole microseconds would
    /// lengthen a period by more than 1 %, or if a weighted estimate has buckets of uneven width.
    pub fn new(windows: Vec<Window>, buckets: u32, estimate: Estimate) -> Result<Self, QuotaError> {
        if windows.is_empty() || windows.len() > MAX_WINDOWS {
            return Err(QuotaError::Windows { found: windows.len() });
        }
        if !(1..=MAX_BUCKETS).contains(&buckets) {
            return Err(QuotaError::Buckets { found: buckets });
        }
        let widths = windows
            .iter()
            .map(|window| bucket_width(window.period(), buckets, estimate))
            .collect::<Result<_, _>>()?;
        Ok(Self { windows: windows.into(), widths, buckets, estimate })
    }

    /// Returns the number of buckets per window.
    pub fn buckets(&self) -> u32 {
        self.buckets
    }

    /// Returns the bucket widths in window order.
    pub fn widths(&self) -> &[Micros] {
        &self.widths
    }

    /// Returns the estimate for the oldest bucket.
    pub fn estimate(&self) -> Estimate {
        self.estimate
    }

    pub(super) fn windows(&self) -> &[Window] {
        &self.windows
    }

    pub(super) fn parameters(&self) -> Parameters {
        let buckets = ParameterValue::Number(self.buckets.into());
        let estimate = ParameterValue::Word(self.estimate.word());
        [Some(Parameter::shape("buckets", buckets)), Some(Parameter::shape("estimate", estimate))]
    }

    pub(super) fn unused(&self) -> State {
        State { last: Timestamp::EPOCH, rings: vec![Vec::new(); self.windows.len()].into() }
    }

    pub(super) fn allows(&self, state: &State, hits: u64, now: Timestamp) -> bool {
        self.views(state, now)
            .all(|view| view.used().saturating_add(hits) <= u64::from(view.window.limit()))
    }

    pub(super) fn charge(&self, state: &mut State, hits: u64, now: Timestamp) {
        for (ring, width) in state.rings.iter_mut().zip(&self.widths) {
            let current = now.index(*width);
            ring.retain(|bucket| self.is_live(bucket.index, current));
            match ring.last_mut() {
                Some(newest) if newest.index == current => {
                    newest.hits = newest.hits.saturating_add(hits).min(MAX_HITS)
                }
                _ => ring.push(Bucket { index: current, hits }),
            }
        }
        state.last = now;
    }

    /// Refunds hits in each window separately, newest bucket first. Returns `true` if it took any.
    pub(super) fn refund(&self, state: &mut State, hits: u64, now: Timestamp) -> bool {
        let mut took = false;
        for (ring, width) in state.rings.iter_mut().zip(&self.widths) {
            let current = now.index(*width);
            let mut left = hits;
            for bucket in
                ring.iter_mut().rev().take_while(|bucket| self.is_live(bucket.index, current))
            {
                let part = bucket.hits.min(left);
                bucket.hits = bucket.hits.saturating_sub(part);
                left = left.saturating_sub(part);
                took |= part > 0;
            }
            ring.retain(|bucket| bucket.hits > 0);
        }
        state.last = if took { now } else { state.last };
        took
    }

    /// Undoes a charge in the bucket that it was made in, if that bucket still counts.
    pub(super) fn take_back(&self, state: &mut State, receipt: Receipt, now: Timestamp) -> bool {
        let mut took = false;
        for (ring, width) in state.rings.iter_mut().zip(&self.widths) {
            let index = receipt.at.index(*width);
            let current = now.index(*width);
            if let Some(bucket) =
                ring.iter_mut().find(|b| b.index == index && self.is_live(index, current))
            {
                took |= bucket.hits.min(receipt.hits) > 0;
                bucket.hits = bucket.hits.saturating_sub(receipt.hits);
            }
            ring.retain(|bucket| bucket.hits > 0);
        }
        state.last = if took { now } else { state.last };
        took
    }

    pub(super) fn report(&self, state: &State, denied: Option<u64>, now: Timestamp) -> Report {
        Report::of_binding(&self.windows, denied.is_some(), self.reports(state, denied, now))
    }

    /// Returns the hits that count at `now`, per window.
    pub(super) fn counts<'a>(
        &'a self,
        state: &'a State,
        now: Timestamp,
    ) -> impl Iterator<Item = u64> + 'a {
        self.views(state, now).map(|view| view.used())
    }

    pub(super) fn reports<'a>(
        &'a self,
        state: &'a State,
        denied: Option<u64>,
        now: Timestamp,
    ) -> impl Iterator<Item = WindowReport> + 'a {
        self.views(state, now).map(move |view| WindowReport {
            remaining: u64::from(view.window.limit()).saturating_sub(view.used()),
            reset_after: view
                .live
                .last()
                .map_or(Micros::ZERO, |newest| view.leaves(newest).since(now)),
            retry_after: denied.and_then(|hits| view.retry_after(hits)),
        })
    }

    /// Sets the latest instant of the counter.
    pub(super) fn touch(&self, state: &mut State, now: Timestamp) {
        state.last = now;
    }

    pub(super) fn matters_until(&self, state: &State) -> Timestamp {
        self.views(state, state.last)
            .filter_map(|view| view.live.last().map(|newest| view.leaves(newest)))
            .max()
            .unwrap_or(state.last)
    }

    /// Returns `true` if bucket `index` counts while `current` is the current bucket.
    fn is_live(&self, index: u64, current: u64) -> bool {
        index.saturating_add(u64::from(self.buckets)) >= current
    }

    fn views<'a>(&'a self, state: &'a State, now: Timestamp) -> impl Iterator<Item = View<'a>> {
        let span = u64::from(self.buckets);
        let estimate = self.estimate;
        self.windows.iter().zip(&self.widths).zip(&state.rings).map(
            move |((window, width), ring)| {
                let current = now.index(*width);
                let gone = ring.partition_point(|bucket| !self.is_live(bucket.index, current));
                let live = ring.get(gone..).unwrap_or_default();
                View { window, width: *width, span, estimate, live, now }
            },
        )
    }
}

impl View<'_> {
    /// Returns the hits that count now.
    fn used(&self) -> u64 {
        self.live.iter().fold(0, |sum: u64, bucket| sum.saturating_add(self.counted(bucket)))
    }

    fn counted(&self, bucket: &Bucket) -> u64 {
        let oldest = self.now.index(self.width) == bucket.index.saturating_add(self.span);
        if self.estimate == Estimate::Strict || !oldest {
            return bucket.hits;
        }
        let gone = self.now.since(Timestamp::at_index(self.now.index(self.width), self.width));
        scaled(bucket.hits, self.width - gone, self.width, u128::div_ceil)
    }

    /// Returns the first instant at which the bucket no longer counts.
    fn leaves(&self, bucket: &Bucket) -> Timestamp {
        Timestamp::at_index(bucket.index.saturating_add(self.span).saturating_add(1), self.width)
    }

    /// Returns the time until `hits` fit, expiring buckets from the oldest on; `None`: never.
    fn retry_after(&self, hits: u64) -> Option<Micros> {
        let room = u64::from(self.window.limit()).checked_sub(hits)?;
        if self.used() <= room {
            return Some(Micros::ZERO);
        }
        let mut rest = self.live.iter().fold(0, |sum: u64, bucket| sum.saturating_add(bucket.hits));
        for bucket in self.live {
            rest = rest.saturating_sub(bucket.hits);
            if rest <= room {
                return Some(self.fits(bucket, room.saturating_sub(rest)).since(self.now));
            }
        }
        None
    }

    /// Returns the first instant at which at most `room` hits of the oldest bucket count.
    fn fits(&self, oldest: &Bucket, room: u64) -> Timestamp {
        let leaves = self.leaves(oldest);
        // A weighted bucket counts ceil(k * left / b) while `left` of it is in the period: enough
        // room iff left <= room * b / k.
        match self.estimate {
            Estimate::Strict => leaves,
            Estimate::Weighted => {
                leaves
                    - Micros::new(scaled(room, self.width, Micros::new(oldest.hits), |a, b| {
                        a.div_euclid(b)
                    }))
            }
        }
    }
}

/// Returns the width of the buckets of a period.
fn bucket_width(period: Micros, buckets: u32, estimate: Estimate) -> Result<Micros, QuotaError> {
    let count = u64::from(buckets);
    let width = period.get().div_ceil(count);
    let covered = width.saturating_mul(count);
    if covered.saturating_mul(100) > period.get().saturating_mul(101) {
        Err(QuotaError::BucketWidth { buckets, period })
    } else if estimate == Estimate::Weighted && covered != period.get() {
        Err(QuotaError::UnevenBuckets { buckets, period })
    } else {
        Ok(Micros::new(width))
    }
}

/// Returns `hits * part / whole`, rounded by `divide`, without overflow.
fn scaled(hits: u64, part: Micros, whole: Micros, divide: impl Fn(u128, u128) -> u128) -> u64 {
    let product = u128::from(hits).saturating_mul(u128::from(part.get()));
    u64::try_from(divide(product, u128::from(whole.get()).max(1))).unwrap_or(u64::MAX)
}

impl State {
    /// Returns the heap size in bytes.
    pub(super) fn heap_bytes(&self) -> usize {
        let rings =
            self.rings.iter().map(|ring| ring.capacity().saturating_mul(size_of::<Bucket>()));
        rings.fold(size_of_val::<[Vec<Bucket>]>(&self.rings), usize::saturating_add)
    }

    /// Returns the number of bytes that the next charge may allocate.
    pub(super) fn growth_bytes(&self) -> usize {
        self.rings
            .iter()
            .map(|ring| growth_of::<Bucket>(ring.len(), ring.capacity()))
            .fold(0, usize::saturating_add)
    }
}
