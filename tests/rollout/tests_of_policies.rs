//! `tollgate test`.

use serde_json::Value;

use super::{project, run};
use crate::support::policy::{Policies, daily};

/// Tests of a limit of three per day, the second of which fails.
const TESTS: &str = "policies: [policy.yaml]
tests:
  - test: three are let in
    steps:
      - { hit: user=ann, times: 3, expect: ok, remaining: 0, rule: user }
      - { hit: user=ann, expect: over_limit, retry_after: 1d }
  - test: the fourth is let in
    steps:
      - { hit: user=ann, times: 2, expect: ok }
      - { hit: { user: \"a, b\" }, expect: ok, remaining: 3 }
";

fn tested(tests: &str) -> (i32, String, String, Policies) {
    let policies = Policies::of(&daily("user", 3));
    policies.write("policy.test.yaml", tests);
    let (code, out, err) = run(&["test", policies.path().to_str().unwrap()]);
    (code, out, err, policies)
}

#[test]
fn the_tests_of_the_examples_pass() {
    let (code, out, err) = run(&["test", project().join("config/policies").to_str().unwrap()]);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    assert!(out.starts_with("ok: "), "{out}");
}

#[test]
fn a_failed_test_is_one_line_with_its_place_the_result_and_the_next_step() {
    let (code, out, _, policies) = tested(TESTS);
    let folder = policies.path().display();
    assert_eq!(code, 1);
    let line = format!(
        "{folder}/policy.test.yaml:10: the fourth is let in: expected remaining 3, found 2; "
    );
    let next = format!("see tollgate explain --policy {folder}/policy.yaml test 'user=a, b'");
    assert_eq!(out, format!("{line}{next}\nerror: 1 of 2 tests failed\n"));
}

#[test]
fn an_unexpected_code_names_the_request_and_the_rule() {
    let (_, out, ..) = tested(
        &TESTS.replace("times: 3, expect: ok, remaining: 0, rule: user", "times: 5, expect: ok"),
    );
    let found = "request 4 of 5: expected ok, found over_limit (rule `user`, 0 of 3 left, retry after 1d); see ";
    assert!(out.contains(&format!("policy.test.yaml:5: three are let in: {found}")), "{out}");
}

#[test]
fn a_step_to_which_no_rule_applies_is_reported_unless_it_expects_none() {
    let tests = "policies: [policy.yaml]
tests:
  - test: misspelled
    steps:
      - { hit: users=ann, times: 5, expect: ok }
      - { hit: users=ann, expect: ok, rule: none }
";
    let (code, out, err, policies) = tested(tests);
    assert_eq!((code, err.as_str()), (0, ""));
    let file = policies.file("policy.test.yaml");
    let policy = policies.file("policy.yaml");
    let warning = format!(
        "warning: {}:5: misspelled: no rule applies; if none should, set `rule: none`; \
         see tollgate explain --policy {} test users=ann",
        file.display(),
        policy.display()
    );
    assert_eq!(out, format!("{warning}\nok: 1 test passed\n"));
    let (_, github, _) = run(&["test", "--format", "github", file.to_str().unwrap()]);
    assert!(github.starts_with("::warning file="), "{github}");
    let (_, json, _) = run(&["test", "--json", file.to_str().unwrap()]);
    let report: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(report["tests"][0]["warnings"][0]["line"], 5, "{report}");
}

#[test]
fn json_lists_every_test() {
    let policies = Policies::of(&daily("user", 3));
    policies.write("policy.test.yaml", TESTS);
    let (code, out, _) =
        run(&["test", "--json", policies.file("policy.test.yaml").to_str().unwrap()]);
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &report["failed"], &report["tests"][0]["ok"]), (1, &1.into(), &true.into()));
    assert_eq!(report["tests"][1]["failure"]["line"], 10);
    assert_eq!(report["tests"][1]["failure"]["found"], "2");
}

#[test]
fn unreadable_tests_exit_2_with_every_error_and_its_place() {
    let wrong =
        TESTS.replace("times: 3", "tims: 3").replace("retry_after: 1d", "retry_after: soon");
    let (code, out, err, policies) = tested(&wrong);
    assert_eq!((code, out.as_str()), (2, ""));
    let file = policies.file("policy.test.yaml");
    for part in
        [":5:26", "unknown key `tims`", "did you mean `times`?", ":6:59", "invalid duration `soon`"]
    {
        assert!(err.contains(part), "`{part}` is not in\n{err}");
    }
    assert!(err.contains(&format!("{}:5:26", file.display())), "{err}");
}

#[test]
fn an_unreadable_policy_and_a_folder_without_tests_exit_2() {
    let (code, _, err, policies) = tested(&TESTS.replace("policy.yaml", "none.yaml"));
    assert_eq!(code, 2, "{err}");
    std::fs::remove_file(policies.file("policy.test.yaml")).unwrap();
    let (code, _, err) = run(&["test", policies.path().to_str().unwrap()]);
    assert_eq!(code, 2);
    assert!(err.contains("no *.test.yaml or *.test.yml files found"), "{err}");
}

#[test]
fn tests_among_policies_are_not_read_as_policies() {
    let (_, _, _, policies) = tested(TESTS);
    let (code, out, err) = run(&["check", policies.path().to_str().unwrap()]);
    assert_eq!(code, 0, "{err}");
    assert!(out.starts_with("ok: 1 file, "), "{out}");
}
