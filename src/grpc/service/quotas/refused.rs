//! Answers to buckets beyond the bounds, of which a stream keeps nothing.
//!
//! A report with requests is answered each time, since nothing is kept of what the proxy has. If a
//! response has no room for all of them, the next one begins with the first that was left out:
//! assignments outlast a number of reports, so many buckets have one although few get it at once.

use std::mem;

use crate::http2::{CallAccount, CallHold};

/// Maximum bytes of the answers to a message, and of those that need no room in the account.
const MAX_BYTES: usize = 64 << 10;
const MIN_BYTES: usize = 2 << 10;
/// Memory of an answer in bytes, besides its encoding.
const ANSWER_COST: usize = 64;

/// The answers to one message, each an encoded action.
#[derive(Debug, Default)]
pub(super) struct RefusedAnswers {
    /// Answers to the buckets from `first` on, and to those before it.
    late: AnswerPart,
    early: AnswerPart,
    /// Number of refused buckets in the message.
    seen: usize,
    /// The bucket that is answered first.
    first: usize,
    max: usize,
    _hold: Option<CallHold>,
}

/// Answers with the numbers of their buckets.
#[derive(Debug, Default)]
struct AnswerPart {
    answers: Vec<(usize, Vec<u8>)>,
    bytes: usize,
}

impl AnswerPart {
    fn add(&mut self, number: usize, answer: Vec<u8>, max: usize) {
        let cost = answer.len() + ANSWER_COST;
        if cost > max {
            return;
        }
        self.bytes = self.bytes.saturating_add(cost);
        if self.bytes <= max {
            self.answers.push((number, answer));
        }
    }
}

impl RefusedAnswers {
    /// Begins the answers to a message.
    pub(super) fn begin(&mut self) {
        *self = Self { first: self.first, ..Self::default() };
    }

    /// Adds the answer to the next refused bucket; `None` if it cannot be answered.
    pub(super) fn add(&mut self, answer: Option<Vec<u8>>, account: &CallAccount) {
        if self.max == 0 {
            self._hold = account.keep(MAX_BYTES).ok();
            self.max = if self._hold.is_some() { MAX_BYTES } else { MIN_BYTES };
        }
        let number = self.seen;
        self.seen += 1;
        let part = if number < self.first { &mut self.early } else { &mut self.late };
        if let Some(answer) = answer {
            part.add(number, answer, self.max / 2);
        }
    }

    /// Takes the answers that find room, concatenated.
    pub(super) fn take(&mut self, room: usize) -> Vec<u8> {
        let [late, early] = [mem::take(&mut self.late), mem::take(&mut self.early)];
        let half = self.max / 2;
        let mut is_cut = late.bytes > half;
        // After a late one that is left out, an early one would take the turn of that.
        let early = if is_cut { AnswerPart::default() } else { early };
        is_cut |= early.bytes > half;
        let mut taken = Vec::new();
        let mut next = self.first;
        for (number, answer) in late.answers.into_iter().chain(early.answers) {
            if taken.len() + answer.len() > room {
                is_cut = true;
                // One that never finds room does not keep the others from their turn.
                next = if taken.is_empty() { number + 1 } else { next };
                break;
            }
            taken.extend_from_slice(&answer);
            next = number + 1;
        }
        if is_cut {
            self.first = next;
        }
        (self.max, self._hold) = (0, None);
        taken
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::http2::Budget;

    /// Returns the numbers of the buckets that are answered, of so many.
    fn answered(answers: &mut RefusedAnswers, count: u8, room: usize) -> Vec<u8> {
        let budget = Arc::new(Budget::new(1 << 20));
        let account = CallAccount::new(Arc::clone(&budget));
        answers.begin();
        (0..count).for_each(|number| answers.add(Some(vec![number; 10]), &account));
        let taken = answers.take(room);
        assert_eq!(budget.used(), 0);
        taken.chunks(10).map(|answer| answer[0]).collect()
    }

    #[test]
    fn buckets_that_find_no_room_are_first_in_the_next_response() {
        let mut answers = RefusedAnswers::default();
        assert_eq!(answered(&mut answers, 3, 100), [0, 1, 2]);
        assert_eq!(answered(&mut answers, 5, 25), [0, 1]);
        // A message with one bucket does not take the turn of the others.
        assert_eq!(answered(&mut answers, 1, 25), [0]);
        assert_eq!(answered(&mut answers, 5, 25), [2, 3]);
        assert_eq!(answered(&mut answers, 5, 25), [4, 0]);
        assert!(answered(&mut answers, 5, 5).is_empty(), "none finds room");
        assert_eq!(answered(&mut answers, 5, 100), [2, 3, 4, 0, 1]);
    }

    #[test]
    fn the_bytes_of_a_message_are_bounded_and_fewer_without_a_budget() {
        for (size, at_once, times) in [(1 << 20, 90, 6), (1 << 10, 2, 0)] {
            let budget = Arc::new(Budget::new(size));
            let account = CallAccount::new(Arc::clone(&budget));
            let mut answers = RefusedAnswers::default();
            let mut seen = [0; 250];
            for _ in 0..20 {
                answers.begin();
                answers.add(Some(vec![0; MAX_BYTES]), &account);
                (0..250).for_each(|number| answers.add(Some(vec![number; 300]), &account));
                assert_eq!(budget.used(), if size > MAX_BYTES { MAX_BYTES } else { 0 });
                let taken = answers.take(1 << 20);
                assert!(taken.len() <= 2 * at_once * 300, "{}", taken.len());
                taken.chunks(300).for_each(|answer| seen[usize::from(answer[0])] += 1);
            }
            assert!(seen.iter().all(|found| *found >= times), "{seen:?}");
            assert!(seen.iter().sum::<usize>() >= 20 * at_once, "{seen:?}");
        }
    }
}
