//! `tollgate diff`.

use serde_json::Value;

use super::run;
use crate::support::policy::Policies;

const OLD: &str = "domain: edge
descriptors:
  - key: user
    rate_limit: { requests_per_unit: 100, unit: minute }
  - key: user
    value: mallory
    rate_limit: { requests_per_unit: 0, unit: minute }
  - key: path
    value: /a*
    rate_limit: { requests_per_unit: 5, unit: second }
  - key: path
    value: /*b
    rate_limit: { requests_per_unit: 6, unit: second }
  - key: plan
    rate_limit: { name: plans, requests_per_unit: 7, unit: day }
";

fn compared(new: &str, flags: &[&str]) -> (i32, String) {
    let policies = Policies::of(OLD);
    policies.write("new/policy.yaml", new);
    let [old, new] =
        ["policy.yaml", "new"].map(|name| policies.file(name).to_str().unwrap().to_owned());
    let (code, out, err) = run(&[&["diff", &old, &new], flags].concat());
    assert_eq!(err, "");
    (code, out)
}

#[test]
fn equal_texts_have_no_differences() {
    let quoted = OLD
        .replace("unit: minute", "unit: 60s, algorithm: fixed_window, charge: always")
        .replace("mallory", "'mallory'");
    assert_eq!(
        compared(&quoted, &[]),
        (0, "no differences: limits are the same and counters continue\n".to_owned())
    );
}

#[test]
fn a_change_is_described_with_its_callers_and_the_effect_on_counters() {
    let new = OLD
        .replace("requests_per_unit: 100, unit: minute", "requests_per_unit: 50, unit: minute")
        .replace(
            "requests_per_unit: 5, unit: second",
            "requests_per_unit: 5, unit: second, algorithm: gcra",
        )
        .replace("  - key: plan\n", "  - key: plan\n    shadow_mode: true\n");
    let (code, out) = compared(&new, &[]);
    assert_eq!(code, 1);
    insta::assert_snapshot!(out, @r##"
    ~ edge: rule `user` changed
        descriptors     user=(any)
        limit           100 hits in 1m -> 50 hits in 1m
        counters        continue; used hits count against the new limit
    ~ edge: rule `path=/a*` changed
        descriptors     path=/a*
        algorithm       fixed_window -> gcra
        burst           5
        max_debt        50
        charge          always -> admitted
        counters        restart at zero
    ~ edge: rule `plan` changed
        descriptors     plan=(any)
        shadow_mode     on
        counters        continue; used hits count against the new limit
    3 changed; existing counters restarted: 1
    "##);
}

#[test]
fn added_removed_and_moved_rules_show_what_their_descriptors_match_instead() {
    let (first, rest) = OLD.split_once("  - key: user\n    value: mallory").unwrap();
    let (_, rest) = rest.split_once("  - key: path").unwrap();
    let new = format!("{first}  - key: path{rest}").replace(
        "  - key: plan\n",
        "  - key: user\n    value: ann\n    rate_limit: { unlimited: true }\n  - key: tier\n",
    );
    let (code, out) = compared(&new, &[]);
    assert_eq!(code, 1);
    insta::assert_snapshot!(out, @r##"
    + edge: rule `user=ann` added
        descriptors     user=ann
        limit           unlimited
        before          rule `user`: 100 hits in 1m
    > edge: rule `tier` moved from `plan`
        descriptors     tier=(any)
        counters        restart at zero
    - edge: rule `user=mallory` removed
        descriptors     user=mallory
        limit           removed: 0 hits (ban) in 1m
        algorithm       removed: fixed_window
        charge          removed: always
        on_store_error  removed: error
        after           rule `user`: 100 hits in 1m
        counters        no longer used
    1 added, 1 removed, 1 moved; existing counters restarted: 1
    "##);
}

#[test]
fn the_order_of_wildcards_and_the_atomicity_of_a_domain_are_differences() {
    let a = "value: /a*\n    rate_limit: { requests_per_unit: 5";
    let b = "value: /*b\n    rate_limit: { requests_per_unit: 6";
    let new = OLD
        .replace(a, "?")
        .replace(b, a)
        .replace('?', b)
        .replace("domain: edge", "domain: edge\natomicity: domain");
    let (code, out) = compared(&new, &["--json"]);
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(code, 1);
    let changes = report["changes"].as_array().unwrap();
    let details: Vec<_> = changes.iter().map(|change| change["details"][0].clone()).collect();
    assert_eq!(
        details[0],
        serde_json::json!({ "what": "atomicity", "old": "limit", "new": "domain" })
    );
    assert_eq!(
        details[1],
        serde_json::json!({ "what": "order", "old": "path=/a*, path=/*b", "new": "path=/*b, path=/a*" })
    );
    assert_eq!(
        (&changes[0]["counters"], &changes[1]["counters"]),
        (&"anew".into(), &"none".into())
    );
}

#[test]
fn unreadable_policies_exit_2() {
    let policies = Policies::of(OLD);
    policies.write("bad.yaml", "domain: edge\ndescriptors:\n  - kei: user\n");
    let [old, bad] =
        ["policy.yaml", "bad.yaml"].map(|name| policies.file(name).to_str().unwrap().to_owned());
    let (code, _, err) = run(&["diff", &old, &bad]);
    assert_eq!(code, 2);
    assert!(err.contains("bad.yaml:3:5"), "{err}");
}
