//! Options beyond the decision itself: overrides of the limit, recorded callers, leases.

use tollgate_core::algorithm::Limit;
use tollgate_core::algorithm::quota::Window;
use tollgate_yaml::report::{Spanned, shown};

use super::LimitCompiler;
use crate::compile::{quotas, units};
use crate::rule::{Imposes, LeaseHolder, LeaseHolders, RuleLease};

/// Maximum number of entry keys that one limit may record.
const MAX_RECORD: usize = 8;
/// Granularity of override periods, in microseconds. They are whole seconds, so buckets that divide
/// one second divide any of them.
const OVERRIDE_GRAIN_US: u64 = 1_000_000;

/// Returns the reason why a limit cannot take the amount and the period of an override.
fn no_override(limit: &Limit) -> Option<&'static str> {
    if limit.windows().len() > 1 {
        Some("the limit has several windows, but an override has one amount and period")
    } else if limit.windows().iter().any(|window| window.calendar().is_some()) {
        Some("calendar windows cannot take the period of an override")
    } else if limit.largest_limit() < u32::MAX {
        Some("sliding_log has a maximum amount, which an override may exceed")
    } else if !limit
        .weighted_buckets()
        .is_none_or(|buckets| OVERRIDE_GRAIN_US.is_multiple_of(buckets.into()))
    {
        Some("with `estimate: weighted`, `buckets` must divide 1 s evenly")
    } else {
        None
    }
}

impl LimitCompiler<'_, '_> {
    /// Returns `true` if `override: inherit` is set and can work. Reports an error if the rule
    /// itself sets it and it cannot.
    pub(super) fn inherits(&mut self, imposes: &Imposes) -> bool {
        let (Some(option), Imposes::Limit(limit)) =
            (self.resolver.any(|options| &options.inherit), imposes)
        else {
            return false;
        };
        let reason = no_override(limit);
        if let Some(reason) = reason
            && option.own
        {
            let message = format!("`override: inherit` is not possible: {reason}");
            self.error(option.span, message, "remove `override`");
        }
        reason.is_none()
    }

    pub(super) fn record(&mut self) -> Box<[Box<[u8]>]> {
        let keys = self.resolver.any(|options| &options.record);
        if let Some(keys) = keys.filter(|keys| keys.value.len() > MAX_RECORD) {
            let message =
                format!("`record` must name at most {MAX_RECORD} keys, found {}", keys.value.len());
            self.error(keys.span, message, "each key adds a table to every counter");
        }
        keys.into_iter().flat_map(|option| option.value).map(|key| key.as_bytes().into()).collect()
    }

    pub(super) fn lease(&mut self) -> Option<RuleLease> {
        if self.keeps_holds() {
            return None;
        }
        let written = self.resolver.any(|options| &options.lease)?.value;
        let size = written.size.as_ref()?;
        let ttl = written.ttl.as_ref()?;
        let good_size = quotas::compile_size("lease", size, self.resolver.findings);
        let good_ttl = units::duration(&ttl.value).filter(|ttl| Window::new(1, *ttl).is_ok());
        if good_ttl.is_none() {
            let note =
                "expected a whole number of ms, s, m, h or d such as 100ms, from 1ms to 3650d";
            self.resolver.findings.push(quotas::invalid("lease ttl", ttl).note(note));
        }
        let holders = self.lease_holders(written.holders.as_ref());
        let quota = written.quota.as_ref();
        let quota = quota.map(|quota| quotas::compile(quota, self.resolver.findings));
        let quota = quota.map_or(Some(None), |quota| quota.map(Some))?;
        Some(RuleLease { size: good_size?, ttl: good_ttl?, holders: holders?, quota })
    }

    /// Returns the permitted holders; reports an error for a list with other words, or none.
    fn lease_holders(&mut self, written: Option<&Spanned<Vec<String>>>) -> Option<LeaseHolders> {
        let Some(written) = written else { return Some(LeaseHolders::default()) };
        let note = "expected a list of `process` (the processes of the service) and `client` (callers of LeaseService)";
        let mut holders = Vec::new();
        for word in &written.value {
            match LeaseHolder::WORDS.iter().find(|(known, _)| known == word) {
                Some((_, holder)) => holders.push(*holder),
                None => {
                    let message = format!("invalid lease holder `{}`", shown(word));
                    self.error(written.span, message, note);
                    return None;
                }
            }
        }
        let known = LeaseHolders::of(&holders);
        if known.is_none() {
            self.error(written.span, "`holders` must not be empty", note);
        }
        known
    }
}
