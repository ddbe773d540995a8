//! Warnings for limits that work but are probably a mistake.

use tollgate_core::algorithm::lease::{LEAST, NEAR};
use tollgate_core::algorithm::{Algorithm, Limit};
use tollgate_yaml::report::{Finding, SourceSpan};

use super::layers::Layers;
use super::limit::CompiledLimit;
use crate::document::written;
use crate::rule::{Imposes, RuleLease};

/// Reports warnings that can be derived from a single rule.
pub(super) fn give(
    rule: &written::WrittenRule,
    layers: &Layers<'_>,
    terms: &CompiledLimit,
    report: &mut dyn FnMut(Finding),
) {
    if let Some(name) = rule.limit.as_ref().and_then(|limit| limit.name.as_ref())
        && name.value.contains(['"', '\\'])
    {
        let warning = Finding::warning(name.span, "limit name contains a quote or a backslash");
        report(warning.note("proxies quote the name in a header without escaping it"));
    }
    let key = &rule.key.value;
    if let Some(written) =
        rule.limit.as_ref().filter(|_| terms.imposes.looks_postpaid(key, terms.name.as_deref()))
    {
        let warning = Finding::warning(
            written.span,
            "the cost of these hits may be known only after the response, but `charge` is `admitted`",
        );
        let why = "a peek is almost always admitted, and a later charge that exceeds the limit is not counted";
        let way = "if the cost is known only after the response, set `charge: afterwards`";
        report(warning.note(why).note(way));
    }
    let written = layers.option(|options| &options.lease).filter(|option| option.own);
    if let Some(written) = written
        && let Some(lease) = &terms.lease
        && let Imposes::Limit(limit) = &terms.imposes
    {
        let is_vote = layers.is_on(|switches| &switches.quota_mode);
        of_lease(written.span, lease, limit, is_vote).into_iter().for_each(report);
    }
}

fn of_lease(span: SourceSpan, lease: &RuleLease, limit: &Limit, is_vote: bool) -> Option<Finding> {
    let useless = Finding::warning(span, "lease has no effect");
    if is_vote {
        return Some(
            useless.note("limits in quota mode are always evaluated together, in the store"),
        );
    }
    if limit.is_ban() {
        return Some(useless.note("a ban (`requests_per_unit: 0`) has no hits to lease"));
    }
    if lease.of(limit).largest(limit).is_none() {
        let most = limit.at_once();
        let wanted = lease.of(limit).hits;
        let why =
            format!("a lease has at least {LEAST} hits and at most 1/{NEAR} of the remaining hits");
        let found = format!("the size of this lease is {wanted}, and at most {most} hits remain");
        return Some(useless.note(why).note(found));
    }
    let shortest = limit.windows().iter().map(|window| window.period()).min()?;
    let warning = Finding::warning(span, "lease `ttl` is not shorter than the period of the limit");
    let note = match limit.algorithm() {
        Algorithm::FixedWindow(_) => "a lease ends with its window at the latest",
        Algorithm::SlidingWindow(_)
        | Algorithm::SlidingLog(_)
        | Algorithm::Gcra(_)
        | Algorithm::Concurrency(_) => {
            "with a lease, the limit applies to the period minus the ttl, which leaves nothing here"
        }
    };
    (lease.ttl >= shortest).then(|| warning.note(note))
}
