//! The only list of the settings in which two rules at one path can differ, under their names in a
//! policy.

use tollgate_core::algorithm::Limit;
use tollgate_core::algorithm::quota::Window;
use tollgate_core::printable::counted;

use crate::rule::{Extras, Imposes, LeaseHolders, LeaseSize, Rule, RuleModes};

/// Returns the settings of a rule by name. Unset ones have no entry; defaults are included.
pub(super) fn features(rule: &Rule) -> Vec<(&'static str, String)> {
    let none = Extras::default();
    let Extras { name, algorithm, replaces, record, hashes_values, lease, metadata, candidate } =
        rule.extras.as_deref().unwrap_or(&none);
    let mut features = Features::default();
    features.add("name", name.as_deref());
    match rule.imposes() {
        Imposes::Nothing => {}
        Imposes::Unlimited => features.add("limit", Some("unlimited")),
        Imposes::Limit(limit) => features.add_limit(limit, algorithm),
    }
    let RuleModes {
        shadow,
        quota,
        inherits_override,
        detailed_metric,
        value_to_metric,
        share_threshold,
    } = rule.modes;
    features.add("override", inherits_override.then_some("inherit"));
    features.add("shadow_mode", shadow.then_some("on"));
    features.add("quota_mode", quota.then_some("on"));
    features.add("share_threshold", share_threshold.then_some("on"));
    features.add("detailed_metric", detailed_metric.then_some("on"));
    features.add("value_to_metric", value_to_metric.then_some("on"));
    features.add("replaces", list(replaces.iter().map(|name| name.to_string())));
    features.add("record", list(record.iter().map(|key| String::from_utf8_lossy(key).into())));
    features.add("hash_values", hashes_values.then_some("on"));
    let size = lease.map(|lease| format!("{} for {}", size_text(lease.size), lease.ttl));
    features.add("lease", size);
    let holders = lease.map(|lease| lease.holders).unwrap_or_default();
    let are_set = holders != LeaseHolders::default();
    features.add("lease.holders", are_set.then(|| holders.text()));
    let quota = lease.and_then(|lease| lease.quota);
    let quota = quota.map(|quota| format!("{} for {}", size_text(quota.size), quota.ttl));
    features.add("lease.rlqs", quota);
    features.add("candidate", candidate.as_deref().map(candidate_text));
    features.add("metadata", metadata.as_ref().map(serde_json::Value::to_string));
    features.0
}

/// Settings by name.
#[derive(Default)]
struct Features(Vec<(&'static str, String)>);

impl Features {
    /// Adds a setting, if it is set.
    fn add(&mut self, name: &'static str, text: Option<impl Into<String>>) {
        self.0.extend(text.map(|text| (name, text.into())));
    }

    fn add_limit(&mut self, limit: &Limit, algorithm: &str) {
        self.add("limit", Some(amounts(limit)));
        self.add("algorithm", Some(algorithm));
        for parameter in limit.algorithm().parameters() {
            self.add(parameter.name, Some(parameter.value.to_string()));
        }
        if let Some(hold) = limit.hold() {
            let on_settle = match limit.in_flight() {
                Some(_) => String::new(),
                None => format!(", on_settle {}", hold.on_settle.word()),
            };
            self.add("hold", Some(format!("ttl {}{on_settle}", hold.ttl)));
        }
        self.add("charge", Some(limit.charge_mode().word()));
        self.add("on_store_error", Some(limit.on_store_error().word()));
    }
}

/// Returns the size of a lease, such as `1.00%`.
fn size_text(size: LeaseSize) -> String {
    match size {
        LeaseSize::BasisPoints(part) => {
            let whole = part.get() / 100;
            let hundredths = part.get() % 100;
            format!("{whole}.{hundredths:02}%")
        }
        LeaseSize::Hits(hits) => hits.to_string(),
    }
}

/// Returns the settings of a candidate limit in one line: `50 hits in 1m, algorithm gcra, ...`.
pub fn candidate_text(candidate: &Rule) -> String {
    let settings = features(candidate)
        .into_iter()
        .filter(|(name, _)| !["shadow_mode", "on_store_error"].contains(name));
    let parts: Vec<_> = settings
        .map(|(name, text)| if name == "limit" { text } else { format!("{name} {text}") })
        .collect();
    parts.join(", ")
}

/// Returns the amounts and periods of a rule's limit, or `no limit`.
pub(super) fn limit_of(rule: &Rule) -> String {
    match rule.imposes() {
        Imposes::Nothing => "no limit".to_owned(),
        Imposes::Unlimited => "unlimited".to_owned(),
        Imposes::Limit(limit) => amounts(limit),
    }
}

/// Returns the amounts of a limit in words, such as `100 hits in 1m` or `10 hits in flight`.
pub(crate) fn amounts(limit: &Limit) -> String {
    if let Some(in_flight) = limit.in_flight() {
        return in_flight_text(in_flight);
    }
    let amounts: Vec<_> = limit.windows().iter().map(Window::to_string).collect();
    amounts.join(" and ")
}

/// Returns an amount of hits in flight in words.
pub(crate) fn in_flight_text(in_flight: u32) -> String {
    match in_flight {
        0 => "0 hits in flight (ban)".to_owned(),
        hits => format!("{} in flight", counted(hits, "hit")),
    }
}

fn list(items: impl Iterator<Item = String>) -> Option<String> {
    let items: Vec<_> = items.collect();
    (!items.is_empty()).then(|| items.join(", "))
}
