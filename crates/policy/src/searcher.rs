//! Search for many patterns with `*` in one text, in one pass over it.
//!
//! An Aho-Corasick automaton finds the pieces of all patterns at once, in the order in which they
//! end. Each pattern waits for one piece at a time; the first occurrence that begins after its
//! previous piece advances it to the next. An occurrence that no pattern waits for costs one
//! comparison. So the time is linear in the text, times the number of pieces that can end at one
//! byte: pieces of which each is a suffix of the next, as `bot` is of `googlebot`.

use std::collections::HashMap;

use aho_corasick::automaton::OverlappingState;
use aho_corasick::{AhoCorasick, Input};
use smallvec::{SmallVec, smallvec};

use super::pattern::Pattern;

/// Marks the end of a list.
const NONE: u32 = u32::MAX;

/// Patterns, numbered in the order in which they are written.
#[derive(Debug)]
pub(super) struct Searcher {
    patterns: Box<[Pattern]>,
    /// For each pattern the numbers of its pieces between the first and the last `*`.
    middles: Box<[Box<[u32]>]>,
    /// Patterns without such pieces: exact texts, prefixes and suffixes.
    ends_only: Box<[u32]>,
    /// Patterns with such pieces, by the length of the text before the first `*`.
    by_first: Box<[(usize, u32)]>,
    pieces: usize,
    automaton: Option<AhoCorasick>,
}

/// The progress of a pattern in a text.
#[derive(Clone, Copy, Default)]
struct PatternProgress {
    /// Number of pieces found.
    stage: usize,
    /// Minimum offset of the next piece.
    from: usize,
    /// The next pattern in the queue of the same piece.
    next: u32,
}

/// Queues of the patterns that wait for each piece, sorted by the minimum offset of the piece.
struct Waiting {
    queues: SmallVec<[(u32, u32); 64]>,
    progress: SmallVec<[PatternProgress; 64]>,
    count: usize,
}

impl Searcher {
    /// Builds the search. Returns `None` if there are too many pieces for an automaton.
    pub(super) fn new(patterns: Vec<Pattern>) -> Option<Self> {
        let mut numbers = HashMap::new();
        let mut texts = Vec::new();
        let mut ends_only = Vec::new();
        let mut by_first = Vec::new();
        let mut middles = Vec::new();
        for (pattern, number) in patterns.iter().zip(0u32..) {
            let middle = pattern.middle().map(|piece| {
                *numbers.entry(piece.to_vec()).or_insert_with(|| {
                    texts.push(piece.to_vec());
                    u32::try_from(texts.len()).map_or(NONE, |count| count.saturating_sub(1))
                })
            });
            let middle: Box<[u32]> = middle.collect();
            if middle.is_empty() {
                ends_only.push(number);
            } else {
                by_first.push((pattern.first_length(), number));
            }
            middles.push(middle);
        }
        by_first.sort_unstable();
        let automaton = if texts.is_empty() { None } else { Some(AhoCorasick::new(&texts).ok()?) };
        Some(Self {
            patterns: patterns.into(),
            middles: middles.into(),
            ends_only: ends_only.into(),
            by_first: by_first.into(),
            pieces: texts.len(),
            automaton,
        })
    }

    /// Returns the first pattern that matches `text` and is `wanted`.
    pub(super) fn first(&self, text: &[u8], wanted: impl Fn(u32) -> bool) -> Option<u32> {
        let mut first = None;
        self.search(text, wanted, |number| {
            first = Some(number);
            number
        });
        first
    }

    /// Returns for each pattern whether it matches `text`.
    pub(super) fn all(&self, text: &[u8]) -> SmallVec<[bool; 64]> {
        let mut matches = smallvec![false; self.patterns.len()];
        self.search(
            text,
            |_| true,
            |number| {
                if let Some(is_match) = get_mut(&mut matches, number) {
                    *is_match = true;
                }
                NONE
            },
        );
        matches
    }

