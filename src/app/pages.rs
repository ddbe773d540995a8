//! What the administration shows as text.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use crate::admin::Page;
use crate::algorithm::quota::Window;
use crate::algorithm::{Algorithm, Limit};
use crate::limiter::InForce;
use crate::policy::{Imposes, PolicySet, Rule};
use crate::telemetry::metrics::Metrics;

/// The pages.
pub(super) fn all(policies: &Arc<InForce>, metrics: &Arc<Metrics>) -> Vec<Page> {
    let (policies, metrics) = (Arc::clone(policies), Arc::clone(metrics));
    let rlconfig = move || policies.snapshot().as_deref().map_or_else(String::new, |live| rlconfig(live.policies()));
    let stats = move || stats(&metrics);
    vec![
        Page { path: "/rlconfig", help: "all limits in force, a line each", text: Arc::new(rlconfig) },
        Page { path: "/stats", help: "what this process is, and what it has counted", text: Arc::new(stats) },
    ]
}

fn stats(metrics: &Metrics) -> String {
    let (name, version) = (env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"));
    let counted = match metrics.stats() {
        Some(stats) => stats.text(),
        None => metrics.render().unwrap_or_else(|error| error.to_string()),
    };
    format!("# {name} {version}, process {}\n{counted}", std::process::id())
}

/// A line for each limit, in the order of the policies, in the words of envoyproxy/ratelimit and with ours after them.
fn rlconfig(policies: &PolicySet) -> String {
    let mut text = String::new();
    for policy in policies.policies() {
        for (path, rule) in policy.composite_paths() {
            let _ = match rule.imposes() {
                Imposes::Nothing => Ok(()),
                Imposes::Unlimited => line(&mut text, policy.domain(), &path, rule, None),
                Imposes::Limit(limit) => line(&mut text, policy.domain(), &path, rule, Some(limit)),
            };
        }
    }
    text
}

fn line(text: &mut String, domain: &str, path: &str, rule: &Rule, limit: Option<&Limit>) -> fmt::Result {
    let first = limit.and_then(|limit| limit.windows().first());
    let (unit, amount) = (first.and_then(unit).unwrap_or("UNKNOWN"), first.map_or(0, Window::limit));
    // A value may have any characters, and a line break would make two lines of one.
    let path = format!("{domain}.{path}").replace(char::is_control, "?");
    write!(text, "{path}: unit={unit} requests_per_unit={amount}, ")?;
    write!(text, "shadow_mode: {}, quota_mode: {}", rule.shadow_mode(), rule.quota_mode())?;
    if let Some(limit) = limit.filter(|limit| !is_said(limit)) {
        write!(text, ", {}:", rule.algorithm())?;
        for (number, window) in limit.windows().iter().enumerate() {
            let and = if number > 0 { " and" } else { "" };
            write!(text, "{and} {} per {}", window.limit(), window.period())?;
            if let Some(calendar) = window.calendar() {
                write!(text, " of the calendar of {}", calendar.zone_name())?;
            }
        }
        if let Algorithm::Gcra(gcra) = limit.algorithm() {
            write!(text, " burst {}", gcra.burst())?;
        }
    }
    writeln!(text)
}

/// The protocol's word for a window's period, where it has one.
fn unit(window: &Window) -> Option<&'static str> {
    match window.period().as_whole_secs()? {
        1 => Some("SECOND"),
        60 => Some("MINUTE"),
        3_600 => Some("HOUR"),
        86_400 => Some("DAY"),
        604_800 => Some("WEEK"),
        2_592_000 => Some("MONTH"),
        31_536_000 => Some("YEAR"),
        _ => None,
    }
}

/// Whether unit and amount say all: a fixed window of a whole unit, as envoyproxy/ratelimit has them.
fn is_said(limit: &Limit) -> bool {
    let is_one = matches!(limit.windows(), [window] if window.calendar().is_none() && unit(window).is_some());
    is_one && matches!(limit.algorithm(), Algorithm::FixedWindow(_))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{self, Options, Source};

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
        let loaded = policy::load(&[source], &Options::default()).unwrap_or_else(|report| panic!("{report}"));
        insta::assert_snapshot!(rlconfig(&loaded.policies), @r"
        d.plan_free: unit=DAY requests_per_unit=2, shadow_mode: false, quota_mode: false
        d.plan_free.user: unit=WEEK requests_per_unit=1, shadow_mode: true, quota_mode: false
        d.plan_free.user.path_/a?'*: unit=UNKNOWN requests_per_unit=0, shadow_mode: false, quota_mode: false
        d.plan_free.deep.deeper: unit=MINUTE requests_per_unit=3, shadow_mode: false, quota_mode: true
        d.b: unit=UNKNOWN requests_per_unit=5, shadow_mode: false, quota_mode: false, token_bucket: 5 per 10s burst 7
        ");
    }
}
