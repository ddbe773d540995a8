//! Options by algorithm.
//!
//! An option that does not apply is an error if the rule sets it. It is ignored if it comes from
//! overlays or defaults, which are written for limits of many kinds.

use tollgate_yaml::report::{Finding, Spanned};

use super::layers::{Layers, OptionValue};
use crate::document::written::{AlgorithmWord, Options};

/// A resolver of the options of one limit.
pub(super) struct OptionResolver<'w, 'r> {
    pub(super) layers: &'r Layers<'w>,
    pub(super) algorithm: AlgorithmWord,
    pub(super) report: &'r mut dyn FnMut(Finding),
}

impl AlgorithmWord {
    /// Returns `true` for GCRA, under either of its two names: it has a rate and a burst.
    pub(super) fn is_rate(self) -> bool {
        match self {
            Self::Gcra | Self::TokenBucket => true,
            Self::FixedWindow | Self::SlidingWindow | Self::SlidingLog | Self::Concurrency => false,
        }
    }
}

impl<'w> OptionResolver<'w, '_> {
    /// Returns an option that every algorithm has.
    pub(super) fn any<T>(
        &mut self,
        get: impl Fn(&'w Options) -> &'w Option<Spanned<T>>,
    ) -> Option<OptionValue<'w, T>> {
        self.layers.option(get)
    }

    /// Returns an option that only `algorithms` have. Reports an error if it is set for this rule
    /// and does not apply.
    pub(super) fn only<T>(
        &mut self,
        word: &str,
        algorithms: &[AlgorithmWord],
        get: impl Fn(&'w Options) -> &'w Option<Spanned<T>>,
    ) -> Option<OptionValue<'w, T>> {
        if algorithms.contains(&self.algorithm) {
            return self.any(get);
        }
        for span in self.layers.has_to_apply(get) {
            let names: Vec<_> = algorithms.iter().map(|algorithm| algorithm.word()).collect();
            let error = Finding::error(
                span,
                format!("`{word}` does not apply to {}", self.algorithm.word()),
            );
            (self.report)(error.note(format!("it is an option of {}", names.join(" and "))));
        }
        None
    }
}
