//! Dialect of envoyproxy/ratelimit: whatever that service silently ignores is a warning.

use tollgate_core::algorithm::Charge;

use super::super::{CompileOptions, Imposes, PolicyDialect, load};
use super::{Loaded, ProblemReport, limited, load_all, path, sources};

fn theirs(text: &str) -> Result<Loaded, ProblemReport> {
    load(
        &sources(&[text]),
        &CompileOptions { dialect: PolicyDialect::Envoyproxy, ..CompileOptions::default() },
    )
}

/// Returns the warnings about a policy that the dialect of Tollgate rejects.
fn passed_over(text: &str) -> (Loaded, String) {
    assert!(load_all(&[text]).is_err(), "{text}");
    let loaded = theirs(text).unwrap_or_else(|report| panic!("{report}"));
    let warnings = loaded.warnings.to_string();
    (loaded, warnings)
}

#[test]
fn words_in_another_place_are_passed_over() {
    let cases = [
        "domain: d\ndescriptors: [{key: k, unit: day}]\n",
        "domain: d\ndescriptors: [{key: k, domain: e}]\n",
        "domain: d\nmetadata: {any: thing}\ndescriptors: [{key: k}]\n",
        "domain: d\nkey: x\ndescriptors: [{key: k}]\n",
        "domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 1, shadow_mode: true}}]\n",
        "domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 1, metadata: {a: b}}}]\n",
        "domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 1, replaces: [{name: n, key: x}]}}]\n",
    ];
    for text in cases {
        let (loaded, warnings) = passed_over(text);
        assert!(warnings.contains("is ignored"), "{text}\n{warnings}");
        assert_eq!(path(&loaded.policies, &[("k", "v")]), Some("k".into()));
    }
}

#[test]
fn the_last_value_of_a_duplicate_word_applies() {
    let (loaded, warnings) = passed_over(
        "domain: d\ndescriptors:\n- {key: a, rate_limit: {unit: day, unit: hour, requests_per_unit: 1}, key: b}\n",
    );
    assert!(warnings.contains("duplicate key `unit`, the last value is used"), "{warnings}");
    assert_eq!(path(&loaded.policies, &[("b", "x")]), Some("b".into()));
    match loaded.policies.rules().next().unwrap().imposes() {
        Imposes::Limit(limit) => assert_eq!(limit.windows()[0].period().to_string(), "1h"),
        other @ (Imposes::Nothing | Imposes::Unlimited) => panic!("{other:?}"),
    }
}

#[test]
fn the_first_document_of_a_file_counts() {
    let loaded =
        theirs("domain: d\ndescriptors: [{key: k}]\n---\ndomain: d\n---\nnot: a policy\n").unwrap();
    assert_eq!(loaded.policies.policies().count(), 1);
    assert_eq!(loaded.warnings.to_string().matches("only the first document").count(), 2);
}

#[test]
fn policies_that_envoyproxy_ratelimit_rejects_are_rejected() {
    let cases = [
        ("domain: d\ndescriptors: [{key: k, algorythm: gcra}]\n", "unknown key"),
        ("domain: d\nDescriptors: []\n", "unknown key"),
        ("descriptors: []\n", "`domain` is missing"),
        ("domain: ''\n", "must not be empty"),
        ("- domain: d\n", "must be a mapping"),
        ("", "contains no policy"),
        ("domain: d\ndescriptors: [text]\n", "must be a mapping"),
        ("domain: d\ndescriptors: [~]\n", "must be a mapping"),
        ("domain: d\ndescriptors: [{value: v}]\n", "`key` is missing"),
        (
            "domain: d\ndescriptors: [{key: k}, {key: k, value: ''}]\n",
            "duplicate rule for this key and value",
        ),
        ("domain: d\ndescriptors: [{key: k, rate_limit: {}}]\n", "`unit` is missing"),
        ("domain: d\ndescriptors: [{key: k, rate_limit: {unit: unknown}}]\n", "invalid unit"),
        (
            "domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, unlimited: true}}]\n",
            "cannot be combined",
        ),
        (
            "domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: '1'}}]\n",
            "without quotes",
        ),
        (
            "domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 4294967296}}]\n",
            "from 0 to",
        ),
        (
            "domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, requests_per_unit: 1.5}}]\n",
            "whole number",
        ),
        ("domain: d\ndescriptors: [{key: k, shadow_mode: 1}]\n", "true or false"),
        (
            "domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, replaces: [{name: ''}]}}]\n",
            "must not be empty",
        ),
        (
            "domain: d\ndescriptors: [{key: k, rate_limit: {unit: day, name: n, replaces: [{name: n}]}}]\n",
            "itself",
        ),
        ("domain: d\ndescriptors: [{key: k, value: v, share_threshold: true}]\n", "requires a `*`"),
        ("domain: d\ndescriptors:\n\t- key: k\n", "invalid YAML"),
        ("domain: d\ndescriptors: [{key: k, metadata: text}]\n", "`metadata` must be a mapping"),
    ];
    for (text, why) in cases {
        let report = theirs(text).err().unwrap_or_else(|| panic!("{text}")).to_string();
        assert!(report.contains(why), "{text}\n{report}");
    }
}

#[test]
fn policies_that_envoyproxy_ratelimit_accepts_are_accepted() {
    let cases = [
        "domain: d\n",
        "domain: d\ndescriptors: ~\n",
        "domain: d\ndescriptors: [{key: k, rate_limit: ~}]\n",
        "domain: d\ndescriptors: [{key: k, rate_limit: {unlimited: true, unit: fortnight}}]\n",
        "domain: d\ndescriptors: [{key: k, rate_limit: {unlimited: true, requests_per_unit: 7}}]\n",
        "domain: d\ndescriptors: [{key: k, rate_limit: {unit: DAY, replaces: [{name: unknown}]}}]\n",
        "domain: d\ndescriptors: [{key: 'k*', share_threshold: true, rate_limit: {unit: day}}]\n",
        "domain: d\ndescriptors: [{key: k, quota_mode: on, shadow_mode: yes, rate_limit: {unit: Week}}]\n",
        "domain: 12\ndescriptors: [{key: 0x10, value: yes}]\n",
    ];
    for text in cases {
        theirs(text).unwrap_or_else(|report| panic!("{text}\n{report}"));
    }
}

#[test]
fn fixed_windows_are_charged_as_they_say_or_as_is_usual() {
    let charges = |text: &str, usual| {
        let options = CompileOptions { fixed_window_charge: usual, ..CompileOptions::default() };
        let loaded = load(&sources(&[text]), &options).unwrap();
        let rule = loaded.policies.rules().next().unwrap();
        let of_overrides = loaded.policies.find("d").unwrap().override_charge();
        match rule.imposes() {
            Imposes::Limit(limit) => (limit.charge_mode(), of_overrides),
            other @ (Imposes::Nothing | Imposes::Unlimited) => panic!("{other:?}"),
        }
    };
    let plain = limited("{unit: day, requests_per_unit: 1}");
    let gcra = limited("{algorithm: gcra, unit: day, requests_per_unit: 1}");
    let own = limited("{unit: day, requests_per_unit: 1, charge: admitted}");
    assert_eq!(charges(&plain, None), (Charge::Always, Charge::Always));
    assert_eq!(charges(&plain, Some(Charge::Blamed)), (Charge::Blamed, Charge::Blamed));
    assert_eq!(charges(&own, Some(Charge::Blamed)).0, Charge::Admitted);
    assert_eq!(charges(&gcra, Some(Charge::Blamed)).0, Charge::Admitted);
}
