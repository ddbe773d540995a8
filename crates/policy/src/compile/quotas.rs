//! RLQS: the hits that proxies may hold, checked when they are read and against their limit.

use tollgate_core::algorithm::Limit;
use tollgate_yaml::report::{Finding, Findings, SourceSpan, Spanned, shown};

use super::identity::Version;
use super::units;
use crate::document::written::{WrittenDocument, WrittenQuota};
use crate::quota::{NoQuota, QUOTA_GUARD, QUOTA_TTL, UnsupportedQuota};
use crate::rule::{LeaseSize, RuleLease, RuleQuota};

/// Returns the answer of a domain to buckets whose limit RLQS cannot enforce, and adds it to the
/// version if it is set.
pub(super) fn unsupported(
    documents: &[WrittenDocument],
    version: &mut Version,
) -> UnsupportedQuota {
    let written = documents.iter().find_map(|document| document.unsupported_quota.as_ref());
    let unsupported = written.map(|written| written.value).unwrap_or_default();
    if unsupported == UnsupportedQuota::Allow {
        version.add("rlqs: allow");
    }
    unsupported
}

/// Compiles the hits that proxies may hold. Returns `None` after an error.
pub(super) fn compile(written: &WrittenQuota, findings: &mut Findings) -> Option<RuleQuota> {
    let size = written.size.as_ref()?;
    let ttl = written.ttl.as_ref()?;
    let good_size = compile_size("rlqs", size, findings);
    let [shortest, longest] = QUOTA_TTL;
    let good_ttl = units::duration(&ttl.value)
        .filter(|ttl| (shortest..=longest).contains(ttl) && ttl.as_whole_secs().is_some());
    if good_ttl.is_none() {
        let allowed = format!("expected whole seconds from {shortest} to {longest}, such as 15s");
        findings.push(invalid("rlqs ttl", ttl).note(allowed));
    }
    Some(RuleQuota { size: good_size?, ttl: good_ttl? })
}

/// Compiles the size of a lease, or of the hits that proxies may hold. Returns `None` after an
/// error.
pub(super) fn compile_size(
    of: &str,
    written: &Spanned<String>,
    findings: &mut Findings,
) -> Option<LeaseSize> {
    let size = units::lease_size(&written.value);
    if size.is_none() {
        let note = "expected a percentage of the limit from 0.01% to 100%, or a number of hits of at least 1";
        findings.push(invalid(&format!("{of} size"), written).note(note));
    }
    size
}

/// Returns the error of a text with another form than `what` has.
pub(super) fn invalid(what: &str, written: &Spanned<String>) -> Finding {
    Finding::error(written.span, format!("invalid {what} `{}`", shown(&written.value)))
}

/// Returns an error if the hits do not end well before the period of the limit does.
pub(super) fn check(span: SourceSpan, lease: &RuleLease, limit: &Limit) -> Option<Finding> {
    let quota = lease.quota.filter(|quota| !limit.is_ban() && !quota.fits(limit))?;
    let ttl = quota.ttl;
    let error = Finding::error(span, format!("rlqs: hits for {ttl} do not fit the period"));
    let bound = format!(
        "the period must be at least 30s and {QUOTA_GUARD} longer than the ttl; for gcra and token_bucket, so must the time in which the burst is refilled, but not 30s"
    );
    Some(error.note(bound).note(NoQuota::ShortPeriod.help()))
}
