//! Compiler of a `rate_limit`: its windows and options.

mod compiled;
mod extras;

pub(super) use self::compiled::CompiledLimit;

use tollgate_core::algorithm::Limit;
use tollgate_core::algorithm::calendar::Calendar;
use tollgate_core::algorithm::quota::Window;
use tollgate_yaml::report::{Finding, Findings, SourceSpan, Spanned, shown};

use super::algorithm::{OptionResolver, WindowOptions};
use super::layers::{Layers, OptionValue};
use super::positions::PlacedWindow;
use super::quotas;
use super::units::{self, PeriodUnit};
use crate::CompileOptions;
use crate::document::written::{self, AlgorithmWord};
use crate::rule::Imposes;

/// Compiles a limit. Reports the errors of an invalid one, which then imposes nothing.
pub(super) fn compile<'w>(
    limit: &'w written::WrittenLimit,
    layers: &Layers<'w>,
    options: &CompileOptions,
    findings: &mut Findings,
) -> CompiledLimit {
    check_names(limit, findings);
    let name = limit.name.as_ref().map(|name| name.value.as_str().into());
    if limit.unlimited.as_ref().is_some_and(|unlimited| unlimited.value) {
        check_unlimited(limit, layers, findings);
        return CompiledLimit::without_options(Imposes::Unlimited, name);
    }
    let algorithm = layers.option(|options| &options.algorithm);
    let algorithm = algorithm.map_or(AlgorithmWord::FixedWindow, |algorithm| *algorithm.value);
    let mut compiler =
        LimitCompiler { limit, options, resolver: OptionResolver { layers, algorithm, findings } };
    if !limit.is_whole {
        compiler.check_words();
        return CompiledLimit::without_options(Imposes::Nothing, None);
    }
    let limit = match algorithm {
        AlgorithmWord::Concurrency => compiler.permits(),
        AlgorithmWord::FixedWindow
        | AlgorithmWord::SlidingWindow
        | AlgorithmWord::SlidingLog
        | AlgorithmWord::Gcra
        | AlgorithmWord::TokenBucket => {
            compiler.no_permits();
            compiler.windows().and_then(|windows| compiler.limit(&windows))
        }
    };
    let imposes = limit.map_or(Imposes::Nothing, Imposes::Limit);
    CompiledLimit {
        inherits_override: compiler.inherits(&imposes),
        imposes,
        algorithm: algorithm.word(),
        name,
        record: compiler.record(),
        hashes_values: hashes_values(layers, options, compiler.resolver.findings),
        lease: compiler.lease(),
    }
}

/// Returns `true` if values are hashed. Reports an error if there is no key for it.
pub(super) fn hashes_values(
    layers: &Layers<'_>,
    options: &CompileOptions,
    findings: &mut Findings,
) -> bool {
    let Some(option) = layers.option(|options| &options.hash_values).filter(|option| *option.value)
    else {
        return false;
    };
    if options.hash_key.is_none() {
        let error = "`hash_values` requires a hash key, but none is configured";
        let way =
            "set --hash-key-file FILE or TOLLGATE_HASH_KEY, to the same secret on all replicas";
        let check = "to only validate a policy, use any text of 16 bytes";
        findings.push(Finding::error(option.span, error).note(way).note(check));
    }
    true
}

fn check_names(limit: &written::WrittenLimit, findings: &mut Findings) {
    let name = limit.name.as_ref().map(|name| &name.value);
    for replaced in limit.replaces.iter().filter(|replaced| Some(&replaced.value) == name) {
        let error = format!("limit `{}` replaces itself", shown(&replaced.value));
        findings.push(Finding::error(replaced.span, error));
    }
}

fn check_unlimited(limit: &written::WrittenLimit, layers: &Layers<'_>, findings: &mut Findings) {
    let single = &limit.single;
    if let Some(unit) = &single.unit {
        findings.push(if units::unit(&unit.value).is_some() {
            let error = "`unit` and `unlimited: true` cannot be combined";
            Finding::error(unit.span, error).note("remove one of them")
        } else {
            Finding::warning(unit.span, "`unit` has no effect with `unlimited: true`")
        });
    }
    if let Some(requests) = &single.requests_per_unit {
        let warning = "`requests_per_unit` has no effect with `unlimited: true`";
        findings.push(Finding::warning(requests.span, warning));
    }
    let windows = limit.windows.as_ref().map(|windows| ("windows", windows.span));
    for (word, span) in windows.into_iter().chain(layers.own_options()) {
        let error = format!("`{word}` has no effect with `unlimited: true`");
        findings.push(Finding::error(span, error));
    }
}

pub(super) struct LimitCompiler<'w, 'r> {
    pub(super) limit: &'w written::WrittenLimit,
    options: &'r CompileOptions,
    pub(super) resolver: OptionResolver<'w, 'r>,
}

