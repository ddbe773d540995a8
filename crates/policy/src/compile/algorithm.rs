//! Options by algorithm.
//!
//! An option that does not apply is an error if the rule sets it. It is ignored if it comes from
//! overlays or defaults, which are written for limits of many kinds.

use tollgate_core::algorithm::fixed_window::FixedWindow;
use tollgate_core::algorithm::gcra::Gcra;
use tollgate_core::algorithm::hold::Hold;
use tollgate_core::algorithm::quota::{QuotaError, Window};
use tollgate_core::algorithm::sliding_log::SlidingLog;
use tollgate_core::algorithm::sliding_window::{Estimate, SlidingWindow};
use tollgate_core::algorithm::{Algorithm, Charge, Limit, OnStoreError};
use tollgate_yaml::report::{Finding, Findings, Spanned};

use super::layers::{Layers, OptionValue};
use crate::document::written::{AlgorithmWord, Options};

/// Default number of buckets of a sliding window.
const DEFAULT_BUCKETS: u32 = 60;

/// A resolver of the options of one limit.
pub(super) struct OptionResolver<'w, 'r> {
    pub(super) layers: &'r Layers<'w>,
    pub(super) algorithm: AlgorithmWord,
    pub(super) findings: &'r mut Findings,
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
            let error = format!("`{word}` does not apply to {}", self.algorithm.word());
            let note = format!("it is an option of {}", names.join(" and "));
            self.findings.push(Finding::error(span, error).note(note));
        }
        None
    }

    /// Returns the parameters of the algorithm besides its windows.
    pub(super) fn parameters(&mut self) -> ParameterOptions<'w> {
        let rates = [AlgorithmWord::Gcra, AlgorithmWord::TokenBucket];
        let sliding = [AlgorithmWord::SlidingWindow];
        ParameterOptions {
            burst: self.only("burst", &rates, |options| &options.burst),
            max_debt: self.only("max_debt", &rates, |options| &options.max_debt),
            buckets: self.only("buckets", &sliding, |options| &options.buckets),
            estimate: self.only("estimate", &sliding, |options| &options.estimate),
        }
    }
}

/// The parameters of an algorithm besides its windows.
pub(super) struct ParameterOptions<'w> {
    pub(super) burst: Option<OptionValue<'w, u64>>,
    pub(super) max_debt: Option<OptionValue<'w, u64>>,
    pub(super) buckets: Option<OptionValue<'w, u64>>,
    pub(super) estimate: Option<OptionValue<'w, Estimate>>,
}

/// The options of a limit with windows.
pub(super) struct WindowOptions<'w> {
    pub(super) algorithm: AlgorithmWord,
    pub(super) parameters: ParameterOptions<'w>,
    pub(super) charge: Option<OptionValue<'w, Charge>>,
    /// The charge mode of a fixed window that sets none.
    pub(super) charge_of_windows: Charge,
    pub(super) on_store_error: OnStoreError,
    pub(super) hold: Option<Hold>,
}

impl WindowOptions<'_> {
    /// Creates the limit of these windows.
    pub(super) fn limit(&self, windows: Vec<Window>) -> Result<Limit, QuotaError> {
        let limit = Limit::new(self.algorithm(windows)?, self.charge(), self.on_store_error)?;
        Ok(if let Some(hold) = self.hold { limit.with_hold(hold) } else { limit })
    }

    fn algorithm(&self, windows: Vec<Window>) -> Result<Algorithm, QuotaError> {
        let ParameterOptions { burst, max_debt, buckets, estimate } = &self.parameters;
        match self.algorithm {
            AlgorithmWord::FixedWindow => FixedWindow::new(windows).map(Algorithm::FixedWindow),
            AlgorithmWord::SlidingWindow => {
                let buckets = buckets.map_or(DEFAULT_BUCKETS, narrow);
                // A limit with holds is exact.
                let estimate = estimate.filter(|estimate| estimate.own || self.hold.is_none());
                let estimate = estimate.map(|estimate| *estimate.value).unwrap_or_default();
                SlidingWindow::new(windows, buckets, estimate).map(Algorithm::SlidingWindow)
            }
            AlgorithmWord::SlidingLog => SlidingLog::new(windows).map(Algorithm::SlidingLog),
            AlgorithmWord::Gcra | AlgorithmWord::TokenBucket => {
                let [window] = <[Window; 1]>::try_from(windows)
                    .map_err(|windows| QuotaError::Windows { found: windows.len() })?;
                let max_debt = max_debt.map(|debt| *debt.value);
                Gcra::new(window, burst.map(narrow), max_debt).map(Algorithm::Gcra)
            }
            // Has no windows and is compiled by `permits`.
            AlgorithmWord::Concurrency => Err(QuotaError::Windows { found: windows.len() }),
        }
    }

    /// Returns the charge mode. A sliding log cannot be charged without a bound, and a limit with
    /// holds only when admitted. Defaults and overlays with such a mode are meant for other limits
    /// and ignored.
    fn charge(&self) -> Charge {
        if self.hold.is_some() {
            return Charge::Admitted;
        }
        let is_log = self.algorithm == AlgorithmWord::SlidingLog;
        let charge =
            self.charge.filter(|charge| charge.own || !is_log || charge.value.is_bounded());
        match charge {
            Some(charge) => *charge.value,
            None if self.algorithm == AlgorithmWord::FixedWindow => self.charge_of_windows,
            None => Charge::Admitted,
        }
    }
}

/// Returns an option as the smaller number that the vocabulary allows at most.
fn narrow(option: OptionValue<'_, u64>) -> u32 {
    u32::try_from(*option.value).unwrap_or(u32::MAX)
}
