use super::read;
use crate::yaml::Source;

fn errors(text: &str) -> String {
    let source = Source { name: "a.test.yaml".into(), text: text.into() };
    read(&source).unwrap_err().to_string()
}

#[test]
fn every_mistake_is_reported_with_its_position_and_test() {
    let report = errors(
        "policies: [a.yaml]
tests:
- test: both
  steps:
  - { hit: user=ann, hits: 1, refund: 1, expect: fine }
  - { hit: [user=ann, user=bob], expect: ok, remaining: 1, each: [{ expect: ok }] }
",
    );
    insta::assert_snapshot!(report, @r##"
    error: `refund` and `hits` cannot be combined
     --> a.test.yaml:5:39
      |
    5 |   - { hit: user=ann, hits: 1, refund: 1, expect: fine }
      |                                       ^
     --> a.test.yaml:5:28
      |
    5 |   - { hit: user=ann, hits: 1, refund: 1, expect: fine }
      |                            ^ `hits` is here
      = a step either charges hits or refunds them
      = in test `both`

    error: `expect` must be one of ok, over_limit, found `fine`
     --> a.test.yaml:5:50
      |
    5 |   - { hit: user=ann, hits: 1, refund: 1, expect: fine }
      |                                                  ^^^^
      = in test `both`

    error: `remaining` is ambiguous in a step with 2 descriptors
     --> a.test.yaml:6:57
      |
    6 |   - { hit: [user=ann, user=bob], expect: ok, remaining: 1, each: [{ expect: ok }] }
      |                                                         ^
      = set it in the items of `each`
      = in test `both`

    error: `each` must have one item per descriptor: expected 2, found 1
     --> a.test.yaml:6:66
      |
    6 |   - { hit: [user=ann, user=bob], expect: ok, remaining: 1, each: [{ expect: ok }] }
      |                                                                  ^^^^^^^^^^^^^^^^
      = in test `both`
    "##);
}

#[test]
fn a_policy_is_named_as_one() {
    insta::assert_snapshot!(errors("domain: shop\ndescriptors:\n- key: user\n"), @r##"
    error: a policy, not a test file
     --> a.test.yaml:1:1
      |
    1 | domain: shop
      | ^^^^^^^^^^^^
      = to validate a policy: `tollgate check FILE`
    "##);
}

#[test]
fn the_rest_of_an_unquoted_descriptor_is_to_be_quoted() {
    let report = errors(
        "policies: [a.yaml]
tests:
- test: both keys
  steps:
  - { hit: user=ann,ip=192.0.2.1, expect: ok }
",
    );
    insta::assert_snapshot!(report, @r##"
    error: unknown key `ip=192.0.2.1`
     --> a.test.yaml:5:21
      |
    5 |   - { hit: user=ann,ip=192.0.2.1, expect: ok }
      |                     ^^^^^^^^^^^^
      = quote a value that contains a comma: { key: "a=1,b=2" }
      = in test `both keys`
    "##);
}

#[test]
fn invalid_times_and_descriptors_are_reported() {
    let report = errors(
        "policies: [a.yaml]
tests:
- test: time
  at: tomorrow
  steps:
  - { hit: [[]], times: 0, after: 1s, at: 2026-01-01T00:00:00Z, expect: ok, retry_after: 1s, unit: day }
",
    );
    insta::assert_snapshot!(report, @r##"
    error: invalid time `tomorrow`
     --> a.test.yaml:4:7
      |
    4 |   at: tomorrow
      |       ^^^^^^^^
      = expected a time such as 2026-11-21T12:00:00Z
      = in test `time`

    error: a descriptor must be key=value,key=value or a mapping, found a list
     --> a.test.yaml:6:13
      |
    6 |   - { hit: [[]], times: 0, after: 1s, at: 2026-01-01T00:00:00Z, expect: ok, retry_after: 1s, unit: day }
      |             ^^
      = in test `time`

    error: `times` must be at least 1, found 0
     --> a.test.yaml:6:25
      |
    6 |   - { hit: [[]], times: 0, after: 1s, at: 2026-01-01T00:00:00Z, expect: ok, retry_after: 1s, unit: day }
      |                         ^
      = in test `time`

    error: `after` and `at` cannot be combined
     --> a.test.yaml:6:35
      |
    6 |   - { hit: [[]], times: 0, after: 1s, at: 2026-01-01T00:00:00Z, expect: ok, retry_after: 1s, unit: day }
      |                                   ^^
     --> a.test.yaml:6:43
      |
    6 |   - { hit: [[]], times: 0, after: 1s, at: 2026-01-01T00:00:00Z, expect: ok, retry_after: 1s, unit: day }
      |                                           ^^^^^^^^^^^^^^^^^^^^ `at` is here
      = set the time of the step, or its time since the previous step
      = in test `time`

    error: unknown key `unit`
     --> a.test.yaml:6:94
      |
    6 |   - { hit: [[]], times: 0, after: 1s, at: 2026-01-01T00:00:00Z, expect: ok, retry_after: 1s, unit: day }
      |                                                                                              ^^^^
      = allowed in an item of `steps`: at, hit, hits, refund, after, times, every, expect, remaining, retry_after, reset_after, rule, each
      = in test `time`
    "##);
}

#[test]
fn a_file_of_tests_is_one_document() {
    assert!(
        errors("policies: [a]\n---\ntests: []\n")
            .starts_with("error: a test file must have exactly one document, found 2")
    );
    assert!(errors("").starts_with("error: a test file must have exactly one document, found 0"));
}

#[test]
fn a_refund_is_no_operation_on_a_hold() {
    let report = errors(
        "policies: [a.yaml]
tests:
- test: both
  steps:
  - { hit: 'user=ann,tollgate.commit=r', refund: 1, expect: ok }
",
    );
    assert!(report.contains("`refund` and `tollgate.commit` cannot be combined"), "{report}");
}
