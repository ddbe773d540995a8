//! Warnings about policies that work but are probably a mistake.

use super::{load_all, warnings};

#[test]
fn rules_that_can_never_match_are_told() {
    let text = "domain: d
descriptors:
- {key: a, value: '*'}
- {key: a}
- {key: a, value: x*}
- {key: a, value: exact}
- {key: b, value: x*y*}
- {key: b, value: x*z}
- {key: b, value: x1y*}
- {key: b}
";
    insta::assert_snapshot!(warnings(text), @r##"
    warning: this rule can never match
     --> a.yaml:4:9
      |
    4 | - {key: a}
      |         ^
     --> a.yaml:3:9
      |
    3 | - {key: a, value: '*'}
      |         ^ takes everything that it would match
      = order: exact key and value, then rules with `*` as written, then the key alone
      = in rule `a` of domain `d`

    warning: this rule can never match
     --> a.yaml:5:9
      |
    5 | - {key: a, value: x*}
      |         ^
     --> a.yaml:3:9
      |
    3 | - {key: a, value: '*'}
      |         ^ takes everything that it would match
      = order: exact key and value, then rules with `*` as written, then the key alone
      = in rule `a=x*` of domain `d`

    warning: this rule can never match
     --> a.yaml:9:9
      |
    9 | - {key: b, value: x1y*}
      |         ^
     --> a.yaml:7:9
      |
    7 | - {key: b, value: x*y*}
      |         ^ takes everything that it would match
      = order: exact key and value, then rules with `*` as written, then the key alone
      = in rule `b=x1y*` of domain `d`
    "##);
}

#[test]
fn what_is_probably_not_meant_is_told() {
    let text = "domain: d
descriptors:
- key: llm_tokens
  rate_limit: {algorithm: gcra, unit: minute, requests_per_unit: 100, replaces: [{name: smal}]}
- key: a
  rate_limit: {unit: minute, requests_per_unit: 100, name: small}
- key: b
  rate_limit: {unit: minute, requests_per_unit: 100, name: 'say \"x\"'}
";
    insta::assert_snapshot!(warnings(text), @r##"
    warning: this looks paid afterwards, and is charged only when admitted
     --> a.yaml:4:16
      |
    4 |   rate_limit: {algorithm: gcra, unit: minute, requests_per_unit: 100, replaces: [{name: smal}]}
      |                ^^^^^^^^^
      = a peek nearly always passes, and a later charge that does not fit is lost
      = where the cost is known only when the response is done, write `charge: afterwards`
      = in rule `llm_tokens` of domain `d`

    warning: no limit of this policy is called `smal`
     --> a.yaml:4:89
      |
    4 |   rate_limit: {algorithm: gcra, unit: minute, requests_per_unit: 100, replaces: [{name: smal}]}
      |                                                                                         ^^^^
      = did you mean `small`?
      = in rule `llm_tokens` of domain `d`

    warning: a quote or backslash in the name of a limit
     --> a.yaml:8:60
      |
    8 |   rate_limit: {unit: minute, requests_per_unit: 100, name: 'say "x"'}
      |                                                            ^^^^^^^^^
      = proxies put the name between quotes in a header, as it is
      = in rule `b` of domain `d`
    "##);
}

#[test]
fn what_a_mistake_hides_is_not_missed_a_second_time() {
    let text = "domain: d
descriptors:
- {key: a, rate_limit: {unit: fortnight, name: small}}
- {key: b, rate_limit: {unit: day, requests_per_unit: 1, name: [other], burst: 1}}
- {key: c, rate_limit: {unit: day, requests_per_unit: 1, replaces: [{name: small}, {name: other}]}}
";
    let report = load_all(&[text]).unwrap_err();
    let messages: Vec<_> = report.iter().map(|problem| problem.message()).collect();
    let expected = [
        "`requests_per_unit` is missing, which is a ban",
        "`fortnight` is not a unit",
        "`name` must be text, found a list",
    ];
    assert_eq!(messages, expected);
}

#[test]
fn leases_that_help_nobody_are_told() {
    let text = "domain: d
descriptors:
- {key: ban, rate_limit: {unit: minute, requests_per_unit: 0, lease: {size: 10, ttl: 1s}}}
- {key: few, rate_limit: {unit: minute, requests_per_unit: 60, lease: {size: 50%, ttl: 1s}}}
- {key: small, rate_limit: {unit: minute, requests_per_unit: 60000, lease: {size: 1, ttl: 1s}}}
- {key: vote, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 60000, lease: {size: 1%, ttl: 1s}}}
- {key: long, rate_limit: {unit: minute, requests_per_unit: 60000, lease: {size: 1%, ttl: 1m}}}
- {key: longer, rate_limit: {algorithm: gcra, unit: minute, requests_per_unit: 60000, lease: {size: 1%, ttl: 1h}}}
- {key: good, rate_limit: {unit: minute, requests_per_unit: 60000, lease: {size: 1%, ttl: 1s}}}
";
    insta::assert_snapshot!(warnings(text), @r##"
    warning: this lease has no effect
     --> a.yaml:3:71
      |
    3 | - {key: ban, rate_limit: {unit: minute, requests_per_unit: 0, lease: {size: 10, ttl: 1s}}}
      |                                                                       ^^^^
      = a ban admits nothing that could be taken in advance
      = in rule `ban` of domain `d`

    warning: this lease has no effect
     --> a.yaml:4:72
      |
    4 | - {key: few, rate_limit: {unit: minute, requests_per_unit: 60, lease: {size: 50%, ttl: 1s}}}
      |                                                                        ^^^^
      = no block has fewer than 4 hits, or more than 1/16 of those that are left; the size is 30, and at most 60 are left
      = in rule `few` of domain `d`

    warning: this lease has no effect
     --> a.yaml:5:77
      |
    5 | - {key: small, rate_limit: {unit: minute, requests_per_unit: 60000, lease: {size: 1, ttl: 1s}}}
      |                                                                             ^^^^
      = no block has fewer than 4 hits, or more than 1/16 of those that are left; the size is 1, and at most 60000 are left
      = in rule `small` of domain `d`

    warning: this lease has no effect
     --> a.yaml:6:94
      |
    6 | - {key: vote, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 60000, lease: {size: 1%, ttl: 1s}}}
      |                                                                                              ^^^^
      = a limit in quota mode is judged with the others, where all of them are
      = in rule `vote` of domain `d`

    warning: the ttl of this lease is no shorter than the period
     --> a.yaml:7:76
      |
    7 | - {key: long, rate_limit: {unit: minute, requests_per_unit: 60000, lease: {size: 1%, ttl: 1m}}}
      |                                                                            ^^^^
      = a block ends with its window all the same
      = in rule `long` of domain `d`

    warning: the ttl of this lease is no shorter than the period
     --> a.yaml:8:95
      |
    8 | - {key: longer, rate_limit: {algorithm: gcra, unit: minute, requests_per_unit: 60000, lease: {size: 1%, ttl: 1h}}}
      |                                                                                               ^^^^
      = the limit holds in any period less the ttl: here in none
      = in rule `longer` of domain `d`
    "##);
}