    /// Calls `found` for each pattern that matches. It returns the number from which on patterns no
    /// longer matter.
    fn search(&self, text: &[u8], wanted: impl Fn(u32) -> bool, mut found: impl FnMut(u32) -> u32) {
        let mut end = NONE;
        for number in &self.ends_only {
            let fits = *number < end && wanted(*number);
            if fits && get(&self.patterns, *number).is_some_and(|pattern| pattern.fits_ends(text)) {
                end = found(*number);
            }
        }
        let Some(automaton) = &self.automaton else { return };
        let mut starts = self.by_first.iter().peekable();
        let mut waiting = None;
        let mut state = OverlappingState::start();
        // Fails only if the configuration of the automaton does not allow this search, but it
        // does.
        while automaton.try_find_overlapping(Input::new(text), &mut state).is_ok()
            && let Some(piece) = state.get_match()
        {
            let waiting =
                waiting.get_or_insert_with(|| Waiting::new(self.pieces, self.patterns.len()));
            // Queued before the patterns that this piece advances, whose next piece may not begin
            // earlier.
            while let Some((from, number)) = starts.next_if(|(from, _)| *from <= piece.end()) {
                let fits = *number < end && wanted(*number);
                if fits
                    && get(&self.patterns, *number).is_some_and(|pattern| pattern.fits_ends(text))
                {
                    let progress = PatternProgress { from: *from, ..PatternProgress::default() };
                    waiting.push(self.piece(*number, 0), *number, progress);
                }
            }
            let id = piece.pattern().as_u32();
            while let Some((number, progress)) = waiting.pop(id, piece.start()) {
                let stage = progress.stage.saturating_add(1);
                let next = self.piece(number, stage);
                if number >= end {
                    continue;
                }
                if next.is_some() {
                    let progress = PatternProgress { stage, from: piece.end(), next: NONE };
                    waiting.push(next, number, progress);
                } else if get(&self.patterns, number)
                    .is_some_and(|pattern| pattern.ends_behind(text, piece.end()))
                {
                    end = found(number);
                }
            }
            if waiting.count == 0 && starts.peek().is_none() {
                return;
            }
        }
    }

    fn piece(&self, number: u32, stage: usize) -> Option<u32> {
        get(&self.middles, number)?.get(stage).copied()
    }
}

impl Waiting {
    fn new(pieces: usize, patterns: usize) -> Self {
        Self {
            queues: smallvec![(NONE, NONE); pieces],
            progress: smallvec![PatternProgress::default(); patterns],
            count: 0,
        }
    }

    fn push(&mut self, piece: Option<u32>, number: u32, progress: PatternProgress) {
        let Some((head, tail)) = piece.and_then(|piece| get_mut(&mut self.queues, piece)) else {
            return;
        };
        if let Some(last) = get_mut(&mut self.progress, *tail) {
            last.next = number;
        } else {
            *head = number;
        }
        *tail = number;
        if let Some(own) = get_mut(&mut self.progress, number) {
            *own = PatternProgress { next: NONE, ..progress };
        }
        self.count = self.count.saturating_add(1);
    }

    /// Removes a pattern that waits for a piece which may begin at `start`.
    fn pop(&mut self, piece: u32, start: usize) -> Option<(u32, PatternProgress)> {
        let (head, tail) = get_mut(&mut self.queues, piece)?;
        let number = *head;
        let progress = *get(&self.progress, number).filter(|progress| progress.from <= start)?;
        *head = progress.next;
        if progress.next == NONE {
            *tail = NONE;
        }
        self.count = self.count.saturating_sub(1);
        Some((number, progress))
    }
}

fn get<T>(items: &[T], number: u32) -> Option<&T> {
    items.get(usize::try_from(number).ok()?)
}

fn get_mut<T>(items: &mut [T], number: u32) -> Option<&mut T> {
    items.get_mut(usize::try_from(number).ok()?)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        #[test]
        fn patterns_match_together_as_each_does_alone(
            texts in prop::collection::vec("[ab*]{0,7}", 0..12),
            text in "[ab]{0,12}",
            unwanted in 0u32..12,
        ) {
            let patterns: Vec<Pattern> = texts.iter().map(|text| Pattern::new(text)).collect();
            let alone: Vec<bool> = patterns.iter().map(|pattern| pattern.matches(text.as_bytes())).collect();
            let searcher = Searcher::new(patterns).unwrap();
            prop_assert_eq!(searcher.all(text.as_bytes()).to_vec(), alone.clone());
            let first = (0u32..).zip(&alone).find(|(number, is_match)| **is_match && *number != unwanted);
            prop_assert_eq!(searcher.first(text.as_bytes(), |number| number != unwanted), first.map(|(number, _)| number));
        }
    }
}
