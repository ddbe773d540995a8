//! A block of hits: charged already, admitted one by one, and closed once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::algorithm::time::Micros;
use crate::algorithm::{Limit, Receipt};

/// What stands in the place of a count of hits once a block is closed.
const CLOSED: u64 = u64::MAX;

/// A block. Whoever has it admits from it; the one who took it closes it when it ends.
#[derive(Debug)]
pub(super) struct Block {
    /// Its charge, whole.
    receipt: Receipt,
    asked: Instant,
    end: Instant,
    ends_with_window: bool,
    /// Hits that are left, or [`CLOSED`].
    left: AtomicU64,
}

impl Block {
    /// A block of hits that were asked for at `asked` and charged some time later.
    ///
    /// How long hits may be kept is counted from the earlier of the two, on this process's own steady clock: it does not have to
    /// agree with the store's about what time it is, only about how long a moment lasts. (It stands still while a machine sleeps.)
    pub(super) fn new(limit: &Limit, receipt: Receipt, asked: Instant, ttl: Micros) -> Self {
        // Hits of a grant were charged in no window.
        let window = limit.ends_after(receipt.at).filter(|_| !receipt.of_grant);
        let life = Duration::from(window.map_or(ttl, |window| window.min(ttl)));
        let ends_with_window = window.is_some_and(|window| window <= ttl);
        let end = asked.checked_add(life).unwrap_or(asked);
        Self { receipt, asked, end, ends_with_window, left: AtomicU64::new(receipt.hits) }
    }

    /// Takes hits, where there are so many and it has not ended.
    pub(super) fn take(&self, hits: u64, now: Instant) -> bool {
        let less = |left: u64| if left == CLOSED { None } else { left.checked_sub(hits) };
        now < self.end && self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    /// Puts hits back; not where it is closed, which was told without them.
    pub(super) fn put_back(&self, hits: u64) -> bool {
        let more = |left: u64| (left != CLOSED).then(|| left.saturating_add(hits));
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Ends it and says what was not used; nothing the second time.
    pub(super) fn close(&self) -> u64 {
        let left = self.left.swap(CLOSED, Ordering::Relaxed);
        if left == CLOSED { 0 } else { left }
    }

    /// Hits that may still be taken.
    pub(super) fn left(&self, now: Instant) -> u64 {
        let left = self.left.load(Ordering::Relaxed);
        if left == CLOSED || now >= self.end { 0 } else { left }
    }

    /// Hits at the beginning.
    pub(super) fn hits(&self) -> u64 {
        self.receipt.hits
    }

    /// The receipt of so many of its hits.
    pub(super) fn receipt(&self, hits: u64) -> Receipt {
        Receipt { hits, ..self.receipt }
    }

    /// When it was asked for.
    pub(super) fn asked(&self) -> Instant {
        self.asked
    }

    /// When it ends.
    pub(super) fn end(&self) -> Instant {
        self.end
    }

    /// Whether hits that are left go with their window: there is nothing to give them back to.
    pub(super) fn ends_with_window(&self) -> bool {
        self.ends_with_window
    }

    /// Whether the next one is wanted: a quarter is left, of its hits, or of a life after which there is another one.
    pub(super) fn is_running_out(&self, now: Instant) -> bool {
        let is_low = self.left(now) <= self.hits() / 4;
        let quarter = self.end.saturating_duration_since(self.asked).div_f64(4.0);
        is_low || (!self.ends_with_window && self.end.saturating_duration_since(now) <= quarter)
    }
}

#[cfg(test)]
#[allow(clippy::arithmetic_side_effects, reason = "an overflow here is a test that fails")]
mod tests {
    use super::*;
    use crate::algorithm::fixed_window::FixedWindow;
    use crate::algorithm::quota::Window;
    use crate::algorithm::time::Timestamp;
    use crate::algorithm::{Algorithm, Charge, OnStoreError};

    const MINUTE: u64 = 60_000_000;

    fn receipt(at: u64) -> Receipt {
        Receipt { at: Timestamp::from_micros(at), hits: 8, of_grant: false }
    }

    /// A block of 8 hits of a minute, charged so many microseconds after its beginning.
    fn block(after: u64, ttl_us: u64) -> (Block, Instant) {
        let window = Window::new(100, Micros::new(MINUTE)).unwrap();
        let algorithm = Algorithm::FixedWindow(FixedWindow::new(vec![window]).unwrap());
        let limit = Limit::new(algorithm, Charge::Admitted, OnStoreError::Error).unwrap();
        let (receipt, asked) = (receipt(5 * MINUTE + after), Instant::now());
        (Block::new(&limit, receipt, asked, Micros::new(ttl_us)), asked)
    }

    #[test]
    fn it_gives_what_it_has_until_its_end() {
        let (block, asked) = block(0, 100);
        let at = |us| asked + Duration::from_micros(us);
        assert!(block.take(5, at(0)));
        assert!(!block.take(4, at(0)));
        assert!(block.take(3, at(99)));
        assert!(block.put_back(3));
        assert!(!block.take(1, at(100)), "its end is the first instant at which it has ended");
        assert_eq!((block.left(at(99)), block.left(at(100))), (3, 0));
    }

    #[test]
    fn it_ends_with_its_window_where_that_is_sooner() {
        let (of_window, asked) = block(MINUTE - 100, 1_000);
        assert_eq!((of_window.end() - asked, of_window.ends_with_window()), (Duration::from_micros(100), true));
        let (of_ttl, asked) = block(MINUTE - 1_000, 100);
        assert_eq!((of_ttl.end() - asked, of_ttl.ends_with_window()), (Duration::from_micros(100), false));
    }

    #[test]
    fn what_is_left_is_told_once() {
        let (block, asked) = block(0, 100);
        assert!(block.take(5, asked));
        assert_eq!((block.close(), block.close()), (3, 0));
        assert!(!block.take(1, asked));
        assert!(!block.put_back(1));
        assert_eq!(block.receipt(3).hits, 3);
    }

    #[test]
    fn the_next_is_wanted_before_it_is_empty_or_over() {
        let (few, asked) = block(0, 100);
        assert!(!few.is_running_out(asked));
        assert!(few.take(6, asked));
        assert!(few.is_running_out(asked));
        let (late, asked) = block(0, 100);
        assert!(!late.is_running_out(asked + Duration::from_micros(74)));
        assert!(late.is_running_out(asked + Duration::from_micros(75)));
        let (last, asked) = block(MINUTE - 100, 1_000);
        assert!(!last.is_running_out(asked + Duration::from_micros(99)), "after it comes another window");
    }
}
