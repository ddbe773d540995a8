//! The loans of one bucket in the hands of one proxy: which hits it has admitted, and which can be
//! given back.
//!
//! A proxy has one loan at a time: the next one replaces the rest of the one before. A loan is over
//! once its time and the guard have passed, or the guard after the next one was sent. It is
//! *settled* when a report has come that was certainly written after that: one that arrived after
//! the acknowledgement of a PING which was sent after that.
//!
//! Reports have sums only, so hits are not attributed to loans. Within one window, what comes back
//! is what was lent, less everything reported since the first loan of the window, less loans that
//! are not settled: too little rather than too much. It is taken from the oldest receipts, whose
//! hits leave the counter first.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::after;
use crate::algorithm::Receipt;
use crate::algorithm::time::Timestamp;

/// Maximum number of settled loans whose receipts are kept.
const MAX_SETTLED: usize = 8;

/// The loans of a bucket.
#[derive(Debug, Default)]
pub(super) struct LoanLedger {
    /// Oldest first.
    loans: VecDeque<HeldLoan>,
    /// End of the window of the latest loan; `None` for limits without windows.
    window: Option<Timestamp>,
    /// Hits lent in that window, reported since, and given back or given up.
    lent: u64,
    used: u64,
    returned: u64,
    /// Hits of loans that are over, not admitted and not given back, to be counted.
    stranded: u64,
}

#[derive(Clone, Copy, Debug)]
struct HeldLoan {
    receipt: Receipt,
    window: Option<Timestamp>,
    /// Instant at which no proxy admits its hits any more.
    over_at: Instant,
    /// Hits that may still be reported as admitted.
    open: u64,
    /// Hits that can still be given back.
    returnable: u64,
    is_settled: bool,
    /// `true` if it is of another counter.
    is_forfeited: bool,
}

/// The effect of a report on the loans of a bucket.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Settlement {
    /// Hits that were admitted beyond all loans.
    pub(super) overrun: u64,
    /// Hits that were admitted of loans of another counter.
    pub(super) forfeited: u64,
    /// Hits to give back.
    pub(super) returns: Vec<Receipt>,
}

impl LoanLedger {
    /// Records a loan that was sent at `now` for `ttl`, in the window that ends at `window`.
    pub(super) fn lend(
        &mut self,
        receipt: Receipt,
        window: Option<Timestamp>,
        ttl: Duration,
        now: Instant,
        guard: Duration,
    ) {
        let replaced = after(now, guard);
        for loan in &mut self.loans {
            loan.over_at = loan.over_at.min(replaced);
        }
        if window != self.window {
            self.strand();
            (self.window, self.lent, self.used, self.returned) = (window, 0, 0, 0);
        }
        self.lent += receipt.hits;
        self.loans.push_back(HeldLoan {
            receipt,
            window,
            over_at: after(now, ttl.saturating_add(guard)),
            open: receipt.hits,
            returnable: receipt.hits,
            is_settled: false,
            is_forfeited: false,
        });
    }

    /// Returns the hits that may still be reported as admitted.
    pub(super) fn open(&self) -> u64 {
        self.loans.iter().map(|loan| loan.open).sum()
    }

    /// Records a report. It has all hits that were admitted before `covered`.
    pub(super) fn report(&mut self, allowed: u64, covered: Option<Instant>) -> Settlement {
        let mut left = allowed;
        let mut forfeited = 0;
        for loan in &mut self.loans {
            let taken = left.min(loan.open);
            loan.open -= taken;
            left -= taken;
            forfeited += if loan.is_forfeited { taken } else { 0 };
        }
        self.used += allowed - left;
        for loan in &mut self.loans {
            if covered.is_some_and(|covered| loan.over_at <= covered) {
                loan.is_settled = true;
                loan.open = 0;
            }
        }
        let returns = self.give_back();
        self.forget();
        Settlement { overrun: left, forfeited, returns }
    }

    /// Returns the hits that no proxy has admitted or can still admit, oldest first.
    fn give_back(&mut self) -> Vec<Receipt> {
        let window = self.window;
        let pending = self.loans.iter().filter(|loan| loan.window == window && !loan.is_settled);
        let pending: u64 = pending.map(|loan| loan.receipt.hits).sum();
        let mut left = self.lent.saturating_sub(self.used + self.returned + pending);
        let mut returns = Vec::new();
        for loan in self.loans.iter_mut().filter(|loan| loan.window == window && loan.is_settled) {
            let hits = left.min(loan.returnable);
            if hits > 0 {
                loan.returnable -= hits;
                left -= hits;
                self.returned += hits;
                returns.push(Receipt { hits, ..loan.receipt });
            }
        }
        returns
    }

    /// Forgets settled loans of which nothing can come back, and the oldest of too many others.
    /// Nothing is left to come back of these: all that was is taken from them by now, and what
    /// later loans leave unused is taken from their own receipts.
    fn forget(&mut self) {
        let window = self.window;
        self.loans.retain(|loan| {
            let is_returnable = loan.window == window && loan.returnable > 0;
            !loan.is_settled || is_returnable
        });
        let settled = self.loans.iter().filter(|loan| loan.is_settled).count();
        // Loans settle in the order in which they were lent.
        self.loans.drain(..settled.saturating_sub(MAX_SETTLED));
    }

