//! Patterns: the texts that rules compare with the keys and values of a request.

use memchr::memmem::Finder;

/// A text that a rule compares with, possibly with `*`.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    text: Box<[u8]>,
    /// The text split at each `*`; `None` if it has none.
    pieces: Option<Pieces>,
}

#[derive(Clone, Debug)]
struct Pieces {
    first: Box<[u8]>,
    middle: Box<[Finder<'static>]>,
    last: Box<[u8]>,
}

impl Pattern {
    pub(super) fn new(text: &str) -> Self {
        let mut parts: Vec<&[u8]> = text.split('*').map(str::as_bytes).collect();
        let last = parts.pop().unwrap_or_default().into();
        let pieces = (!parts.is_empty()).then(|| {
            let first = parts.remove(0).into();
            // `**` is equivalent to `*`.
            let middle = parts.into_iter().filter(|part| !part.is_empty());
            Pieces {
                first,
                middle: middle.map(|part| Finder::new(part).into_owned()).collect(),
                last,
            }
        });
        Self { text: text.as_bytes().into(), pieces }
    }

    pub(super) fn text(&self) -> &[u8] {
        &self.text
    }

    pub(super) fn is_wild(&self) -> bool {
        self.pieces.is_some()
    }

    /// Returns `true` if the pattern matches `text`. Each piece is matched at its first occurrence.
    /// This never misses a match, so no text causes backtracking.
    pub(super) fn matches(&self, text: &[u8]) -> bool {
        let Some(pieces) = &self.pieces else { return *self.text == *text };
        let rest =
            text.strip_prefix(&*pieces.first).and_then(|rest| rest.strip_suffix(&*pieces.last));
        let Some(mut rest) = rest else { return false };
        pieces.middle.iter().all(|piece| {
            let found = piece.find(rest);
            let after = found.and_then(|at| rest.get(at.saturating_add(piece.needle().len())..));
            rest = after.unwrap_or_default();
            after.is_some()
        })
    }

    /// Returns the pieces between the first `*` and the last, none of which is empty.
    pub(super) fn middle(&self) -> impl Iterator<Item = &[u8]> {
        self.pieces.iter().flat_map(|pieces| &pieces.middle).map(Finder::needle)
    }

    /// Returns the length of the text before the first `*`.
    pub(super) fn first_length(&self) -> usize {
        self.pieces.as_ref().map_or(self.text.len(), |pieces| pieces.first.len())
    }

    /// Returns `true` if `text` begins and ends as the pattern does; without a `*`, if it is equal.
    pub(super) fn fits_ends(&self, text: &[u8]) -> bool {
        let Some(pieces) = &self.pieces else { return *self.text == *text };
        text.strip_prefix(&*pieces.first).is_some_and(|rest| rest.ends_with(&pieces.last))
    }

    /// Returns `true` if the text after the last `*` fits into `text` from `at` on.
    pub(super) fn ends_behind(&self, text: &[u8], at: usize) -> bool {
        let last = self.pieces.as_ref().map_or(0, |pieces| pieces.last.len());
        text.len().saturating_sub(at) >= last
    }
}
