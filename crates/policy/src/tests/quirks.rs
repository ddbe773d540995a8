//! Tests that files written for envoyproxy/ratelimit load and mean the same.

use super::super::{Imposes, Rule};
use super::{hit, limited, load_all, path, policies, refused, warnings};

/// Returns the amount and period of the only limit.
fn window(text: &str) -> String {
    let loaded = load_all(&[text]).unwrap_or_else(|report| panic!("{report}"));
    window_of(loaded.policies.rules().next().unwrap())
}

fn window_of(rule: &Rule) -> String {
    match rule.imposes() {
        Imposes::Limit(limit) => {
            format!("{}/{}", limit.windows()[0].limit(), limit.windows()[0].period())
        }
        Imposes::Nothing | Imposes::Unlimited => String::new(),
    }
}

#[test]
fn unquoted_scalars_in_text_fields_keep_their_letters() {
    let values = ["yes", "007", "0x10", "1_000", "2001-01-01", "12:30", "1.50", "No", "1e3"];
    for value in values {
        let set = policies(&format!("domain: d\ndescriptors:\n- {{key: k, value: {value}}}\n"));
        assert_eq!(path(&set, &[("k", value)]), Some(format!("k={value}")), "{value}");
    }
}

#[test]
fn null_is_as_good_as_absent() {
    let text = "domain: d\ndescriptors:\n- {key: k, value: ~, rate_limit: null, descriptors: , shadow_mode: null}\n";
    let set = policies(text);
    assert_eq!(path(&set, &[("k", "any")]), Some("k".into()));
    assert_eq!(*set.rules().next().unwrap().imposes(), Imposes::Nothing);
    assert_eq!(policies("domain: d\ndescriptors: null\n").rules().count(), 0);
    assert_eq!(policies("domain: d\n").policies().count(), 1);
}

#[test]
fn a_quoted_null_is_a_text() {
    let set = policies(
        "domain: d\ndescriptors:\n- {key: k, value: 'null'}\n- {key: !!str yes, value: !!str null}\n",
    );
    assert_eq!(path(&set, &[("k", "null")]), Some("k=null".into()));
    assert_eq!(path(&set, &[("k", "x")]), None);
}

#[test]
fn an_empty_value_is_none() {
    let set = policies("domain: d\ndescriptors:\n- {key: k, value: ''}\n");
    assert_eq!(path(&set, &[("k", "any")]), Some("k".into()));
}

#[test]
fn numbers_and_truths_are_those_of_yaml_1_1() {
    for (number, amount) in
        [("0x10", 16), ("010", 8), ("0o10", 8), ("0b11", 3), ("1_000", 1_000), ("+5", 5)]
    {
        let text = limited(&format!("{{unit: MINUTE, requests_per_unit: {number}}}"));
        assert_eq!(window(&text), format!("{amount}/1m"));
    }
    for truth in ["true", "Yes", "ON", "y"] {
        let set = policies(&limited(&format!("{{unlimited: {truth}}}")));
        assert_eq!(*set.rules().next().unwrap().imposes(), Imposes::Unlimited);
    }
    for (limit, message) in [
        ("{unit: day, requests_per_unit: '5'}", "without quotes, found the string `5`"),
        ("{unit: day, requests_per_unit: 4294967296}", "from 0 to 4294967295"),
        ("{unlimited: true, unit: day}", "`unit` and `unlimited: true` cannot be combined"),
    ] {
        refused(&[&limited(limit)], &[message]);
    }
}

#[test]
fn a_missing_amount_is_a_ban_and_a_warning() {
    let ban = limited("{unit: hour}");
    assert_eq!(window(&ban), "0/1h");
    assert!(warnings(&ban).contains("`requests_per_unit` is missing, so all requests are denied"));
    assert_eq!(warnings(&limited("{unit: hour, requests_per_unit: 0}")), "");
}

#[test]
fn units_have_the_lengths_of_that_service() {
    let lengths = ["second", "minute", "hour", "day", "week", "month", "year"]
        .map(|unit| window(&limited(&format!("{{unit: {unit}, requests_per_unit: 1}}"))));
    assert_eq!(lengths, ["1/1s", "1/1m", "1/1h", "1/1d", "1/7d", "1/30d", "1/365d"]);
}

