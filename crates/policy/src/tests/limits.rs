//! Options of limits, and their effect on the identity of counters and the version of a set.

use tollgate_core::algorithm::time::Micros;
use tollgate_core::algorithm::{Algorithm, Charge, OnStoreError};
use tollgate_core::descriptor::KeyBuffer;

use super::super::{Imposes, LeaseHolders, LeaseSize, PolicySet};
use super::{identity, limited, load_all, policies, refused};

fn version(text: &str) -> String {
    policies(text).version().to_owned()
}

#[test]
fn a_counter_outlives_amounts_and_modes_and_not_its_shape() {
    let base = identity("{unit: minute, requests_per_unit: 5}");
    for same in [
        "{unit: 60s, requests_per_unit: 6}",
        "{unit: minute, requests_per_unit: 5, charge: admitted, name: n, on_store_error: deny, record: [x]}",
        "{algorithm: fixed_window, windows: [{unit: minute, requests_per_unit: 5}]}",
    ] {
        assert_eq!(identity(same), base, "{same}");
    }
    for other in [
        "{unit: hour, requests_per_unit: 5}",
        "{algorithm: sliding_window, unit: minute, requests_per_unit: 5}",
        "{algorithm: sliding_window, unit: minute, requests_per_unit: 5, buckets: 30}",
        "{algorithm: sliding_window, unit: minute, requests_per_unit: 5, estimate: weighted}",
        "{algorithm: gcra, unit: minute, requests_per_unit: 5}",
        "{algorithm: token_bucket, unit: minute, requests_per_unit: 5}",
        "{windows: [{unit: minute, requests_per_unit: 5}, {unit: hour, requests_per_unit: 5}]}",
        "{unlimited: true}",
    ] {
        assert_ne!(identity(other), base, "{other}");
    }
    let day = |zone: &str| {
        identity(&format!("{{unit: day, requests_per_unit: 5, calendar: true, time_zone: {zone}}}"))
    };
    assert_ne!(day("UTC"), day("Europe/Berlin"));
    assert_ne!(day("UTC"), identity("{unit: day, requests_per_unit: 5}"));
    let gcra = |burst: u32| {
        identity(&format!("{{algorithm: gcra, unit: day, requests_per_unit: 5, burst: {burst}}}"))
    };
    assert_eq!(gcra(1), gcra(2));
}

#[test]
fn the_identity_is_of_the_path_as_written() {
    let paths = [
        "- {key: k}",
        "- {key: k, value: v}",
        "- {key: k, value: v*}",
        "- {key: k, value: v*, share_threshold: true}",
        "- {key: k*}",
        "- {key: k, value: 'k', descriptors: [{key: k}]}",
    ];
    let identities: std::collections::HashSet<_> = paths
        .iter()
        .flat_map(|rules| {
            let set = policies(&format!("domain: d\ndescriptors:\n{rules}\n"));
            set.rules().map(|rule| *rule.identity()).collect::<Vec<_>>()
        })
        .collect();
    assert_eq!(identities.len(), paths.len() + 1);
}

#[test]
fn the_version_is_of_the_meaning() {
    let text =
        "domain: d\ndescriptors:\n- key: k\n  rate_limit: {unit: minute, requests_per_unit: 500}\n";
    assert_eq!(version(text).len(), 16);
    assert_eq!(version(text), version(&format!("# a comment\n{}", text.replace("minute", "60s"))));
    let files = |texts: &[&str]| load_all(texts).unwrap().policies.version().to_owned();
    assert_eq!(files(&[text, "domain: e\n"]), files(&["domain: e\n", text]));
    let changes = [
        text.replace('5', "6"),
        text.replace("unit: minute", "charge: admitted, unit: minute"),
        text.replace("unit: minute", "name: n, unit: minute"),
        text.replace("unit: minute", "on_store_error: deny, unit: minute"),
        text.replace("unit: minute", "record: [a], unit: minute"),
        text.replace("unit: minute", "lease: {size: 1%, ttl: 1s}, unit: minute"),
        text.replace("unit: minute", "override: inherit, unit: minute"),
        text.replace("- key: k", "- key: k\n  quota_mode: true"),
        text.replace("- key: k", "- key: k\n  metadata: {a: 1}"),
        text.replace("domain: d", "domain: e"),
        format!("{text}---\ndomain: e\n"),
    ];
    let versions: std::collections::HashSet<_> = changes.iter().map(|text| version(text)).collect();
    assert_eq!(versions.len(), changes.len());
    assert!(!versions.contains(&version(text)));
}

