//! Warnings for limits that work but are probably a mistake.

use tollgate_core::algorithm::Limit;
use tollgate_core::algorithm::lease::{LEAST, LONGEST_LOAN, NEAR, ROLLING_LOANS};
use tollgate_yaml::report::{Finding, Findings, SourceSpan};

use super::layers::Layers;
use super::limit::CompiledLimit;
use crate::document::written;
use crate::loan::NoLoan;
use crate::quota::NoQuota;
use crate::rule::{Imposes, LeaseHolder, RuleLease};

/// Reports warnings that can be derived from a single rule.
pub(super) fn give(
    rule: &written::WrittenRule,
    layers: &Layers<'_>,
    terms: &CompiledLimit,
    findings: &mut Findings,
) {
    if let Some(name) = rule.limit.as_ref().and_then(|limit| limit.name.as_ref())
        && name.value.contains(['"', '\\'])
    {
        let warning = Finding::warning(name.span, "limit name contains a quote or a backslash");
        findings.push(warning.note("proxies quote the name in a header without escaping it"));
    }
    let key = &rule.key.value;
    if let Some(written) =
        rule.limit.as_ref().filter(|_| terms.imposes.looks_postpaid(key, terms.name.as_deref()))
    {
        let warning = "the cost of these hits may be known only after the response, but `charge` is `admitted`";
        let why = "a peek is almost always admitted, and a later charge that exceeds the limit is not counted";
        let way = "if the cost is known only after the response, set `charge: afterwards`";
        findings.push(Finding::warning(written.span, warning).note(why).note(way));
    }
    let written = layers.option(|options| &options.lease).filter(|option| option.own);
    if let Some(written) = written
        && let Some(lease) = &terms.lease
        && let Imposes::Limit(limit) = &terms.imposes
    {
        let is_vote = layers.is_on(|switches| &switches.quota_mode);
        findings.extend(super::quotas::check(written.span, lease, limit));
        findings.extend(of_lease(written.span, lease, limit, is_vote));
        let replaces = rule.limit.as_ref().is_some_and(|limit| !limit.replaces.is_empty());
        let refused = [
            (!terms.record.is_empty()).then_some((NoLoan::Records, NoQuota::Records)),
            replaces.then_some((NoLoan::Replaces, NoQuota::Replaces)),
        ];
        let refused = refused.into_iter().flatten().next();
        let (of_clients, of_proxies) = refused.unzip();
        findings.extend(of_loans(written.span, lease, limit, of_clients));
        findings.extend(of_proxies.filter(|_| lease.quota.is_some()).map(|reason| {
            Finding::warning(written.span, "no hits are lent to proxies").note(reason.text())
        }));
    }
}

/// Warns that clients, which may hold leased hits, get none, or for a shorter time than the lease.
fn of_loans(
    span: SourceSpan,
    lease: &RuleLease,
    limit: &Limit,
    refused: Option<NoLoan>,
) -> Option<Finding> {
    if !lease.holders.include(LeaseHolder::Client) {
        return None;
    }
    if let Some(reason) = refused {
        let useless = Finding::warning(span, "no hits are lent to clients");
        return Some(useless.note(reason.text()));
    }
    let longest = limit.longest_loan(lease.ttl);
    let shorter = Finding::warning(span, format!("clients hold leased hits for at most {longest}"));
    let bound = format!(
        "a loan ends after {LONGEST_LOAN}, for limits other than fixed_window after 1/{ROLLING_LOANS} of the period"
    );
    (longest < lease.ttl).then(|| shorter.note(bound))
}

fn of_lease(span: SourceSpan, lease: &RuleLease, limit: &Limit, is_vote: bool) -> Option<Finding> {
    let useless = Finding::warning(span, "lease has no effect");
    if is_vote {
        return Some(useless.note(NoLoan::Quota.text()));
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
    let shortest = limit.shortest_period()?;
    let warning = Finding::warning(span, "lease `ttl` is not shorter than the period of the limit");
    let note = if limit.counts_per_window() {
        "a lease ends with its window at the latest"
    } else {
        "with a lease, the limit applies to the period minus the ttl, which leaves nothing here"
    };
    (lease.ttl >= shortest).then(|| warning.note(note))
}