impl<'w> LimitCompiler<'w, '_> {
    pub(super) fn error(&mut self, span: SourceSpan, message: impl Into<String>, note: &str) {
        self.resolver.findings.push(Finding::error(span, message).note(note));
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
        let amounts = match &self.limit.windows {
            None => std::slice::from_ref(&self.limit.single),
            Some(windows) => {
                self.check_list(windows)?;
                windows.value.as_slice()
            }
        };
        let units: Vec<_> = amounts.iter().map(|amount| self.unit(amount)).collect();
        let zone = self.calendar(amounts, &units);
        let mut placed = Vec::with_capacity(amounts.len());
        for (amount, unit) in amounts.iter().zip(units) {
            self.check_amount(amount);
            placed.extend(unit.and_then(|unit| self.window(amount, &unit, zone.as_ref())));
        }
        (placed.len() == amounts.len()).then_some(placed)
    }

    fn check_list(&mut self, windows: &Spanned<Vec<written::WrittenWindow>>) -> Option<()> {
        let single = &self.limit.single;
        let unit = single.unit.as_ref().map(|unit| ("unit", unit.span));
        let amount = single.requests_per_unit.as_ref();
        let amount = amount.map(|amount| ("requests_per_unit", amount.span));
        if let Some((word, span)) = amount.or(unit) {
            let error = Finding::error(span, format!("`{word}` and `windows` cannot be combined"));
            let error = error.also(windows.span, "`windows` is here");
            let way = "move it to an item of `windows`, or remove it";
            self.resolver.findings.push(error.note(way));
            return None;
        }
        if self.resolver.algorithm.is_rate() {
            let word = self.resolver.algorithm.word();
            let note = "set `requests_per_unit` and `unit`, or use fixed_window, sliding_window or sliding_log";
            let error = format!("`windows` does not apply to {word}, which has a single rate");
            self.error(windows.span, error, note);
            return None;
        }
        Some(())
    }

    fn unit(&mut self, amount: &written::WrittenWindow) -> Option<Spanned<PeriodUnit>> {
        let Some(written) = &amount.unit else {
            self.error(amount.span, "`unit` is missing", units::ALLOWED);
            return None;
        };
        self.unit_of(written)
    }

    fn unit_of(&mut self, written: &Spanned<String>) -> Option<Spanned<PeriodUnit>> {
        let unit = units::unit(&written.value);
        if unit.is_none() {
            let error = quotas::invalid("unit", written);
            let words = units::WORDS.iter().map(|(word, ..)| *word);
            self.resolver.findings.push(error.suggest(&written.value, words).note(units::ALLOWED));
        }
        unit.map(|value| Spanned { value, span: written.span })
    }

    /// Reports an amount that is missing.
    fn check_amount(&mut self, amount: &written::WrittenWindow) {
        if amount.requests_per_unit.is_some() {
            return;
        }
        if self.limit.windows.is_some() {
            let note = "each item of `windows` requires it";
            self.error(amount.span, "`requests_per_unit` is missing", note);
        } else if amount.unit.is_some() {
            let warning = "`requests_per_unit` is missing, so all requests are denied";
            let way = "if this is intended, set `requests_per_unit: 0`";
            self.resolver.findings.push(Finding::warning(amount.span, warning).note(way));
        }
    }

    /// Returns a window; with a time zone, on the calendar if the unit is one.
    fn window(
        &mut self,
        amount: &written::WrittenWindow,
        unit: &Spanned<PeriodUnit>,
        zone: Option<&Spanned<String>>,
    ) -> Option<PlacedWindow> {
        let requests = amount.requests_per_unit.as_ref();
        let limit = u32::try_from(requests.map_or(0, |requests| requests.value)).ok()?;
        let window = if let Some(calendar) = unit.value.calendar
            && let Some(zone) = zone
        {
            Calendar::new(calendar, &zone.value)
                .map(|calendar| Window::on_calendar(limit, calendar))
                .map_err(|error| Finding::error(zone.span, error.to_string()))
        } else {
            Window::new(limit, unit.value.period)
                .map_err(|error| Finding::error(unit.span, error.to_string()))
        };
        let window = window.map_err(|error| self.resolver.findings.push(error)).ok()?;
        let amount = requests.map_or(unit.span, |requests| requests.span);
        Some(PlacedWindow { window, amount, unit: unit.span })
    }

    /// Returns the time zone if the windows follow a calendar.
    fn calendar(
        &mut self,
        amounts: &[written::WrittenWindow],
        units: &[Option<Spanned<PeriodUnit>>],
    ) -> Option<Spanned<String>> {
        let fixed = [AlgorithmWord::FixedWindow];
        let switch = self.resolver.only("calendar", &fixed, |options| &options.calendar);
        let zone = self.resolver.only("time_zone", &fixed, |options| &options.time_zone);
        let on = switch.filter(|switch| *switch.value);
        if let (None, Some(OptionValue { own: true, span, .. })) = (on, zone) {
            let way = "add `calendar: true`, or remove `time_zone`";
            self.error(span, "`time_zone` requires `calendar: true`", way);
        }
        let on = on?;
        let mut fits = true;
        for (amount, unit) in amounts.iter().zip(units) {
            let (Some(written), Some(unit)) = (&amount.unit, unit) else { continue };
            if unit.value.calendar.is_some() {
                continue;
            }
            fits = false;
            if on.own {
                let message =
                    format!("`calendar` does not support the unit `{}`", shown(&written.value));
                let note = "with `calendar: true`, the unit must be day, week, month or year";
                self.error(written.span, message, note);
            }
        }
        fits.then(|| match zone {
            Some(zone) => Spanned { value: zone.value.clone(), span: zone.span },
            None => Spanned { value: "UTC".to_owned(), span: on.span },
        })
    }

    fn limit(&mut self, windows: &[PlacedWindow]) -> Option<Limit> {
        let options = self.window_options();
        let limit = options.limit(windows.iter().map(|placed| placed.window.clone()).collect());
        let error = limit.as_ref().err().map(|error| options.finding(error, self.limit, windows));
        self.resolver.findings.extend(error);
        limit.ok()
    }

    fn window_options(&mut self) -> WindowOptions<'w> {
        let parameters = self.resolver.parameters();
        let charge = self.resolver.any(|options| &options.charge);
        let on_store_error = self.resolver.any(|options| &options.on_store_error);
        let hold = self.hold();
        if hold.is_some() {
            self.check_charge(charge);
        }
        WindowOptions {
            algorithm: self.resolver.algorithm,
            parameters,
            charge,
            charge_of_windows: self.options.window_charge(),
            on_store_error: on_store_error.map(|option| *option.value).unwrap_or_default(),
            hold,
        }
    }
}
