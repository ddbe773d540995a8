//! Compiler of a `rate_limit`: its windows and options.

use super::layers::{Layers, OptionValue};
use super::options::Chooser;
use super::units::{self, PeriodUnit};
use crate::algorithm::calendar::Calendar;
use crate::algorithm::fixed_window::FixedWindow;
use crate::algorithm::gcra::Gcra;
use crate::algorithm::quota::{QuotaError, Window};
use crate::algorithm::sliding_log::SlidingLog;
use crate::algorithm::sliding_window::{Estimate, SlidingWindow};
use crate::algorithm::{Algorithm, Charge, Limit};
use crate::policy::CompileOptions;
use crate::policy::document::written::{self, AlgorithmWord};
use crate::policy::report::{Finding, SourceSpan, Spanned, shown};
use crate::policy::rule::{Imposes, RuleLease};

/// Default number of buckets of a sliding window.
const DEFAULT_BUCKETS: u32 = 60;
/// Maximum number of entry keys that one limit may record.
const MAX_RECORD: usize = 8;
/// Granularity of override periods, in microseconds. They are whole seconds, so buckets that divide
/// one second divide any of them.
const OVERRIDE_GRAIN_US: u64 = 1_000_000;

/// A compiled limit with its options.
#[derive(Debug, Default)]
pub(super) struct Terms {
    pub(super) imposes: Imposes,
    /// Name of the algorithm as written; empty without a limit.
    pub(super) algorithm: &'static str,
    pub(super) inherits_override: bool,
    pub(super) name: Option<Box<str>>,
    pub(super) record: Box<[Box<[u8]>]>,
    pub(super) hashes_values: bool,
    pub(super) lease: Option<RuleLease>,
}

/// Compiles a limit. Reports the errors of an invalid one, which then imposes nothing.
pub(super) fn compile<'w>(
    limit: &'w written::WrittenLimit,
    layers: &Layers<'w>,
    options: &CompileOptions,
    report: &mut dyn FnMut(Finding),
) -> Terms {
    check_names(limit, report);
    let name = limit.name.as_ref().map(|name| name.value.as_str().into());
    if limit.unlimited.as_ref().is_some_and(|unlimited| unlimited.value) {
        check_unlimited(limit, layers, report);
        return Terms { imposes: Imposes::Unlimited, name, ..Terms::default() };
    }
    let algorithm = layers.said(|options| &options.algorithm);
    let algorithm = algorithm.map_or(AlgorithmWord::FixedWindow, |algorithm| *algorithm.value);
    let mut compiler = LimitCompiler { limit, options, chooser: Chooser { layers, algorithm, report } };
    if !limit.is_whole {
        compiler.check_words();
        return Terms::default();
    }
    let imposes =
        compiler.windows().and_then(|windows| compiler.limit(windows)).map_or(Imposes::Nothing, Imposes::Limit);
    Terms {
        inherits_override: compiler.inherits(&imposes),
        imposes,
        algorithm: algorithm.word(),
        name,
        record: compiler.record(),
        hashes_values: hashes_values(layers, options, compiler.chooser.report),
        lease: compiler.lease(),
    }
}

/// Returns `true` if values are hashed. Reports an error if there is no key for it.
pub(super) fn hashes_values(layers: &Layers<'_>, options: &CompileOptions, report: &mut dyn FnMut(Finding)) -> bool {
    let Some(said) = layers.said(|options| &options.hash_values).filter(|said| *said.value) else {
        return false;
    };
    if options.hash_key.is_none() {
        let error = Finding::error(said.span, "`hash_values` needs a key, and there is none");
        let way = "give --hash-key-file FILE or TOLLGATE_HASH_KEY, the same secret to all replicas";
        report(error.note(way).note("where a file is only checked, any text of 16 bytes will do"));
    }
    true
}

fn check_names(limit: &written::WrittenLimit, report: &mut dyn FnMut(Finding)) {
    let name = limit.name.as_ref().map(|name| &name.value);
    for replaced in limit.replaces.iter().filter(|replaced| Some(&replaced.value) == name) {
        report(Finding::error(replaced.span, format!("the limit `{}` replaces itself", shown(&replaced.value))));
    }
}

fn check_unlimited(limit: &written::WrittenLimit, layers: &Layers<'_>, report: &mut dyn FnMut(Finding)) {
    let single = &limit.single;
    if let Some(unit) = &single.unit {
        if units::unit(&unit.value).is_some() {
            report(Finding::error(unit.span, "a unit beside `unlimited: true`").note("take one of the two out"));
        } else {
            report(Finding::warning(unit.span, "`unit` has no effect beside `unlimited: true`"));
        }
    }
    if let Some(requests) = &single.requests_per_unit {
        report(Finding::warning(requests.span, "`requests_per_unit` has no effect beside `unlimited: true`"));
    }
    let windows = limit.windows.as_ref().map(|windows| ("windows", windows.span));
    for (word, span) in windows.into_iter().chain(layers.of_it_alone()) {
        report(Finding::error(span, format!("`{word}` has no effect beside `unlimited: true`")));
    }
}

