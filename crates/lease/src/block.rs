//! A block of hits: charged in advance, admitted in memory, and closed once.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tollgate_core::algorithm::time::{Micros, Timestamp};
use tollgate_core::algorithm::{Limit, Receipt};

/// State of a closed block.
const CLOSED: u64 = u64::MAX;
/// Bits of the remaining hits in a state; the bits above them are the number of takes.
const LEFT_BITS: u32 = 32;
const MAX_LEFT: u64 = (1 << LEFT_BITS) - 1;
/// One less than fits, so that no open block has the state of a closed one.
const MAX_TAKES: u64 = MAX_LEFT - 1;

/// A block of leased hits. All its holders take hits from it; the task that leased it closes it at
/// its end.
#[derive(Debug)]
pub struct Block {
    /// Receipt of the whole charge.
    receipt: Receipt,
    sent: Instant,
    received: Instant,
    end: Instant,
    ends_with_window: bool,
    /// The instant from which no window counts its hits; `None` if only the store knows.
    gone: Option<Instant>,
    /// Remaining hits and the number of takes, in one number that a take replaces, or [`CLOSED`].
    state: AtomicU64,
}

impl Block {
    /// Creates a block of hits that were charged during a store call.
    ///
    /// The time for which hits may be admitted is measured from the start of the call, and the time
    /// for which a window may count them from its end, on this process's monotonic clock. It does
    /// not have to agree with the store's clock on the time, only on the length of intervals. (It
    /// does not advance while the machine is suspended.)
    pub fn new(limit: &Limit, receipt: Receipt, under_way: Range<Instant>, ttl: Micros) -> Self {
        // Hits charged to a grant are in no window.
        let windows = limit.windows_end_after(receipt.at).filter(|_| !receipt.of_grant);
        let Range { start: sent, end: received } = under_way;
        let life = windows.map_or(ttl, |(first, _)| first.min(ttl));
        Self {
            receipt,
            sent,
            received,
            end: sent.checked_add(life.into()).unwrap_or(sent),
            ends_with_window: windows.is_some_and(|(first, _)| first <= ttl),
            gone: windows.and_then(|(_, last)| received.checked_add(last.into())),
            state: AtomicU64::new(receipt.hits.min(MAX_LEFT)),
        }
    }

    /// Creates a block of hits that a service charged during a call, and lent to this process.
    ///
    /// As in [`new`](Self::new), its time is measured from the start of the call. Only the service
    /// knows its windows and the instant of the charge.
    pub fn lent(hits: u32, under_way: Range<Instant>, usable_for: Duration) -> Self {
        let Range { start: sent, end: received } = under_way;
        Self {
            receipt: Receipt { at: Timestamp::default(), hits: hits.into(), of_grant: false },
            sent,
            received,
            end: sent.checked_add(usable_for).unwrap_or(sent),
            ends_with_window: false,
            gone: None,
            state: AtomicU64::new(hits.into()),
        }
    }

    /// Takes hits if enough are left and the block has not ended.
    pub fn take(&self, hits: u64, now: Instant) -> bool {
        now < self.end
            && self.update(|left, takes| {
                Some((left.checked_sub(hits)?, takes.saturating_add(1).min(MAX_TAKES)))
            })
    }

    /// Puts hits back. Returns `false` if the block is closed, since its unused hits were returned
    /// without these.
    pub fn put_back(&self, hits: u64) -> bool {
        self.update(|left, takes| Some((left.saturating_add(hits).min(MAX_LEFT), takes)))
    }