#[test]
fn a_unit_or_an_amount_of_an_unlimited_rule_is_a_warning_if_it_means_nothing() {
    assert!(warnings(&limited("{unlimited: true, unit: unknown}")).contains("no effect"));
    assert!(warnings(&limited("{unlimited: true, requests_per_unit: 5}")).contains("no effect"));
}

#[test]
fn anchors_aliases_and_merges_work() {
    let text = "domain: d
descriptors:
- key: a
  rate_limit: &base {unit: minute, requests_per_unit: 5}
- key: b
  rate_limit: *base
- key: c
  rate_limit: {<<: *base, requests_per_unit: 7}
- key: e
  rate_limit: {<<: [{unit: day}, *base]}
";
    let set = policies(text);
    let amounts: Vec<_> = set.rules().map(|rule| format!("{:?}", rule.imposes())).collect();
    assert_eq!(amounts[0], amounts[1]);
    let windows: Vec<_> = set.rules().map(window_of).collect();
    assert_eq!(windows, ["5/1m", "5/1m", "7/1m", "5/1d"]);
}

#[test]
fn a_byte_order_mark_and_carriage_returns_do_not_matter() {
    let text = "\u{feff}domain: d\r\ndescriptors:\r\n- key: k\r\n  value: v\r\n";
    assert_eq!(path(&policies(text), &[("k", "v")]), Some("k=v".into()));
    let text = "\u{feff}domain: d\r\ndescriptors:\r\n- kay: k\r\n";
    refused(&[text], &["a.yaml:3:3\n  |\n3 | - kay: k\n  |   ^^^\n"]);
}

#[test]
fn a_file_holds_several_documents() {
    let set = policies("domain: d\n---\n# nothing\n---\ndomain: e\ndescriptors:\n- key: k\n---\n");
    assert_eq!(
        set.policies().map(|policy| policy.domain().to_owned()).collect::<Vec<_>>(),
        ["d", "e"]
    );
    refused(&["# nothing\n"], &["file contains no policy"]);
    refused(&[""], &["file contains no policy"]);
}

#[test]
fn paths_that_join_to_the_same_text_are_different() {
    let set = policies("domain: d\ndescriptors:\n- {key: a_b}\n- {key: a, value: b}\n");
    assert_eq!(path(&set, &[("a_b", "x")]), Some("a_b".into()));
    assert_eq!(path(&set, &[("a", "b")]), Some("a=b".into()));
    assert_eq!(path(&set, &[("a", "c")]), None);
}

#[test]
fn metadata_keeps_its_content_and_its_keys_become_text() {
    let text = "domain: d
descriptors:
- key: k
  metadata: {y: 2, 3: [1.5, no, ~, 'no'], text: 2001-01-01, unit: {deep: 0x10}}
";
    let set = policies(text);
    let metadata = set.rules().next().unwrap().metadata().unwrap().to_string();
    assert_eq!(
        metadata,
        r#"{"true":2,"3":[1.5,false,null,"no"],"text":"2001-01-01","unit":{"deep":16}}"#
    );
}

#[test]
fn one_counter_where_the_threshold_is_shared() {
    let text = "domain: d
descriptors:
- {key: f, value: x/*, share_threshold: true, rate_limit: {unit: day, requests_per_unit: 1}}
- {key: f, value: y/*, rate_limit: {unit: day, requests_per_unit: 1}}
- {key: g*, share_threshold: true, rate_limit: {unit: day, requests_per_unit: 1}}
";
    let set = policies(text);
    assert_eq!(hit(&set, &[("f", "x/1")]), hit(&set, &[("f", "x/2")]));
    assert_eq!(hit(&set, &[("f", "x/1")]), hit(&set, &[("f", "x/*")]));
    assert_ne!(hit(&set, &[("f", "y/1")]), hit(&set, &[("f", "y/2")]));
    assert_eq!(hit(&set, &[("g1", "1")]), hit(&set, &[("g1", "2")]));
    assert_ne!(hit(&set, &[("g1", "1")]), hit(&set, &[("g2", "1")]));
}