/// A window, with the positions of its words.
struct PlacedWindow {
    window: Window,
    amount: SourceSpan,
    unit: SourceSpan,
}

struct LimitCompiler<'w, 'r> {
    limit: &'w written::WrittenLimit,
    options: &'r CompileOptions,
    chooser: Chooser<'w, 'r>,
}

impl<'w> LimitCompiler<'w, '_> {
    fn error(&mut self, span: SourceSpan, message: impl Into<String>, note: &str) {
        (self.chooser.report)(Finding::error(span, message).note(note));
    }

    /// Checks the units and the lease of a limit that could not be read in full.
    fn check_words(&mut self) {
        for amount in self.limit.windows.iter().flat_map(|windows| &windows.value).chain([&self.limit.single]) {
            if let Some(unit) = &amount.unit {
                self.unit_of(unit);
            }
        }
        self.lease();
    }

    /// Returns the amounts and periods, if all of them are valid.
    fn windows(&mut self) -> Option<Vec<PlacedWindow>> {
        let single = &self.limit.single;
        let (amounts, listed) = match &self.limit.windows {
            None => (std::slice::from_ref(single), false),
            Some(windows) => {
                self.check_list(windows)?;
                (windows.value.as_slice(), true)
            }
        };
        let units: Vec<_> = amounts.iter().map(|amount| self.unit(amount)).collect();
        let calendar = self.calendar(amounts, &units);
        let mut placed = Vec::with_capacity(amounts.len());
        for (amount, unit) in amounts.iter().zip(units) {
            placed.extend(self.window(amount, unit, calendar.as_ref(), listed));
        }
        (placed.len() == amounts.len()).then_some(placed)
    }

    fn check_list(&mut self, windows: &Spanned<Vec<written::WrittenWindow>>) -> Option<()> {
        let single = &self.limit.single;
        let beside = single.unit.as_ref().map(|unit| ("unit", unit.span));
        let beside = single.requests_per_unit.as_ref().map(|amount| ("requests_per_unit", amount.span)).or(beside);
        if let Some((word, span)) = beside {
            let error = Finding::error(span, format!("`{word}` beside `windows`"));
            let error = error.also(windows.span, "the windows").note("make it one of the windows, or take it out");
            (self.chooser.report)(error);
            return None;
        }
        if self.chooser.algorithm.is_rate() {
            let word = self.chooser.algorithm.word();
            let note =
                "windows are for fixed_window, sliding_window and sliding_log; here write requests_per_unit and unit";
            self.error(windows.span, format!("{word} has one rate and no `windows`"), note);
            return None;
        }
        Some(())
    }

    fn unit(&mut self, amount: &written::WrittenWindow) -> Option<PeriodUnit> {
        let Some(written) = &amount.unit else {
            self.error(amount.span, "`unit` is missing", units::ALLOWED);
            return None;
        };
        self.unit_of(written)
    }

    fn unit_of(&mut self, written: &Spanned<String>) -> Option<PeriodUnit> {
        let unit = units::unit(&written.value);
        if unit.is_none() {
            let error = Finding::error(written.span, format!("`{}` is not a unit", shown(&written.value)));
            let words = units::WORDS.iter().map(|(word, ..)| *word);
            (self.chooser.report)(error.suggest(&written.value, words).note(units::ALLOWED));
        }
        unit
    }

    fn window(
        &mut self,
        amount: &written::WrittenWindow,
        unit: Option<PeriodUnit>,
        zone: Option<&Spanned<String>>,
        listed: bool,
    ) -> Option<PlacedWindow> {
        let requests = amount.requests_per_unit.as_ref();
        if requests.is_none() && listed {
            self.error(amount.span, "`requests_per_unit` is missing", "each of the windows has one");
        } else if requests.is_none() && amount.unit.is_some() {
            let warning = Finding::warning(amount.span, "`requests_per_unit` is missing, which is a ban");
            (self.chooser.report)(warning.note("to ban on purpose, write `requests_per_unit: 0`"));
        }
        let unit = unit?;
        let unit_span = amount.unit.as_ref()?.span;
        let limit = u32::try_from(requests.map_or(0, |requests| requests.value)).ok()?;
        let placed = |window| PlacedWindow {
            window,
            amount: requests.map_or(unit_span, |requests| requests.span),
            unit: unit_span,
        };
        if let Some(zone) = zone
            && let Some(calendar) = unit.calendar
        {
            match Calendar::new(calendar, &zone.value) {
                Ok(calendar) => return Some(placed(Window::on_calendar(limit, calendar))),
                Err(error) => (self.chooser.report)(Finding::error(zone.span, error.to_string())),
            }
            return None;
        }
        match Window::new(limit, unit.period) {
            Ok(window) => Some(placed(window)),
            Err(error) => {
                (self.chooser.report)(Finding::error(unit_span, error.to_string()));
                None
            }
        }
    }

    /// Returns the time zone if the windows follow a calendar.
    fn calendar(
        &mut self,
        amounts: &[written::WrittenWindow],
        units: &[Option<PeriodUnit>],
    ) -> Option<Spanned<String>> {
        let fixed = [AlgorithmWord::FixedWindow];
        let switch = self.chooser.only("calendar", &fixed, |options| &options.calendar);
        let zone = self.chooser.only("time_zone", &fixed, |options| &options.time_zone);
        let on = switch.filter(|switch| *switch.value);
        if on.is_none()
            && let Some(OptionValue { own: true, span, .. }) = zone
        {
            self.error(span, "`time_zone` without a calendar", "write `calendar: true` beside it");
        }
        let on = on?;
        let mut fits = true;
        for (amount, unit) in amounts.iter().zip(units) {
            let Some(PeriodUnit { calendar: None, .. }) = unit else { continue };
            let Some(written) = &amount.unit else { continue };
            fits = false;
            if on.own {
                let message = format!("a calendar has no windows of `{}`", shown(&written.value));
                self.error(written.span, message, "with `calendar: true` a unit is day, week, month or year");
            }
        }
        let utc = || Spanned { value: "UTC".to_owned(), span: on.span };
        fits.then(|| zone.map_or_else(utc, |zone| Spanned { value: zone.value.clone(), span: zone.span }))
    }

    fn limit(&mut self, windows: Vec<PlacedWindow>) -> Option<Limit> {
        use AlgorithmWord::{Gcra as GcraWord, SlidingWindow as SlidingWord, TokenBucket};
        let rates = [GcraWord, TokenBucket];
        let burst = self.chooser.only("burst", &rates, |options| &options.burst);
        let max_debt = self.chooser.only("max_debt", &rates, |options| &options.max_debt);
        let buckets = self.chooser.only("buckets", &[SlidingWord], |options| &options.buckets);
        let estimate = self.chooser.only("estimate", &[SlidingWord], |options| &options.estimate);
        let charge = self.chooser.any(|options| &options.charge);
        let on_store_error = self.chooser.any(|options| &options.on_store_error).map(|said| *said.value);
        let made = windows.iter().map(|placed| placed.window.clone()).collect::<Vec<_>>();
        let narrow = |said: OptionValue<'_, u64>| u32::try_from(*said.value).unwrap_or(u32::MAX);
        let word = self.chooser.algorithm;
        let algorithm = match word {
            AlgorithmWord::FixedWindow => FixedWindow::new(made).map(Algorithm::FixedWindow),
            AlgorithmWord::SlidingWindow => {
                let estimate = estimate.map_or(Estimate::default(), |estimate| *estimate.value);
                SlidingWindow::new(made, buckets.map_or(DEFAULT_BUCKETS, narrow), estimate)
                    .map(Algorithm::SlidingWindow)
            }
            AlgorithmWord::SlidingLog => SlidingLog::new(made).map(Algorithm::SlidingLog),
            GcraWord | TokenBucket => {
                let window = made.into_iter().next()?;
                Gcra::new(window, burst.map(narrow), max_debt.map(|debt| *debt.value)).map(Algorithm::Gcra)
            }
        };
        // A sliding log cannot be charged without a bound. Defaults and overlays with such a mode
        // are meant for other limits and ignored.
        let usual = if word == AlgorithmWord::FixedWindow { self.options.window_charge() } else { Charge::Admitted };
        let bounded = |charge: &OptionValue<'_, Charge>| matches!(charge.value, Charge::Admitted | Charge::Blamed);
        let charge = charge.filter(|charge| charge.own || word != AlgorithmWord::SlidingLog || bounded(charge));
        let mode = charge.map_or(usual, |charge| *charge.value);
        let made = algorithm.and_then(|algorithm| Limit::new(algorithm, mode, on_store_error.unwrap_or_default()));
        let places = OptionPositions {
            burst: burst.map(|said| said.span),
            max_debt: max_debt.map(|said| said.span),
            buckets: buckets.map(|said| said.span),
            estimate: estimate.map(|said| said.span),
            charge: charge.map(|said| said.span),
        };
        made.map_err(|error| (self.chooser.report)(places.finding(&error, self.limit, &windows))).ok()
    }

    /// Returns `true` if `override: inherit` is set and can work. Reports an error if the rule
    /// itself sets it and it cannot.
    fn inherits(&mut self, imposes: &Imposes) -> bool {
        let Some(said) = self.chooser.any(|options| &options.inherit) else { return false };
        let Imposes::Limit(limit) = imposes else { return false };
        let reason = match limit.algorithm() {
            _ if limit.windows().len() > 1 => Some("a limit of several windows cannot take over one amount and period"),
            _ if limit.windows().iter().any(|window| window.calendar().is_some()) => {
                Some("a calendar's windows cannot take over a period")
            }
            Algorithm::SlidingLog(_) => Some("sliding_log is bounded in its amount, and an override is not"),
            Algorithm::SlidingWindow(window)
                if window.estimate() == Estimate::Weighted
                    && !OVERRIDE_GRAIN_US.is_multiple_of(u64::from(window.buckets())) =>
            {
                Some("with estimate: weighted, buckets must divide 1 s evenly for any override to work")
            }
            Algorithm::SlidingWindow(_) | Algorithm::FixedWindow(_) | Algorithm::Gcra(_) => None,
        };
        if said.own
            && let Some(reason) = reason
        {
            self.error(said.span, format!("`override: inherit` cannot work here: {reason}"), "take `override` out");
        }
        reason.is_none()
    }

    fn record(&mut self) -> Box<[Box<[u8]>]> {
        let keys = self.chooser.any(|options| &options.record);
        if let Some(keys) = keys.filter(|keys| keys.value.len() > MAX_RECORD) {
            let message = format!("`record` must name at most {MAX_RECORD} keys, found {}", keys.value.len());
            self.error(keys.span, message, "each is a table of its own beside every counter");
        }
        keys.into_iter().flat_map(|said| said.value).map(|key| key.as_bytes().into()).collect()
    }

    fn lease(&mut self) -> Option<RuleLease> {
        let written = self.chooser.any(|options| &options.lease)?.value;
        let size = written.size.as_ref()?;
        let ttl = written.ttl.as_ref()?;
        let good_size = units::lease_size(&size.value);
        if good_size.is_none() {
            let message = format!("`{}` is not a size", shown(&size.value));
            self.error(
                size.span,
                message,
                "a size is a part of the limit from 0.01% to 100%, or a number of hits from 1",
            );
        }
        let good_ttl = units::duration(&ttl.value).filter(|ttl| Window::new(1, *ttl).is_ok());
        if good_ttl.is_none() {
            let message = format!("`{}` is not a time that hits can be kept", shown(&ttl.value));
            self.error(
                ttl.span,
                message,
                "a ttl is a whole number of ms, s, m, h or d such as 100ms, from 1ms to 3650d",
            );
        }
        Some(RuleLease { size: good_size?, ttl: good_ttl? })
    }
}

