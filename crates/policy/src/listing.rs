//! Listing of all rules of a policy, in the order and with the paths of envoyproxy/ratelimit.

use std::fmt::{self, Write as _};

use tollgate_core::algorithm::Limit;
use tollgate_core::algorithm::quota::Window;
use tollgate_core::printable::is_invisible;

use super::compile::units;
use super::{Imposes, Policy, PolicySet, Rule};

impl PolicySet {
    /// Returns a line for each limit, in the order of the policies: the text of
    /// envoyproxy/ratelimit, then the options that only Tollgate has.
    pub fn listing(&self) -> String {
        let mut text = String::new();
        for policy in self.policies() {
            for (path, rule) in policy.composite_paths() {
                if *rule.imposes() != Imposes::Nothing {
                    // Writing to a string cannot fail.
                    let _ = line(&mut text, policy.domain(), &path, rule);
                }
            }
        }
        text
    }
}

impl Policy {
    /// Returns the rules with their composite paths: the key, or `key_value`, of each step, joined
    /// by dots, as in `plan_free.user`.
    pub(crate) fn composite_paths(&self) -> impl Iterator<Item = (String, &Rule)> {
        // Rules are in depth-first order. For each rule above the current one: where its path ends,
        // and how many children are still to come.
        let mut path = String::new();
        let mut above = Vec::<(usize, usize)>::new();
        self.rules.iter().map(move |rule| {
            while above.pop_if(|(_, to_come)| *to_come == 0).is_some() {}
            path.truncate(above.last().map_or(0, |(end, _)| *end));
            if let Some((_, to_come)) = above.last_mut() {
                *to_come = to_come.saturating_sub(1);
                path.push('.');
            }
            path.push_str(&String::from_utf8_lossy(rule.key.text()));
            if let Some(value) = &rule.value {
                path.push('_');
                path.push_str(&String::from_utf8_lossy(value.text()));
            }
            above.push((path.len(), rule.children.len()));
            (path.clone(), rule)
        })
    }
}

fn line(text: &mut String, domain: &str, path: &str, rule: &Rule) -> fmt::Result {
    let limit = rule.limit();
    let first = limit.and_then(|limit| limit.windows().first());
    let unit = first
        .and_then(|first| units::word(first.period()))
        .map_or_else(|| "UNKNOWN".to_owned(), str::to_uppercase);
    let in_flight = limit.and_then(Limit::in_flight);
    let amount = first.map(Window::limit).or(in_flight).unwrap_or(0);
    // A value may contain any character; a line break would split the line.
    let path = format!("{domain}.{path}").replace(is_invisible, "?");
    write!(text, "{path}: unit={unit} requests_per_unit={amount}, ")?;
    write!(text, "shadow_mode: {}, quota_mode: {}", rule.shadow_mode(), rule.quota_mode())?;
    if let Some(limit) = limit.filter(|limit| !is_plain(limit)) {
        write!(text, ", {}:", rule.algorithm())?;
        if let Some(in_flight) = in_flight {
            write!(text, " {in_flight} in flight")?;
        }
        for (number, window) in limit.windows().iter().enumerate() {
            let and = if number > 0 { " and" } else { "" };
            write!(text, "{and} {} per {}", window.limit(), window.period())?;
            if let Some(calendar) = window.calendar() {
                write!(text, " of the calendar of {}", calendar.zone_name())?;
            }
        }
        if let Some(burst) = limit.burst() {
            write!(text, " burst {burst}")?;
        }
    }
    writeln!(text)
}

/// Returns `true` if unit and amount describe the whole limit: a fixed window of a whole unit, as
/// in envoyproxy/ratelimit.
fn is_plain(limit: &Limit) -> bool {
    let [window] = limit.windows() else { return false };
    let is_whole_unit = window.calendar().is_none() && units::word(window.period()).is_some();
    limit.counts_per_window() && is_whole_unit
}

#[cfg(test)]
mod tests {
    use crate::{CompileOptions, Source, load};

    #[test]
    fn limits_are_listed_in_the_order_of_the_policy() {
        let text = r#"
domain: d
descriptors:
  - key: plan
    value: free
    rate_limit: { requests_per_unit: 2, unit: day }
    descriptors:
      - key: user
        shadow_mode: true
        rate_limit: { requests_per_unit: 1, unit: week }
        descriptors:
          - { key: path, value: "/a\n'*", rate_limit: { unlimited: true } }
      - key: deep
        descriptors:
          - { key: deeper, quota_mode: true, rate_limit: { requests_per_unit: 3, unit: minute } }
  - key: nothing
  - { key: b, rate_limit: { algorithm: token_bucket, requests_per_unit: 5, unit: 10s, burst: 7 } }
"#;
        let source = Source { name: "policy.yaml".into(), text: text.into() };
        let loaded =
            load(&[source], &CompileOptions::default()).unwrap_or_else(|report| panic!("{report}"));
        insta::assert_snapshot!(loaded.policies.listing(), @r"
        d.plan_free: unit=DAY requests_per_unit=2, shadow_mode: false, quota_mode: false
        d.plan_free.user: unit=WEEK requests_per_unit=1, shadow_mode: true, quota_mode: false
        d.plan_free.user.path_/a?'*: unit=UNKNOWN requests_per_unit=0, shadow_mode: false, quota_mode: false
        d.plan_free.deep.deeper: unit=MINUTE requests_per_unit=3, shadow_mode: false, quota_mode: true
        d.b: unit=UNKNOWN requests_per_unit=5, shadow_mode: false, quota_mode: false, token_bucket: 5 per 10s burst 7
        ");
    }
}
