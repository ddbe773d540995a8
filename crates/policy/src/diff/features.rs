//! The only list of the settings in which two rules at one path can differ, under their names in a
//! policy.

use tollgate_core::algorithm::Limit;
use tollgate_core::algorithm::quota::Window;

use crate::document::written::{ON_STORE_ERROR, word_of};
use crate::rule::{Extras, Imposes, LeaseHolders, LeaseSize, Rule, RuleModes};

/// Returns the settings of a rule by name. Unset ones have no entry; defaults are included.
pub(super) fn features(rule: &Rule) -> Vec<(&'static str, String)> {
    let none = Extras::default();
    let Extras { name, algorithm, replaces, record, hashes_values, lease, metadata, candidate } =
        rule.extras.as_deref().unwrap_or(&none);
    let mut features = Vec::new();
    let mut add = |name, text: Option<String>| features.extend(text.map(|text| (name, text)));
    add("name", name.as_deref().map(str::to_owned));
    match rule.imposes() {
        Imposes::Nothing => {}
        Imposes::Unlimited => add("limit", Some("unlimited".to_owned())),
        Imposes::Limit(limit) => of_limit(limit, algorithm, &mut add),
    }
    let on = |is_on: bool| is_on.then(|| "on".to_owned());
    let RuleModes {
        shadow,
        quota,
        inherits_override,
        detailed_metric,
        value_to_metric,
        share_threshold,
    } = rule.modes;
    add("override", inherits_override.then(|| "inherit".to_owned()));
    add("shadow_mode", on(shadow));
    add("quota_mode", on(quota));
    add("share_threshold", on(share_threshold));
    add("detailed_metric", on(detailed_metric));
    add("value_to_metric", on(value_to_metric));
    add("replaces", list(replaces.iter().map(|name| name.to_string())));
    add("record", list(record.iter().map(|key| String::from_utf8_lossy(key).into_owned())));
    add("hash_values", on(*hashes_values));
    add("lease", lease.map(|lease| format!("{} for {}", size_text(lease.size), lease.ttl)));
    let holders = lease.map(|lease| lease.holders).unwrap_or_default();
    let are_set = holders != LeaseHolders::default();
    add("lease.holders", are_set.then(|| holders.text().to_owned()));
    let quota = lease.and_then(|lease| lease.quota);
    add("lease.rlqs", quota.map(|quota| format!("{} for {}", size_text(quota.size), quota.ttl)));
    add("candidate", candidate.as_deref().map(candidate_text));
    add("metadata", metadata.as_ref().map(serde_json::Value::to_string));
    features
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

fn of_limit(limit: &Limit, algorithm: &str, add: &mut impl FnMut(&'static str, Option<String>)) {
    add("limit", Some(amounts(limit)));
    add("algorithm", Some(algorithm.to_owned()));
    for parameter in limit.algorithm().parameters() {
        add(parameter.name, Some(parameter.value.to_string()));
    }
    if let Some(hold) = limit.hold() {
        let on_settle = match limit.in_flight() {
            Some(_) => String::new(),
            None => format!(", on_settle {}", hold.on_settle.word()),
        };
        add("hold", Some(format!("ttl {}{on_settle}", hold.ttl)));
    }
    add("charge", Some(limit.charge_mode().word().to_owned()));
    add("on_store_error", Some(word_of(&ON_STORE_ERROR, &limit.on_store_error()).to_owned()));
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
        1 => "1 hit in flight".to_owned(),
        hits => format!("{hits} hits in flight"),
    }
}

fn list(items: impl Iterator<Item = String>) -> Option<String> {
    let items: Vec<_> = items.collect();
    (!items.is_empty()).then(|| items.join(", "))
}
