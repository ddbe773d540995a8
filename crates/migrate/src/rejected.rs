//! Keys and units in policies that Tollgate accepts and envoyproxy/ratelimit rejects.

use std::collections::BTreeSet;

use serde_json::Value;
use tollgate_policy::{ENVOYPROXY_WORDS, Source};
use tollgate_yaml::plain;

/// Key below which envoyproxy/ratelimit accepts all keys.
const METADATA: &str = "metadata";
/// Units of envoyproxy/ratelimit, in lower case.
const UNITS: [&str; 7] = ["second", "minute", "hour", "day", "week", "month", "year"];

/// Returns a text for each file that envoyproxy/ratelimit would reject.
pub(crate) fn in_files(files: &[Source]) -> Vec<String> {
    let mut texts = Vec::new();
    for file in files {
        // That service reads only the first document.
        let Some(root) =
            plain::documents(file).ok().and_then(|documents| documents.into_iter().next())
        else {
            continue;
        };
        let mut words = BTreeSet::new();
        collect(&root, &mut words);
        if !words.is_empty() {
            let words = words.into_iter().collect::<Vec<_>>().join(", ");
            texts.push(format!(
                "{}: envoyproxy/ratelimit rejects {words}; the file is for Tollgate only",
                file.name
            ));
        }
    }
    texts
}

fn collect(value: &Value, words: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            let unlimited = map.get("unlimited").and_then(Value::as_str).unwrap_or_default();
            let is_unlimited =
                ["true", "yes", "on", "y"].contains(&unlimited.to_lowercase().as_str());
            for (key, below) in map {
                let unit = below.as_str().filter(|_| key == "unit" && !is_unlimited);
                let unknown = unit.filter(|unit| !UNITS.contains(&unit.to_lowercase().as_str()));
                words.extend(unknown.map(|unit| format!("`unit: {unit}`")));
                if !ENVOYPROXY_WORDS.contains(&key.as_str()) {
                    words.insert(format!("`{key}`"));
                } else if key != METADATA {
                    collect(below, words);
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, words)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rejected(text: &str) -> Vec<String> {
        in_files(&[Source { name: "a.yaml".to_owned(), text: text.to_owned() }])
    }

    #[test]
    fn keys_and_units_of_tollgate_alone_are_named() {
        let own = "domain: a\ndefaults: { algorithm: gcra }\ndescriptors:\n  - key: b\n    rate_limit: { unit: 15m, requests_per_unit: 1 }\n";
        let expected = "a.yaml: envoyproxy/ratelimit rejects `defaults`, `unit: 15m`; the file is for Tollgate only";
        assert_eq!(rejected(own), [expected]);
    }

    #[test]
    fn policies_that_both_services_accept_are_not_listed() {
        let both = "domain: a\ndescriptors:\n  - key: b\n    metadata: { any: 1 }\n    rate_limit: { unit: DAY, requests_per_unit: 1 }\n  - key: c\n    rate_limit: { unlimited: true, unit: 15m }\n---\nalgorithm: x\n";
        assert_eq!(rejected(both), [""; 0]);
    }
}