/// Positions of the options of a limit.
struct OptionPositions {
    burst: Option<SourceSpan>,
    max_debt: Option<SourceSpan>,
    buckets: Option<SourceSpan>,
    estimate: Option<SourceSpan>,
    charge: Option<SourceSpan>,
}

impl OptionPositions {
    /// Returns the error at the word that has to change.
    fn finding(&self, error: &QuotaError, limit: &written::WrittenLimit, windows: &[PlacedWindow]) -> Finding {
        let unit_of = |found| windows.iter().find(|placed| placed.window.period() == found).map(|placed| placed.unit);
        let span = match error {
            QuotaError::Period { found } => unit_of(*found),
            QuotaError::Windows { .. } => limit.windows.as_ref().map(|windows| windows.span),
            QuotaError::Buckets { .. } => self.buckets,
            QuotaError::BucketWidth { period, .. } => self.buckets.or_else(|| unit_of(*period)),
            QuotaError::UnevenBuckets { .. } => self.buckets.or(self.estimate),
            QuotaError::LogLimit { found } => {
                windows.iter().find(|placed| placed.window.limit() == *found).map(|placed| placed.amount)
            }
            QuotaError::LogCharge { .. } => self.charge,
            QuotaError::NoBurst => self.burst,
            QuotaError::BurstTooSlow { period, .. } => self.burst.or_else(|| unit_of(*period)),
            QuotaError::Debt { .. } => self.max_debt,
        };
        Finding::error(span.unwrap_or(limit.span), error.to_string())
    }
}