    /// Replaces the remaining hits and the number of takes. Returns `false` if the block is closed
    /// or `change` returns `None`.
    fn update(&self, change: impl Fn(u64, u64) -> Option<(u64, u64)>) -> bool {
        self.state
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |state| {
                let (left, takes) = parts(state)?;
                change(left, takes).map(|(left, takes)| (takes << LEFT_BITS) | left)
            })
            .is_ok()
    }

    /// Returns the remaining hits and the number of takes; `None` if the block is closed.
    fn load(&self) -> Option<(u64, u64)> {
        parts(self.state.load(Ordering::Relaxed))
    }

    /// Closes the block and returns its unused hits, or 0 if it was closed already.
    pub fn close(&self) -> u64 {
        parts(self.state.swap(CLOSED, Ordering::Relaxed)).map_or(0, |(left, _)| left)
    }

    /// Returns the hits that can still be taken.
    pub fn left(&self, now: Instant) -> u64 {
        if now >= self.end { 0 } else { self.load().map_or(0, |(left, _)| left) }
    }

    /// Returns the hits that were taken, of a block that is not closed.
    pub fn used(&self) -> u64 {
        self.load().map_or(0, |(left, _)| self.hits().saturating_sub(left))
    }

    /// Returns how often hits were taken, of a block that is not closed.
    pub fn takes(&self) -> u32 {
        self.load().and_then(|(_, takes)| u32::try_from(takes).ok()).unwrap_or_default()
    }

    /// Returns the initial number of hits.
    pub fn hits(&self) -> u64 {
        self.receipt.hits
    }

    /// Returns a receipt for part of its hits.
    pub fn receipt(&self, hits: u64) -> Receipt {
        Receipt { hits, ..self.receipt }
    }

    /// Returns the arrival time of the store's reply.
    pub fn received(&self) -> Instant {
        self.received
    }

    /// Returns the end of the block.
    pub fn end(&self) -> Instant {
        self.end
    }

    /// Returns `true` if every window has ended that its hits could be returned to.
    pub fn is_gone(&self, now: Instant) -> bool {
        self.gone.is_some_and(|gone| now >= gone)
    }

    /// Returns `true` if it is time to lease the next block: at most a quarter is left of its hits
    /// or, unless its end is that of its window, of its lifetime.
    pub fn is_running_out(&self, now: Instant) -> bool {
        let is_low = self.left(now) <= self.hits() / 4;
        let quarter = self.end.saturating_duration_since(self.sent).div_f64(4.0);
        is_low || (!self.ends_with_window && self.end.saturating_duration_since(now) <= quarter)
    }
}

/// Returns the remaining hits and the number of takes of a state; `None` if it is [`CLOSED`].
fn parts(state: u64) -> Option<(u64, u64)> {
    (state != CLOSED).then_some((state & MAX_LEFT, state >> LEFT_BITS))
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "an overflow here is a test that fails")]
mod tests {
    use std::time::Duration;

    use tollgate_core::algorithm::fixed_window::FixedWindow;
    use tollgate_core::algorithm::gcra::Gcra;
    use tollgate_core::algorithm::quota::Window;
    use tollgate_core::algorithm::time::Timestamp;
    use tollgate_core::algorithm::{Algorithm, Charge, OnStoreError};

    use super::*;

    const MINUTE: u64 = 60_000_000;

    fn receipt(at: u64) -> Receipt {
        Receipt { at: Timestamp::from_micros(at), hits: 8, of_grant: false }
    }

    /// Returns a block of 8 hits, charged `after` microseconds past the start of a minute, and the
    /// time of the request. The reply arrives 10 microseconds after the request.
    fn block_of(minutes: &[u64], after: u64, ttl_us: u64) -> (Block, Instant) {
        let windows = minutes
            .iter()
            .map(|count| Window::new(100, Micros::new(count * MINUTE)).unwrap())
            .collect();
        let algorithm = Algorithm::FixedWindow(FixedWindow::new(windows).unwrap());
        let limit = Limit::new(algorithm, Charge::Admitted, OnStoreError::Error).unwrap();
        let receipt = receipt(5 * MINUTE + after);
        let sent = Instant::now();
        let under_way = sent..sent + Duration::from_micros(10);
        (Block::new(&limit, receipt, under_way, Micros::new(ttl_us)), sent)
    }

    fn block(after: u64, ttl_us: u64) -> (Block, Instant) {
        block_of(&[1], after, ttl_us)
    }

    #[test]
    fn a_block_gives_its_hits_until_its_end() {
        let (block, sent) = block(0, 100);
        let at = |us| sent + Duration::from_micros(us);
        assert!(block.take(5, at(0)));
        assert!(!block.take(4, at(0)));
        assert!(block.take(3, at(99)));
        assert_eq!((block.used(), block.takes()), (8, 2));
        assert!(block.put_back(3));
        assert_eq!((block.used(), block.takes()), (5, 2));
        assert!(!block.take(1, at(100)), "its end is the first instant at which it has ended");
        assert_eq!((block.left(at(99)), block.left(at(100))), (3, 0));
    }

