//! Leased hits in the hands of clients: which rules lend, and what `check` and `explain` report.

use tollgate_core::descriptor::entries;

use super::{limited, load_all, policies, refused, warnings};
use crate::explain::explain;
use crate::{LeaseHolder, NoLoan};

fn lent(options: &str) -> String {
    limited(&format!(
        "{{unit: minute, requests_per_unit: 60000, lease: {{size: 1%, ttl: 1s, holders: [process, client]}}{options}}}"
    ))
}

/// Returns the largest block and the longest time of the only rule's loans.
fn loan(text: &str) -> Result<(u32, String), NoLoan> {
    let loaded = load_all(&[text]).unwrap_or_else(|report| panic!("{report}"));
    let rule = loaded.policies.rules().next().unwrap();
    let (limit, lease) = rule.loan()?;
    Ok((lease.largest(limit).unwrap(), limit.longest_loan(lease.ttl).to_string()))
}

#[test]
fn hits_are_lent_only_by_rules_that_permit_clients() {
    assert_eq!(loan(&lent("")), Ok((600, "1s".to_owned())));
    let without = limited("{unit: minute, requests_per_unit: 60000, lease: {size: 1%, ttl: 1s}}");
    assert_eq!(loan(&without), Err(NoLoan::NoLease));
    assert_eq!(loan(&limited("{unlimited: true}")), Err(NoLoan::NoLimit));
    let ban = lent("").replace("60000", "0");
    assert_eq!(loan(&ban), Err(NoLoan::Ban));
    let quota = lent("").replace("- key: k", "- key: k\n  quota_mode: true");
    assert_eq!(loan(&quota), Err(NoLoan::Quota));
    assert_eq!(loan(&lent(", record: [user]")), Err(NoLoan::Records));
    assert_eq!(loan(&lent(", replaces: [{name: other}]")), Err(NoLoan::Replaces));
    assert_eq!(loan(&lent("").replace("60000", "60")), Err(NoLoan::TooSmall));
}

#[test]
fn a_loan_of_a_rolling_limit_ends_after_a_part_of_its_period() {
    for algorithm in ["sliding_window", "gcra", "token_bucket"] {
        let rolling = lent("").replace("ttl: 1s", "ttl: 10s");
        let rolling = rolling.replace("{unit", &format!("{{algorithm: {algorithm}, unit"));
        assert_eq!(loan(&rolling), Ok((600, "3s".to_owned())), "{algorithm}");
    }
    let long = lent("").replace("minute", "day").replace("ttl: 1s", "ttl: 10m");
    assert_eq!(loan(&long), Ok((600, "1m".to_owned())));
}

#[test]
fn the_process_leases_only_where_it_is_a_holder() {
    let text = lent("").replace("[process, client]", "[client]");
    let set = policies(&text);
    let rule = set.rules().next().unwrap();
    assert!(rule.lease_for(LeaseHolder::Process).is_none());
    assert!(rule.lease_for(LeaseHolder::Client).is_some());
}

#[test]
fn holders_are_a_part_of_the_version_only_if_they_are_set() {
    let version = |text: &str| policies(text).version().to_owned();
    let without = lent("").replace(", holders: [process, client]", "");
    let as_default = lent("").replace("[process, client]", "[process]");
    assert_eq!(version(&without), version(&as_default));
    assert_ne!(version(&without), version(&lent("")));
}

#[test]
fn other_holders_and_none_are_errors() {
    let of = |holders: &str| lent("").replace("[process, client]", holders);
    let expected = ["invalid lease holder `envoy`", "expected a list of `process`"];
    refused(&[&of("[process, envoy]")], &expected);
    refused(&[&of("[]")], &["`holders` must not be empty"]);
}

#[test]
fn check_warns_of_loans_that_are_shorter_or_none() {
    let found = warnings(&lent(", record: [user]"));
    assert!(found.contains("no hits are lent to clients"), "{found}");
    assert!(found.contains("the limit records its callers"), "{found}");
    assert!(!found.contains("lent to proxies"), "{found}");
    let with_quota =
        lent(", record: [user]").replace("ttl: 1s", "ttl: 1s, rlqs: { ttl: 15s, size: 10% }");
    let found = warnings(&with_quota);
    assert!(found.contains("no hits are lent to proxies"), "{found}");
    assert!(
        found.contains("the limit records its callers, which proxies do not report"),
        "{found}"
    );
    let rolling = lent("").replace("ttl: 1s", "ttl: 10s");
    let found = warnings(&rolling.replace("{unit", "{algorithm: gcra, unit"));
    assert!(found.contains("clients hold leased hits for at most 3s"), "{found}");
    assert!(found.contains("1/20 of the period"), "{found}");
}

#[test]
fn loans_are_explained() {
    let of = |text: &str| {
        let loaded = load_all(&[text]).unwrap();
        let (text, _) = explain(&loaded.policies, "d", &entries("k=a"));
        text.split_once("loans           ").unwrap().1.to_owned()
    };
    insta::assert_snapshot!(of(&lent("")), @r##"
        clients may hold blocks of up to 600 hits, each for at most 1s
                        at most the limit in a window
        "##);
    let rolling = lent("").replace("{unit", "{algorithm: gcra, unit");
    insta::assert_snapshot!(of(&rolling), @r##"
        clients may hold blocks of up to 600 hits, each for at most 1s
                        at most the limit in any period less 1s; in a full one, the blocks that were held when it began more
        "##);
    let refused = of(&lent(", record: [user]"));
    assert_eq!(refused, "none: the limit records its callers, which a holder does not report\n");
}