    /// Returns `true` if a loan is over that a report settles once an acknowledgement covers it.
    pub(super) fn awaits_ping(&self, covered: Option<Instant>, now: Instant) -> bool {
        self.loans.iter().any(|loan| {
            let is_covered = covered.is_some_and(|covered| loan.over_at <= covered);
            !loan.is_settled && loan.over_at <= now && !is_covered
        })
    }

    /// Returns `true` if no loan can still be admitted or given back.
    pub(super) fn is_settled(&self) -> bool {
        self.loans.iter().all(|loan| loan.is_settled)
    }

    /// Gives up all returns: the counter is another one from now on. What a proxy still admits of
    /// the loans is no overrun.
    pub(super) fn forfeit(&mut self) {
        self.strand();
        (self.lent, self.used, self.returned) = (0, 0, 0);
        for loan in &mut self.loans {
            (loan.returnable, loan.is_forfeited) = (0, true);
        }
    }

    /// Counts hits that could be given back, and are not.
    pub(super) fn keep_charged(&mut self, returns: Vec<Receipt>) {
        self.stranded += returns.iter().map(|receipt| receipt.hits).sum::<u64>();
    }

    /// Takes the number of hits that stay charged although no proxy can admit them any more.
    pub(super) fn take_stranded(&mut self) -> u64 {
        std::mem::take(&mut self.stranded)
    }

    /// Counts the hits of the window that did not come back.
    fn strand(&mut self) {
        self.stranded += self.lent.saturating_sub(self.used + self.returned);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GUARD: Duration = Duration::from_secs(2);
    const TTL: Duration = Duration::from_secs(15);

    /// A ledger with a clock of whole seconds.
    struct LedgerFixture {
        ledger: LoanLedger,
        start: Instant,
    }

    impl LedgerFixture {
        fn new() -> Self {
            Self { ledger: LoanLedger::default(), start: Instant::now() }
        }

        fn lend(&mut self, hits: u64, window: u64, second: u64) {
            let receipt = Receipt { at: Timestamp::from_micros(second), hits, of_grant: false };
            let window = Some(Timestamp::from_micros(window));
            let now = after(self.start, Duration::from_secs(second));
            self.ledger.lend(receipt, window, TTL, now, GUARD);
        }

        /// Reports hits, and returns the overrun and the hits of each receipt that come back.
        fn report(&mut self, allowed: u64, covered: u64) -> (u64, Vec<u64>) {
            let covered = after(self.start, Duration::from_secs(covered));
            let Settlement { overrun, returns, .. } = self.ledger.report(allowed, Some(covered));
            (overrun, returns.iter().map(|receipt| receipt.hits).collect())
        }
    }

    #[test]
    fn hits_come_back_from_the_oldest_loans() {
        let mut test = LedgerFixture::new();
        test.lend(100, 1, 0);
        test.lend(50, 1, 5);
        // The first is over the guard after the second was sent; that is over after 22 s.
        assert_eq!(test.report(30, 6), (0, vec![]));
        assert_eq!(test.report(0, 22), (0, vec![100, 20]));
        assert_eq!(test.ledger.loans.len(), 1, "of which hits may come back");
        assert_eq!(test.ledger.take_stranded(), 0);
    }

    #[test]
    fn hits_that_were_used_do_not_come_back_and_an_overrun_uses_none() {
        let mut test = LedgerFixture::new();
        test.lend(100, 1, 0);
        assert_eq!(test.report(130, 17), (30, vec![]));
        test.lend(50, 1, 20);
        assert_eq!(test.report(0, 40), (0, vec![50]));
    }

    #[test]
    fn hits_that_did_not_come_back_by_the_end_of_their_window_are_stranded() {
        let mut test = LedgerFixture::new();
        test.lend(100, 1, 0);
        assert_eq!(test.report(30, 17), (0, vec![70]));
        test.lend(50, 1, 20);
        test.lend(50, 2, 25);
        assert_eq!(test.ledger.take_stranded(), 50);
        assert_eq!(test.report(0, 50), (0, vec![50]), "of the second window");
        assert_eq!(test.ledger.loans.len(), 0);
    }

    #[test]
    fn unused_hits_come_back_after_any_number_of_loans_that_were_used() {
        let mut test = LedgerFixture::new();
        for number in 0..40 {
            test.lend(10, 1, 5 * number);
            assert_eq!(test.report(10, 5 * number), (0, vec![]));
            assert!(test.ledger.loans.len() <= MAX_SETTLED + 2);
        }
        assert!(test.ledger.loans.len() >= MAX_SETTLED);
        test.lend(7, 1, 200);
        let (overrun, returns) = test.report(0, 300);
        assert_eq!((overrun, returns.iter().sum()), (0, 7_u64));
        assert_eq!(test.ledger.take_stranded(), 0);
    }
}
