//! Warnings for limits that work but are probably a mistake.

use super::layers::Layers;
use super::limit::Terms;
use crate::algorithm::lease::{LEAST, NEAR};
use crate::algorithm::{Algorithm, Limit};
use crate::policy::document::written;
use crate::policy::report::{Finding, SourceSpan};
use crate::policy::rule::{Imposes, RuleLease};

/// Reports warnings that can be derived from a single rule.
pub(super) fn give(rule: &written::WrittenRule, layers: &Layers<'_>, terms: &Terms, report: &mut dyn FnMut(Finding)) {
    if let Some(name) = rule.limit.as_ref().and_then(|limit| limit.name.as_ref())
        && name.value.contains(['"', '\\'])
    {
        let warning = Finding::warning(name.span, "a quote or backslash in the name of a limit");
        report(warning.note("proxies put the name between quotes in a header, as it is"));
    }
    let key = &rule.key.value;
    if let Some(written) = rule.limit.as_ref().filter(|_| terms.imposes.looks_postpaid(key, terms.name.as_deref())) {
        let warning = Finding::warning(written.span, "this looks paid afterwards, and is charged only when admitted");
        let why = "a peek nearly always passes, and a later charge that does not fit is lost";
        let way = "where the cost is known only when the response is done, write `charge: afterwards`";
        report(warning.note(why).note(way));
    }
    let written = layers.said(|options| &options.lease).filter(|said| said.own);
    if let Some(written) = written
        && let Some(lease) = &terms.lease
        && let Imposes::Limit(limit) = &terms.imposes
    {
        let is_vote = layers.is_on(|switches| &switches.quota_mode);
        of_lease(written.span, lease, limit, is_vote).into_iter().for_each(report);
    }
}

fn of_lease(span: SourceSpan, lease: &RuleLease, limit: &Limit, is_vote: bool) -> Option<Finding> {
    let useless = Finding::warning(span, "this lease has no effect");
    if is_vote {
        return Some(useless.note("a limit in quota mode is judged with the others, where all of them are"));
    }
    if limit.is_ban() {
        return Some(useless.note("a ban admits nothing that could be taken in advance"));
    }
    if lease.of(limit).largest(limit).is_none() {
        let most = limit.at_once();
        let wanted = lease.of(limit).hits;
        let why = format!("no block has fewer than {LEAST} hits, or more than 1/{NEAR} of those that are left");
        return Some(useless.note(format!("{why}; the size is {wanted}, and at most {most} are left")));
    }
    let shortest = limit.windows().iter().map(|window| window.period()).min()?;
    let warning = Finding::warning(span, "the ttl of this lease is no shorter than the period");
    let note = match limit.algorithm() {
        Algorithm::FixedWindow(_) => "a block ends with its window all the same",
        Algorithm::SlidingWindow(_) | Algorithm::SlidingLog(_) | Algorithm::Gcra(_) => {
            "the limit holds in any period less the ttl: here in none"
        }
    };
    (lease.ttl >= shortest).then(|| warning.note(note))
}
