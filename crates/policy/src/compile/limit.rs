//! Compiler of a `rate_limit`: its windows and options.

mod compiled;
mod extras;

pub(super) use self::compiled::CompiledLimit;

use tollgate_core::algorithm::calendar::Calendar;
use tollgate_core::algorithm::fixed_window::FixedWindow;
use tollgate_core::algorithm::gcra::Gcra;
use tollgate_core::algorithm::quota::Window;
use tollgate_core::algorithm::sliding_log::SlidingLog;
use tollgate_core::algorithm::sliding_window::{Estimate, SlidingWindow};
use tollgate_core::algorithm::{Algorithm, Charge, Limit};
use tollgate_yaml::report::{Finding, SourceSpan, Spanned, shown};

use super::layers::{Layers, OptionValue};
use super::options::OptionResolver;
use super::positions::{OptionPositions, PlacedWindow};
use super::units::{self, PeriodUnit};
use crate::CompileOptions;
use crate::document::written::{self, AlgorithmWord};
use crate::rule::Imposes;

/// Default number of buckets of a sliding window.
const DEFAULT_BUCKETS: u32 = 60;

/// Compiles a limit. Reports the errors of an invalid one, which then imposes nothing.
pub(super) fn compile<'w>(
    limit: &'w written::WrittenLimit,
    layers: &Layers<'w>,
    options: &CompileOptions,
    report: &mut dyn FnMut(Finding),
) -> CompiledLimit {
    check_names(limit, report);
    let name = limit.name.as_ref().map(|name| name.value.as_str().into());
    if limit.unlimited.as_ref().is_some_and(|unlimited| unlimited.value) {
        check_unlimited(limit, layers, report);
        return CompiledLimit::without_options(Imposes::Unlimited, name);
    }
    let algorithm = layers.option(|options| &options.algorithm);
    let algorithm = algorithm.map_or(AlgorithmWord::FixedWindow, |algorithm| *algorithm.value);
    let mut compiler =
        LimitCompiler { limit, options, resolver: OptionResolver { layers, algorithm, report } };
    if !limit.is_whole {
        compiler.check_words();
        return CompiledLimit::without_options(Imposes::Nothing, None);
    }
    let limit = match algorithm {
        AlgorithmWord::Concurrency => compiler.slots(),
        AlgorithmWord::FixedWindow
        | AlgorithmWord::SlidingWindow
        | AlgorithmWord::SlidingLog
        | AlgorithmWord::Gcra
        | AlgorithmWord::TokenBucket => {
            compiler.no_slots();
            compiler.windows().and_then(|windows| compiler.limit(windows))
        }
    };
    let imposes = limit.map_or(Imposes::Nothing, Imposes::Limit);
    CompiledLimit {
        inherits_override: compiler.inherits(&imposes),
        imposes,
        algorithm: algorithm.word(),
        name,
        record: compiler.record(),
        hashes_values: hashes_values(layers, options, compiler.resolver.report),
        lease: compiler.lease(),
    }
}

/// Returns `true` if values are hashed. Reports an error if there is no key for it.
pub(super) fn hashes_values(
    layers: &Layers<'_>,
    options: &CompileOptions,
    report: &mut dyn FnMut(Finding),
) -> bool {
    let Some(option) = layers.option(|options| &options.hash_values).filter(|option| *option.value)
    else {
        return false;
    };
    if options.hash_key.is_none() {
        let error = Finding::error(
            option.span,
            "`hash_values` requires a hash key, but none is configured",
        );
        let way =
            "set --hash-key-file FILE or TOLLGATE_HASH_KEY, to the same secret on all replicas";
        report(error.note(way).note("to only validate a policy, use any text of 16 bytes"));
    }
    true
}

fn check_names(limit: &written::WrittenLimit, report: &mut dyn FnMut(Finding)) {
    let name = limit.name.as_ref().map(|name| &name.value);
    for replaced in limit.replaces.iter().filter(|replaced| Some(&replaced.value) == name) {
        report(Finding::error(
            replaced.span,
            format!("limit `{}` replaces itself", shown(&replaced.value)),
        ));
    }
}

