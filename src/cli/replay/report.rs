//! The report of a comparison, as text and as JSON.

use std::fmt;

use serde_json::{Value, json};

use super::denied::{Comparison, Denied, DeniedRule};
use super::order::TimeSpan;
use super::top::FrequentKey;
use crate::printable::counted;

/// Maximum number of keys to show per rule.
const MAX_KEYS: usize = 10;

/// A comparison with the names of the policy sets.
pub(super) struct ReplayReport<'c> {
    pub(super) comparison: &'c Comparison,
    /// Paths of the policies, and of those that they are compared with.
    pub(super) policy: String,
    pub(super) against: Option<String>,
}

impl ReplayReport<'_> {
    /// Returns the report as JSON. Denials of compared policies are those of one of them alone.
    pub(super) fn json(&self) -> Value {
        let Comparison { requests, order, denied, unmatched, old, new, candidates } =
            self.comparison;
        let span = order.span().map(TimeSpan::rfc3339);
        let side = |path: &str, [over_limit, unmatched]: [u64; 2], denied: &Denied| {
            json!({
                "path": path,
                "over_limit": over_limit,
                "without_rule": unmatched,
                "denied": denied_json(denied),
            })
        };
        let first = [denied[0], unmatched[0]];
        let second = [denied[1], unmatched[1]];
        json!({
            "requests": requests,
            "from": span.as_ref().map(|[first, _]| first),
            "until": span.as_ref().map(|[_, last]| last),
            "policy": side(&self.policy, first, old),
            "against": self.against.as_ref().map(|against| side(against, second, new)),
            "candidates": denied_json(candidates),
        })
    }

    fn write_denied(&self, denied: &Denied, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.comparison.order.span();
        for (domain, rule, DeniedRule { top, span }) in denied.by_total() {
            let total = top.total();
            let keys = top.keys();
            let span = span.text(all);
            writeln!(f, "  {total:>9} from {keys}, {span}  {domain} {rule}")?;
            for FrequentKey { key, count, is_estimate } in top.first(MAX_KEYS) {
                let count = format!("{}{count}", if is_estimate { "~" } else { "" });
                writeln!(f, "  {count:>13}  {key}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for ReplayReport<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Comparison { requests, denied: [old, new], unmatched, order, .. } = self.comparison;
        let comparison = self.comparison;
        let requests = counted(*requests, "request");
        let span =
            order.span().map_or(String::new(), |span| format!(" from {} UTC", span.text(None)));
        let policy = &self.policy;
        let Some(against) = &self.against else {
            writeln!(f, "{requests}{span}, {old} over limit")?;
            write_unmatched(unmatched[0], policy, f)?;
            self.write_denied(&comparison.old, f)?;
            if comparison.candidates.requests() > 0 {
                let more = comparison.candidates.requests();
                writeln!(f, "{more} more if its candidates were in force")?;
            }
            return self.write_denied(&comparison.candidates, f);
        };
        writeln!(f, "{requests}{span}: {old} over limit by {policy}, {new} by {against}")?;
        write_unmatched(unmatched[0], policy, f)?;
        write_unmatched(unmatched[1], against, f)?;
        writeln!(f, "{} would be denied only by {against}", comparison.new.requests())?;
        self.write_denied(&comparison.new, f)?;
        writeln!(f, "{} would be denied only by {policy}", comparison.old.requests())?;
        self.write_denied(&comparison.old, f)
    }
}

/// Writes the number of requests that match no rule, if there are some.
fn write_unmatched(unmatched: u64, policy: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if unmatched == 0 {
        return Ok(());
    }
    writeln!(f, "{unmatched} without a rule in {policy}")
}

fn denied_json(denied: &Denied) -> Value {
    let mut rules = Vec::new();
    for (domain, rule, DeniedRule { top, span }) in denied.by_total() {
        let [first, last] = span.rfc3339();
        let (key_count, is_exact) = top.key_count();
        let mut keys = Vec::new();
        for FrequentKey { key, count, is_estimate } in top.first(MAX_KEYS) {
            keys.push(json!({ "key": key, "denied": count, "is_estimate": is_estimate }));
        }
        rules.push(json!({
            "domain": domain,
            "rule": rule,
            "denied": top.total(),
            "first": first,
            "last": last,
            "key_count": key_count,
            "key_count_is_exact": is_exact,
            "keys": keys,
        }));
    }
    json!({ "requests": denied.requests(), "rules": rules })
}
