//! Compiler of `hold`, and of limits on hits in flight, which require it.

use tollgate_core::algorithm::concurrency::Concurrency;
use tollgate_core::algorithm::hold::Hold;
use tollgate_core::algorithm::quota::{MAX_TTL, MIN_TTL};
use tollgate_core::algorithm::sliding_window::Estimate;
use tollgate_core::algorithm::{Algorithm, Charge, Limit};
use tollgate_core::descriptor::hold::RESERVED;
use tollgate_yaml::report::{Finding, Findings, SourceSpan};

use super::layers::OptionValue;
use super::limit::LimitCompiler;
use super::{quotas, units};
use crate::document::written::{AlgorithmWord, WrittenHold};

/// Reports a key of a rule that no entry can have.
pub(super) fn check_key(key: &str, span: SourceSpan, findings: &mut Findings) {
    if RESERVED.contains(&key) {
        let error = Finding::error(span, format!("`{key}` is reserved and never matched"));
        let note = "a descriptor with this last entry is matched without it; remove the rule";
        findings.push(error.note(note));
    }
}

impl<'w> LimitCompiler<'w, '_> {
    /// Returns the limit of a `concurrency` rule.
    pub(super) fn permits(&mut self) -> Option<Limit> {
        self.check_no_windows();
        self.check_options();
        let hold = self.hold();
        let charge = self.resolver.any(|options| &options.charge);
        self.check_charge(charge);
        let on_store_error =
            self.resolver.any(|options| &options.on_store_error).map(|option| *option.value);
        if let Some(settle) = self.written_hold().and_then(|hold| hold.value.on_settle.as_ref()) {
            let note = "a commit or a settle releases the permit; remove `on_settle`";
            self.error(settle.span, "`on_settle` does not apply to concurrency", note);
        }
        if self.written_hold().is_none() {
            let note = "add `hold: { ttl: 60s }`: a permit that is not released earlier is released after this time";
            self.error(self.limit.span, "`algorithm: concurrency` requires `hold`", note);
        }
        let Some(in_flight) = &self.limit.in_flight else {
            let note = "the maximum number of hits in flight, from 0 to 10000";
            self.error(self.limit.span, "`algorithm: concurrency` requires `in_flight`", note);
            return None;
        };
        let algorithm = Concurrency::new(u32::try_from(in_flight.value).unwrap_or(u32::MAX));
        let limit = algorithm.and_then(|algorithm| {
            let algorithm = Algorithm::Concurrency(algorithm);
            Limit::new(algorithm, Charge::Admitted, on_store_error.unwrap_or_default())
        });
        match limit {
            Ok(limit) => hold.map(|hold| limit.with_hold(hold)),
            Err(error) => {
                self.resolver.findings.push(Finding::error(in_flight.span, error.to_string()));
                None
            }
        }
    }

    /// Reports an amount of hits in flight of a rate limit.
    pub(super) fn no_permits(&mut self) {
        if let Some(in_flight) = &self.limit.in_flight {
            let word = self.resolver.algorithm.word();
            let note = "set `algorithm: concurrency`, or `requests_per_unit` and `unit`";
            self.error(in_flight.span, format!("`in_flight` does not apply to {word}"), note);
        }
    }

    /// Reports amounts and periods of a limit on hits in flight.
    fn check_no_windows(&mut self) {
        let single = &self.limit.single;
        let words = [
            ("requests_per_unit", single.requests_per_unit.as_ref().map(|amount| amount.span)),
            ("unit", single.unit.as_ref().map(|unit| unit.span)),
            ("windows", self.limit.windows.as_ref().map(|windows| windows.span)),
        ];
        for (word, span) in words.into_iter().filter_map(|(word, span)| Some((word, span?))) {
            let note = "concurrency has no period; set `in_flight`";
            self.error(span, format!("`{word}` does not apply to concurrency"), note);
        }
    }

    /// Reports options of other algorithms.
    fn check_options(&mut self) {
        self.resolver.parameters();
        let fixed = [AlgorithmWord::FixedWindow];
        self.resolver.only("calendar", &fixed, |options| &options.calendar);
        self.resolver.only("time_zone", &fixed, |options| &options.time_zone);
    }

    /// Returns how the limit keeps holds, if it does.
    pub(super) fn hold(&mut self) -> Option<Hold> {
        let option = self.written_hold()?;
        let ttl = option.value.ttl.as_ref()?;
        let on_settle = option.value.on_settle.as_ref().map(|word| word.value).unwrap_or_default();
        let length =
            units::duration(&ttl.value).filter(|length| (MIN_TTL..=MAX_TTL).contains(length));
        if length.is_none() {
            let note = "expected a whole number of ms, s, m or h such as 60s, from 1s to 24h";
            self.resolver.findings.push(quotas::invalid("hold ttl", ttl).note(note));
        }
        self.check_lease_and_estimate();
        Some(Hold { ttl: length?, on_settle })
    }

    /// Returns `true` if the limit keeps holds, or should.
    pub(super) fn keeps_holds(&mut self) -> bool {
        self.resolver.algorithm == AlgorithmWord::Concurrency || self.written_hold().is_some()
    }

    fn written_hold(&mut self) -> Option<OptionValue<'w, WrittenHold>> {
        self.resolver.any(|options| &options.hold)
    }

    /// Reports a lease or an estimate that the rule sets beside `hold`.
    fn check_lease_and_estimate(&mut self) {
        let lease = self.resolver.any(|options| &options.lease).filter(|lease| lease.own);
        if let Some(lease) = lease {
            let note = "hits charged in advance belong to no request; remove one of them";
            self.error(lease.span, "`lease` and `hold` cannot be combined", note);
        }
        let weighted = self.resolver.any(|options| &options.estimate);
        let weighted = weighted
            .filter(|estimate| estimate.own && *estimate.value == Estimate::Weighted)
            .filter(|_| self.resolver.algorithm == AlgorithmWord::SlidingWindow);
        if let Some(estimate) = weighted {
            let note = "a limit with holds is exact; remove `estimate`";
            self.error(estimate.span, "`estimate: weighted` and `hold` cannot be combined", note);
        }
    }

    /// Reports a charge mode that the rule sets for a limit with holds.
    pub(super) fn check_charge(&mut self, charge: Option<OptionValue<'_, Charge>>) {
        let other = charge.filter(|charge| charge.own && *charge.value != Charge::Admitted);
        if let Some(charge) = other {
            let word = charge.value.word();
            let message = format!("`charge: {word}` and `hold` cannot be combined");
            self.error(charge.span, message, "a limit with holds is charged when admitted");
        }
    }
}