#[test]
fn defaults_apply_where_they_can_and_an_option_of_the_rule_wins() {
    let text = "domain: d
defaults: {algorithm: gcra, burst: 7, charge: always, buckets: 10, override: inherit, on_store_error: deny}
descriptors:
- {key: a, rate_limit: {unit: minute, requests_per_unit: 5}}
- {key: b, rate_limit: {unit: minute, requests_per_unit: 5, burst: 3, charge: blamed}}
- {key: c, rate_limit: {unit: minute, requests_per_unit: 5, algorithm: sliding_log}}
- {key: e, rate_limit: {unlimited: true}}
";
    let set = policies(text);
    let seen = set.rules().map(|rule| match rule.imposes() {
        Imposes::Limit(limit) => {
            let burst =
                if let Algorithm::Gcra(gcra) = limit.algorithm() { gcra.burst() } else { 0 };
            assert_eq!(limit.on_store_error(), OnStoreError::Deny);
            (rule.algorithm(), burst, Some(limit.charge_mode()), rule.inherits_override())
        }
        Imposes::Nothing | Imposes::Unlimited => {
            (rule.algorithm(), 0, None, rule.inherits_override())
        }
    });
    let expected = [
        ("gcra", 7, Some(Charge::Always), true),
        ("gcra", 3, Some(Charge::Blamed), true),
        ("sliding_log", 0, Some(Charge::Admitted), false),
        ("", 0, None, false),
    ];
    assert_eq!(seen.collect::<Vec<_>>(), expected);
}

#[test]
fn a_rule_has_the_options_of_its_limit() {
    let text = limited(
        "{unit: day, requests_per_unit: 5, name: n, replaces: [{name: n2}], record: [user, ip], override: inherit, \
         lease: {size: 1%, ttl: 100ms}}",
    );
    let loaded = load_all(&[&text]).unwrap();
    let rule = loaded.policies.rules().next().unwrap();
    assert_eq!((rule.name(), rule.domain(), rule.id()), (Some("n"), "d", 0));
    assert_eq!(rule.replaces(), [Box::from("n2")]);
    assert_eq!(rule.record(), [Box::from(b"user".as_slice()), Box::from(b"ip".as_slice())]);
    assert!(rule.inherits_override());
    let lease = rule.lease().unwrap();
    assert_eq!(lease.ttl.to_string(), "100ms");
    assert!(matches!(lease.size, LeaseSize::BasisPoints(part) if part.get() == 100));
    assert_eq!(lease.holders, LeaseHolders::Process);
}

#[test]
fn rules_are_numbered_over_the_whole_set() {
    let text = "domain: z\ndescriptors: [{key: a, descriptors: [{key: b}]}]\n---\ndomain: a\ndescriptors: [{key: c}]\n";
    let set = policies(text);
    let numbered: Vec<_> = set.rules().map(|rule| (rule.id(), rule.path().to_owned())).collect();
    assert_eq!(numbered, [(0, "c".into()), (1, "a".into()), (2, "a > b".into())]);
    let override_key = |domain| {
        let mut keys = KeyBuffer::default();
        keys.begin();
        let range = set.find(domain).unwrap().finish_override(&mut keys, Micros::from_secs(1));
        keys.key(domain, &range).bytes().to_vec()
    };
    assert_ne!(override_key("a"), override_key("z"));
}

#[test]
fn rules_nest_to_a_bound() {
    let nested = |depth: usize| {
        let open = "{key: k, descriptors: [".repeat(depth);
        format!("domain: d\ndescriptors: [{open}{}]\n", "]}".repeat(depth))
    };
    assert_eq!(policies(&nested(32)).rules().count(), 32);
    refused(&[&nested(33)], &["nested more than 32 levels deep"]);
    refused(&[&nested(100)], &["nested more than 128 levels deep"]);
    refused(&[&nested(200)], &["invalid YAML: recursion limit exceeded"]);
}

#[test]
fn a_candidate_counts_apart_and_is_a_part_of_the_version() {
    let of = |candidate: &str| {
        policies(&format!(
            "domain: d\ndescriptors:\n- {{key: k, rate_limit: {{unit: day, requests_per_unit: 5}}{candidate}}}\n"
        ))
    };
    let plain = of("");
    let same = of(", candidate: {unit: day, requests_per_unit: 5}");
    let other = of(", candidate: {unit: day, requests_per_unit: 6}");
    let rule = |set: &PolicySet| *set.rules().next().unwrap().identity();
    let candidate = |set: &PolicySet| *set.rules().next().unwrap().candidate().unwrap().identity();
    assert_eq!((rule(&plain), rule(&same)), (rule(&same), rule(&other)));
    assert_ne!(rule(&same), candidate(&same));
    assert_eq!(candidate(&same), candidate(&other), "an amount changes no counter");
    assert!(plain.version() != same.version() && same.version() != other.version());
}
