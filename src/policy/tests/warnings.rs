//! What can work and is probably not meant.

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
