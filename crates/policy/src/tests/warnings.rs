//! Warnings about policies that work but are probably a mistake.

use super::{load_all, warnings};

#[test]
fn unreachable_rules_are_reported() {
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
    warning: unreachable rule: another rule matches first
     --> a.yaml:4:9
      |
    4 | - {key: a}
      |         ^
     --> a.yaml:3:9
      |
    3 | - {key: a, value: '*'}
      |         ^ matches everything that the rule would match
      = matching order: exact key and value, then rules with `*` as written, then the key alone
      = in rule `a` of domain `d`

    warning: unreachable rule: another rule matches first
     --> a.yaml:5:9
      |
    5 | - {key: a, value: x*}
      |         ^
     --> a.yaml:3:9
      |
    3 | - {key: a, value: '*'}
      |         ^ matches everything that the rule would match
      = matching order: exact key and value, then rules with `*` as written, then the key alone
      = in rule `a=x*` of domain `d`

    warning: unreachable rule: another rule matches first
     --> a.yaml:9:9
      |
    9 | - {key: b, value: x1y*}
      |         ^
     --> a.yaml:7:9
      |
    7 | - {key: b, value: x*y*}
      |         ^ matches everything that the rule would match
      = matching order: exact key and value, then rules with `*` as written, then the key alone
      = in rule `b=x1y*` of domain `d`
    "##);
}

#[test]
fn probable_mistakes_are_warnings() {
    let text = "domain: d
descriptors:
- key: llm_tokens
  rate_limit: {algorithm: gcra, unit: minute, requests_per_unit: 100, replaces: [{name: smal}]}
- key: a
  rate_limit: {unit: minute, requests_per_unit: 100, name: small}
- key: b
  rate_limit: {unit: minute, requests_per_unit: 100, name: 'say \"x\"'}
- key: tokens_with_holds
  rate_limit: {unit: minute, requests_per_unit: 100, hold: {ttl: 1m}}
";
    insta::assert_snapshot!(warnings(text), @r##"
    warning: the cost of these hits may be known only after the response, but `charge` is `admitted`
     --> a.yaml:4:16
      |
    4 |   rate_limit: {algorithm: gcra, unit: minute, requests_per_unit: 100, replaces: [{name: smal}]}
      |                ^^^^^^^^^
      = a peek is almost always admitted, and a later charge that exceeds the limit is not counted
      = if the cost is known only after the response, set `charge: afterwards`
      = in rule `llm_tokens` of domain `d`

    warning: `replaces` names an unknown limit `smal`
     --> a.yaml:4:89
      |
    4 |   rate_limit: {algorithm: gcra, unit: minute, requests_per_unit: 100, replaces: [{name: smal}]}
      |                                                                                         ^^^^
      = did you mean `small`?
      = in rule `llm_tokens` of domain `d`

    warning: limit name contains a quote or a backslash
     --> a.yaml:8:60
      |
    8 |   rate_limit: {unit: minute, requests_per_unit: 100, name: 'say "x"'}
      |                                                            ^^^^^^^^^
      = proxies quote the name in a header without escaping it
      = in rule `b` of domain `d`
    "##);
}

#[test]
fn a_word_inside_an_invalid_part_is_not_reported_as_missing() {
    let text = "domain: d
descriptors:
- {key: a, rate_limit: {unit: fortnight, name: small}}
- {key: b, rate_limit: {unit: day, requests_per_unit: 1, name: [other], burst: 1}}
- {key: c, rate_limit: {unit: day, requests_per_unit: 1, replaces: [{name: small}, {name: other}]}}
";
    let report = load_all(&[text]).unwrap_err();
    let messages: Vec<_> = report.iter().map(|problem| problem.message()).collect();
    let expected = [
        "`requests_per_unit` is missing, so all requests are denied",
        "invalid unit `fortnight`",
        "`name` must be a string, found a list",
    ];
    assert_eq!(messages, expected);
}

#[test]
fn leases_without_effect_are_reported() {
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
    warning: lease has no effect
     --> a.yaml:3:71
      |
    3 | - {key: ban, rate_limit: {unit: minute, requests_per_unit: 0, lease: {size: 10, ttl: 1s}}}
      |                                                                       ^^^^
      = a ban (`requests_per_unit: 0`) has no hits to lease
      = in rule `ban` of domain `d`

    warning: lease has no effect
     --> a.yaml:4:72
      |
    4 | - {key: few, rate_limit: {unit: minute, requests_per_unit: 60, lease: {size: 50%, ttl: 1s}}}
      |                                                                        ^^^^
      = a lease has at least 4 hits and at most 1/16 of the remaining hits
      = the size of this lease is 30, and at most 60 hits remain
      = in rule `few` of domain `d`

    warning: lease has no effect
     --> a.yaml:5:77
      |
    5 | - {key: small, rate_limit: {unit: minute, requests_per_unit: 60000, lease: {size: 1, ttl: 1s}}}
      |                                                                             ^^^^
      = a lease has at least 4 hits and at most 1/16 of the remaining hits
      = the size of this lease is 1, and at most 60000 hits remain
      = in rule `small` of domain `d`

    warning: lease has no effect
     --> a.yaml:6:94
      |
    6 | - {key: vote, quota_mode: true, rate_limit: {unit: minute, requests_per_unit: 60000, lease: {size: 1%, ttl: 1s}}}
      |                                                                                              ^^^^
      = limits in quota mode are always evaluated together, in the store
      = in rule `vote` of domain `d`

    warning: lease `ttl` is not shorter than the period of the limit
     --> a.yaml:7:76
      |
    7 | - {key: long, rate_limit: {unit: minute, requests_per_unit: 60000, lease: {size: 1%, ttl: 1m}}}
      |                                                                            ^^^^
      = a lease ends with its window at the latest
      = in rule `long` of domain `d`

    warning: lease `ttl` is not shorter than the period of the limit
     --> a.yaml:8:95
      |
    8 | - {key: longer, rate_limit: {algorithm: gcra, unit: minute, requests_per_unit: 60000, lease: {size: 1%, ttl: 1h}}}
      |                                                                                               ^^^^
      = with a lease, the limit applies to the period minus the ttl, which leaves nothing here
      = in rule `longer` of domain `d`
    "##);
}
