//! Windows that begin at given times: multiples of a period, or the days of a calendar.

use std::ops::RangeInclusive;
use std::sync::Arc;

use tollgate_core::algorithm::calendar::Calendar;
use tollgate_core::algorithm::quota::Window;
use tollgate_core::algorithm::time::Timestamp;

use crate::history::ObservedCall;

/// Windows of a calendar after the current one: a run is no longer than one of them.
const LATER_WINDOWS: usize = 3;

/// Windows that begin at given times, in microseconds, each with an index in their order.
#[derive(Clone, Debug)]
pub(crate) enum AlignedWindows {
    /// At each multiple of a period.
    Every(u64),
    /// At these times, and one that began before them.
    At(Arc<[u64]>),
}

impl AlignedWindows {
    /// Returns the windows of a limit, those of a calendar around a time.
    pub(crate) fn of(window: &Window, now: u64) -> Self {
        match window.calendar() {
            None => Self::Every(window.period().get()),
            Some(calendar) => Self::At(starts(calendar, now).into()),
        }
    }

    /// Returns the windows in which the hits of a call may have been charged.
    pub(crate) fn of_call(&self, call: &ObservedCall, skew: u64) -> RangeInclusive<u64> {
        let first = self.index(call.begin.saturating_sub(skew));
        first..=self.index(call.charged_by().saturating_add(skew))
    }

    /// Returns the index of the window at a time.
    pub(crate) fn index(&self, time: u64) -> u64 {
        match self {
            Self::Every(period) => time.checked_div(*period).unwrap_or_default(),
            Self::At(starts) => {
                let begun = starts.partition_point(|start| *start <= time);
                u64::try_from(begun).unwrap_or_default()
            }
        }
    }

    /// Returns the begin of a window.
    pub(crate) fn start(&self, index: u64) -> u64 {
        match self {
            Self::Every(period) => index.saturating_mul(*period),
            Self::At(_) if index == 0 => 0,
            Self::At(starts) => {
                let before = usize::try_from(index.saturating_sub(1)).ok();
                before.and_then(|index| starts.get(index)).copied().unwrap_or(u64::MAX)
            }
        }
    }

    /// Returns the end of a window.
    pub(crate) fn end(&self, index: u64) -> u64 {
        self.start(index.saturating_add(1))
    }

    /// Returns the length of the longest of some windows.
    pub(crate) fn longest(&self, windows: RangeInclusive<u64>) -> u64 {
        if let Self::Every(period) = self {
            return *period;
        }
        let lengths = windows.map(|index| self.end(index).saturating_sub(self.start(index)));
        lengths.max().unwrap_or_default()
    }
}

fn starts(calendar: &Calendar, now: u64) -> Vec<u64> {
    let (start, mut end) = calendar.bounds(Timestamp::from_micros(now));
    let mut starts = vec![start.as_micros()];
    for _ in 0..LATER_WINDOWS {
        starts.push(end.as_micros());
        (_, end) = calendar.bounds(end);
    }
    starts
}