fn check_unlimited(
    limit: &written::WrittenLimit,
    layers: &Layers<'_>,
    report: &mut dyn FnMut(Finding),
) {
    let single = &limit.single;
    if let Some(unit) = &single.unit {
        if units::unit(&unit.value).is_some() {
            report(
                Finding::error(unit.span, "`unit` and `unlimited: true` cannot be combined")
                    .note("remove one of them"),
            );
        } else {
            report(Finding::warning(unit.span, "`unit` has no effect with `unlimited: true`"));
        }
    }
    if let Some(requests) = &single.requests_per_unit {
        report(Finding::warning(
            requests.span,
            "`requests_per_unit` has no effect with `unlimited: true`",
        ));
    }
    let windows = limit.windows.as_ref().map(|windows| ("windows", windows.span));
    for (word, span) in windows.into_iter().chain(layers.own_options()) {
        report(Finding::error(span, format!("`{word}` has no effect with `unlimited: true`")));
    }
}

pub(super) struct LimitCompiler<'w, 'r> {
    pub(super) limit: &'w written::WrittenLimit,
    options: &'r CompileOptions,
    pub(super) resolver: OptionResolver<'w, 'r>,
}

impl<'w> LimitCompiler<'w, '_> {
    pub(super) fn error(&mut self, span: SourceSpan, message: impl Into<String>, note: &str) {
        (self.resolver.report)(Finding::error(span, message).note(note));
    }

    /// Checks the units and the lease of a limit that could not be read in full.
    fn check_words(&mut self) {
        for amount in
            self.limit.windows.iter().flat_map(|windows| &windows.value).chain([&self.limit.single])
        {
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
        let beside = single
            .requests_per_unit
            .as_ref()
            .map(|amount| ("requests_per_unit", amount.span))
            .or(beside);
        if let Some((word, span)) = beside {
            let error = Finding::error(span, format!("`{word}` and `windows` cannot be combined"));
            let error = error
                .also(windows.span, "`windows` is here")
                .note("move it to an item of `windows`, or remove it");
            (self.resolver.report)(error);
            return None;
        }
        if self.resolver.algorithm.is_rate() {
            let word = self.resolver.algorithm.word();
            let note = "set `requests_per_unit` and `unit`, or use fixed_window, sliding_window or sliding_log";
            self.error(
                windows.span,
                format!("`windows` does not apply to {word}, which has a single rate"),
                note,
            );
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
            let error =
                Finding::error(written.span, format!("invalid unit `{}`", shown(&written.value)));
            let words = units::WORDS.iter().map(|(word, ..)| *word);
            (self.resolver.report)(error.suggest(&written.value, words).note(units::ALLOWED));
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
            self.error(
                amount.span,
                "`requests_per_unit` is missing",
                "each item of `windows` requires it",
            );
        } else if requests.is_none() && amount.unit.is_some() {
            let warning = Finding::warning(
                amount.span,
                "`requests_per_unit` is missing, so all requests are denied",
            );
            (self.resolver.report)(warning.note("if this is intended, set `requests_per_unit: 0`"));
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
                Err(error) => (self.resolver.report)(Finding::error(zone.span, error.to_string())),
            }
            return None;
        }
        match Window::new(limit, unit.period) {
            Ok(window) => Some(placed(window)),
            Err(error) => {
                (self.resolver.report)(Finding::error(unit_span, error.to_string()));
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
        let switch = self.resolver.only("calendar", &fixed, |options| &options.calendar);
        let zone = self.resolver.only("time_zone", &fixed, |options| &options.time_zone);
        let on = switch.filter(|switch| *switch.value);
        if let (None, Some(OptionValue { own: true, span, .. })) = (on, zone) {
            self.error(
                span,
                "`time_zone` requires `calendar: true`",
                "add `calendar: true`, or remove `time_zone`",
            );
        }
        let on = on?;
        let mut fits = true;
        for (amount, unit) in amounts.iter().zip(units) {
            let Some(PeriodUnit { calendar: None, .. }) = unit else { continue };
            let Some(written) = &amount.unit else { continue };
            fits = false;
            if on.own {
                let message =
                    format!("`calendar` does not support the unit `{}`", shown(&written.value));
                self.error(
                    written.span,
                    message,
                    "with `calendar: true`, the unit must be day, week, month or year",
                );
            }
        }
        let utc = || Spanned { value: "UTC".to_owned(), span: on.span };
        fits.then(|| {
            zone.map_or_else(utc, |zone| Spanned { value: zone.value.clone(), span: zone.span })
        })
    }

    fn limit(&mut self, windows: Vec<PlacedWindow>) -> Option<Limit> {
        use AlgorithmWord::{Gcra as GcraWord, SlidingWindow as SlidingWord, TokenBucket};
        let rates = [GcraWord, TokenBucket];
        let burst = self.resolver.only("burst", &rates, |options| &options.burst);
        let max_debt = self.resolver.only("max_debt", &rates, |options| &options.max_debt);
        let buckets = self.resolver.only("buckets", &[SlidingWord], |options| &options.buckets);
        let estimate = self.resolver.only("estimate", &[SlidingWord], |options| &options.estimate);
        let charge = self.resolver.any(|options| &options.charge);
        let on_store_error =
            self.resolver.any(|options| &options.on_store_error).map(|option| *option.value);
        let hold = self.hold();
        self.check_charge(hold.is_some(), charge);
        let made = windows.iter().map(|placed| placed.window.clone()).collect::<Vec<_>>();
        let narrow =
            |option: OptionValue<'_, u64>| u32::try_from(*option.value).unwrap_or(u32::MAX);
        let word = self.resolver.algorithm;
        let algorithm = match word {
            AlgorithmWord::FixedWindow => FixedWindow::new(made).map(Algorithm::FixedWindow),
            AlgorithmWord::SlidingWindow => {
                let applies = |estimate: &OptionValue<'_, Estimate>| estimate.own || hold.is_none();
                let estimate = estimate.filter(applies);
                let estimate = estimate.map_or(Estimate::default(), |estimate| *estimate.value);
                SlidingWindow::new(made, buckets.map_or(DEFAULT_BUCKETS, narrow), estimate)
                    .map(Algorithm::SlidingWindow)
            }
            AlgorithmWord::SlidingLog => SlidingLog::new(made).map(Algorithm::SlidingLog),
            // Has no windows and is compiled by `slots`.
            AlgorithmWord::Concurrency => return None,
            GcraWord | TokenBucket => {
                let window = made.into_iter().next()?;
                Gcra::new(window, burst.map(narrow), max_debt.map(|debt| *debt.value))
                    .map(Algorithm::Gcra)
            }
        };
        // A sliding log cannot be charged without a bound, and a limit with holds only when
        // admitted. Defaults and overlays with such a mode are meant for other limits and ignored.
        let usual = if word == AlgorithmWord::FixedWindow && hold.is_none() {
            self.options.window_charge()
        } else {
            Charge::Admitted
        };
        let bounded = |charge: &OptionValue<'_, Charge>| charge.value.is_bounded();
        let charge = charge
            .filter(|charge| charge.own || word != AlgorithmWord::SlidingLog || bounded(charge))
            .filter(|_| hold.is_none());
        let mode = charge.map_or(usual, |charge| *charge.value);
        let made = algorithm
            .and_then(|algorithm| Limit::new(algorithm, mode, on_store_error.unwrap_or_default()));
        let places = OptionPositions {
            burst: burst.map(|option| option.span),
            max_debt: max_debt.map(|option| option.span),
            buckets: buckets.map(|option| option.span),
            estimate: estimate.map(|option| option.span),
            charge: charge.map(|option| option.span),
        };
        let made = made
            .map_err(|error| (self.resolver.report)(places.finding(&error, self.limit, &windows)));
        let limit = made.ok()?;
        Some(match hold {
            Some(hold) => limit.with_hold(hold),
            None => limit,
        })
    }
}