    #[test]
    fn a_lent_block_is_usable_from_the_start_of_its_call() {
        let sent = Instant::now();
        let at = |us| sent + Duration::from_micros(us);
        let block = Block::lent(8, sent..at(60), Duration::from_micros(100));
        assert!(block.take(2, at(99)));
        assert!(!block.take(1, at(100)));
        assert_eq!([74, 75].map(|us| block.is_running_out(at(us))), [false, true]);
        assert_eq!((block.is_gone(at(1_000)), block.close()), (false, 6));
    }

    #[test]
    fn it_ends_with_its_window_where_that_is_sooner() {
        let (of_window, sent) = block(MINUTE - 100, 1_000);
        assert_eq!(
            (of_window.end() - sent, of_window.ends_with_window),
            (Duration::from_micros(100), true)
        );
        let (of_ttl, sent) = block(MINUTE - 1_000, 100);
        assert_eq!(
            (of_ttl.end() - sent, of_ttl.ends_with_window),
            (Duration::from_micros(100), false)
        );
    }

    #[test]
    fn its_hits_are_gone_when_the_last_window_that_counts_them_has_surely_ended() {
        // Measured from the reply, since they may have been charged just before it.
        for (minutes, last) in
            [([1].as_slice(), 110), (&[2, 1], 110), (&[7, 1, 3], 60_000_110), (&[1, 3], 110)]
        {
            let (block, sent) = block_of(minutes, MINUTE - 100, 1_000);
            assert_eq!(block.end() - sent, Duration::from_micros(100), "{minutes:?}");
            let is_gone = |us| block.is_gone(sent + Duration::from_micros(us));
            assert_eq!([is_gone(last - 1), is_gone(last)], [false, true], "{minutes:?}");
        }
        let minute = || Window::new(100, Micros::new(MINUTE)).unwrap();
        let rate = Algorithm::Gcra(Gcra::new(minute(), None, None).unwrap());
        let fixed = Algorithm::FixedWindow(FixedWindow::new(vec![minute()]).unwrap());
        for (algorithm, of_grant) in [(rate, false), (fixed, true)] {
            let limit = Limit::new(algorithm, Charge::Admitted, OnStoreError::Error).unwrap();
            let receipt = Receipt { of_grant, ..receipt(MINUTE - 1) };
            let now = Instant::now();
            let block = Block::new(&limit, receipt, now..now, Micros::from_secs(1));
            assert_eq!(block.end() - now, Duration::from_secs(1), "it is in no window");
            let later = now + Duration::from_secs(3_600);
            assert!(!block.is_gone(later), "that is for the store to say");
        }
    }

    #[test]
    fn remaining_hits_are_reported_once() {
        let (block, sent) = block(0, 100);
        assert!(block.take(5, sent));
        assert_eq!((block.close(), block.close()), (3, 0));
        assert!(!block.take(1, sent));
        assert!(!block.put_back(1));
        assert_eq!(block.receipt(3), Receipt { hits: 3, ..receipt(5 * MINUTE) });
    }

    #[test]
    fn no_number_of_takes_closes_a_block() {
        let (block, sent) = block(0, 100);
        block.state.store(((MAX_LEFT - 1) << LEFT_BITS) | MAX_LEFT, Ordering::Relaxed);
        assert!(block.take(0, sent));
        assert_eq!((block.takes(), block.close()), (u32::MAX - 1, MAX_LEFT));
    }

    #[test]
    fn the_next_is_wanted_before_it_is_empty_or_over() {
        let (few, sent) = block(0, 100);
        assert!(!few.is_running_out(sent));
        assert!(few.take(6, sent));
        assert!(few.is_running_out(sent));
        let (late, sent) = block(0, 100);
        assert!(!late.is_running_out(sent + Duration::from_micros(74)));
        assert!(late.is_running_out(sent + Duration::from_micros(75)));
        let (last, sent) = block(MINUTE - 100, 1_000);
        assert!(
            !last.is_running_out(sent + Duration::from_micros(99)),
            "after it comes another window"
        );
    }
}
