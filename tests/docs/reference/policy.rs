//! `reference/policy.md`, generated from the policy vocabulary of `tollgate schema`.

use serde_json::Value;

use super::super::is_written;
use super::{cell, head, table, types};

/// The documented mappings, in this order: name in the schema, and description.
const MAPPINGS: [(&str, &str); 26] = [
    ("defaults", "Options for all limits of the file; an option of a rule takes precedence."),
    (
        "rule",
        "An item of `descriptors`: matches one entry of a descriptor. [How rules match](../matching.md).",
    ),
    ("rate_limit", "The limit of a rule. [Which algorithm](../algorithms.md)."),
    ("window", "An item of `windows`."),
    ("replaced", "An item of `replaces`."),
    ("quotas", "Options of RLQS for the domain. The key `rlqs` of a file. [Usage](../rlqs.md)."),
    ("lease", "Hits that are taken from a shared store in advance. [The cost](../promise.md)."),
    (
        "quota",
        "Hits that each proxy may hold by RLQS. The key `rlqs` of a `lease`. [Usage](../rlqs.md).",
    ),
    ("hold", "Charges that are recorded under an ID, to be corrected later. [Usage](../holds.md)."),
    ("candidate", "A limit that is evaluated, but not enforced. [Usage](../rollout.md)."),
    (
        "mapping",
        "An item of `requests`: a mapping of HTTP requests to descriptors. [How](../gateways.md).",
    ),
    ("mapped", "A descriptor of `requests`."),
    (
        "match",
        "The requests that a descriptor of `requests` is for. Each key that is set must match.",
    ),
    ("source", "The source of a value in `entries`: exactly one of the first five keys."),
    (
        "overlay",
        "A file of overlays, for `--overlay`: options for rules that another team or controller maintains.",
    ),
    ("entry", "An item of `overlay`."),
    ("overlaid", "The options that the item sets."),
    ("tollgate", "The key `tollgate` in the `metadata` of a rule."),
    ("tests", "A file of tests, `*.test.yaml`, for `tollgate test`. [How](../rollout.md)."),
    ("test", "An item of `tests`."),
    ("step", "An item of `steps`."),
    ("each", "An item of `each`: the expected result for one of several descriptors."),
    ("access_log", "The map of an access log, for `tollgate replay --map`. [How](../rollout.md)."),
    ("time", "The time of the request in a line."),
    ("field", "A field of a line."),
    ("http", "The HTTP request of a line, for a mapping in `requests`."),
];

#[test]
fn the_words_of_policies_are_those_of_the_vocabulary() {
    let schema = tollgate::scenario::json_schema();
    let text = "All keys of policy files. A key that is unknown or in the wrong place is an error, reported with its position. \
                `tollgate schema` prints a JSON schema for editors; `config/policies` has commented examples.";
    let mut page = head("Policy files", text);
    page += &format!("## A policy file\n\n{}\n", words(&schema));
    let described: Vec<_> = MAPPINGS.iter().map(|(name, _)| *name).collect();
    let mappings = schema["$defs"].as_object().unwrap();
    let missing: Vec<_> =
        mappings.keys().filter(|name| !described.contains(&name.as_str())).collect();
    assert!(missing.is_empty(), "MAPPINGS has no description of {missing:?}");
    for (name, about) in MAPPINGS {
        page += &format!("## `{name}`\n\n{about}\n\n{}\n", words(&mappings[name]));
    }
    is_written("reference/policy.md", &(page.trim_end().to_owned() + "\n"));
}

fn words(mapping: &Value) -> String {
    let required: Vec<_> =
        mapping["required"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let words = mapping["properties"].as_object().unwrap().iter();
    let rows = words.map(|(name, word)| {
        let must = if required.contains(&name.as_str()) { ", required" } else { "" };
        [format!("`{name}`"), takes(word) + must, cell(word["description"].as_str().unwrap())]
    });
    table(["key", "type", "meaning"], rows)
}

/// Describes the permitted values of a word. New kinds of values must be added here.
fn takes(word: &Value) -> String {
    if let Some(words) = word["enum"].as_array() {
        return words
            .iter()
            .filter_map(Value::as_str)
            .map(|word| format!("`{word}`"))
            .collect::<Vec<_>>()
            .join(", ");
    }
    let types = types(word);
    let is = |name: &str| types.contains(&name);
    let choice = &word["anyOf"][0];
    let items = &word["items"];
    let link = |of: &Value| {
        of["$ref"]
            .as_str()
            .map(|name| name.replace("#/$defs/", ""))
            .map(|name| format!("[`{name}`](#{name})"))
    };
    if let Some(link) = link(choice) {
        return link;
    }
    if let Some(link) = link(items) {
        return format!("a list of {link}");
    }
    if choice["enum"][0] == "second" {
        return "`second` … `year`, or a duration such as `10s`".to_owned();
    }
    if is("boolean") && !is("string") {
        return "`true`, `false`".to_owned();
    }
    if is("integer") {
        return match word["maximum"].as_u64() {
            Some(u64::MAX) => "a whole number".to_owned(),
            Some(most) => format!("0 to {most}"),
            None => "a whole number, or a percentage such as `1%`".to_owned(),
        };
    }
    if is("array") && !items["additionalProperties"].is_null() {
        return "a list of mappings, of keys to text or [`field`](#field)".to_owned();
    }
    if is("array") {
        return "a list of strings".to_owned();
    }
    if is("object") {
        return "any mapping".to_owned();
    }
    if choice["type"] == "array" {
        return "a descriptor, or a list of them".to_owned();
    }
    if link(&word["anyOf"][1]).is_some() {
        return "text, or [`field`](#field)".to_owned();
    }
    match (is("string"), word["pattern"].as_str()) {
        (true, Some(pattern)) if pattern.contains("never") => {
            "a duration such as `45s` or `250us`, or `never`".to_owned()
        }
        (true, None) if types.len() > 1 => "text".to_owned(),
        (true, None) => "a timestamp, RFC 3339".to_owned(),
        _ => panic!("a form that has no words yet: {word}"),
    }
}
