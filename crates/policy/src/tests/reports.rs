//! Messages for invalid policies.

use super::super::{CompileOptions, load};
use super::{errors, limited, load_all, sources};

#[test]
fn three_different_mistakes_in_two_files_are_one_report_with_three_carets() {
    let first = "domain: edge
descriptors:
- key: plan
  value: free
  descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 100, bursts: 20}
- key: remote_address
  rate_limit: {unit: minutes, requests_per_unit: 100}
";
    let second = "domain: login\ndescriptors:\n- key: account\n  unit: hour\n";
    let report = errors(&[first, second]);
    assert_eq!(report.matches('^').count(), "bursts".len() + "minutes".len() + "unit".len());
    insta::assert_snapshot!(report, @r##"
    error: unknown key `bursts`
     --> a.yaml:7:56
      |
    7 |     rate_limit: {unit: minute, requests_per_unit: 100, bursts: 20}
      |                                                        ^^^^^^
      = did you mean `burst`?
      = allowed in `rate_limit`: requests_per_unit, unit, in_flight, unlimited, name, replaces, windows, algorithm, burst, max_debt, buckets, estimate, calendar, time_zone, charge, override, on_store_error, record, hash_values, lease, hold
      = in rule `plan=free > user` of domain `edge`

    error: invalid unit `minutes`
     --> a.yaml:9:22
      |
    9 |   rate_limit: {unit: minutes, requests_per_unit: 100}
      |                      ^^^^^^^
      = did you mean `minute`?
      = expected second, minute, hour, day, week, month or year, or a whole number of ms, s, m, h or d such as 250ms or 15m
      = in rule `remote_address` of domain `edge`

    error: key `unit` is not allowed in an item of `descriptors`
     --> b.yaml:4:3
      |
    4 |   unit: hour
      |   ^^^^
      = it is allowed in `rate_limit` or in `candidate` or in an item of `windows`
      = in rule `account` of domain `login`
    "##);
}

#[test]
fn words_that_are_unknown_misplaced_missing_or_there_twice() {
    let text = "domain: d
descriptor: []
defaults: {algoritm: gcra, unit: day}
descriptors:
- value: v
- key: b
  shadow_mode: yes
  shadow_mode: yes
- key: c
  rate_limit: {unit: day, requests_per_unit: 1, calender: yes}
";
    insta::assert_snapshot!(errors(&[text]), @r##"
    error: unknown key `descriptor`
     --> a.yaml:2:1
      |
    2 | descriptor: []
      | ^^^^^^^^^^
      = did you mean `descriptors`?
      = allowed at the top level of a policy: domain, atomicity, rlqs, defaults, requests, descriptors

    error: unknown key `algoritm`
     --> a.yaml:3:12
      |
    3 | defaults: {algoritm: gcra, unit: day}
      |            ^^^^^^^^
      = did you mean `algorithm`?
      = allowed in `defaults`: algorithm, burst, max_debt, buckets, estimate, calendar, time_zone, charge, override, on_store_error, record, hash_values, lease, hold
      = in domain `d`

    error: key `unit` is not allowed in `defaults`
     --> a.yaml:3:28
      |
    3 | defaults: {algoritm: gcra, unit: day}
      |                            ^^^^
      = it is allowed in `rate_limit` or in `candidate` or in an item of `windows`
      = in domain `d`

    error: `key` is missing in an item of `descriptors`
     --> a.yaml:5:3
      |
    5 | - value: v
      |   ^^^^^
      = `key`: the key of the descriptor entry; `*` matches any text and may occur more than once
      = in rule `?=v` of domain `d`

    error: duplicate key `shadow_mode`
     --> a.yaml:8:3
      |
    8 |   shadow_mode: yes
      |   ^^^^^^^^^^^
     --> a.yaml:7:3
      |
    7 |   shadow_mode: yes
      |   ^^^^^^^^^^^ first defined here
      = in rule `b` of domain `d`

    error: unknown key `calender`
      --> a.yaml:10:49
       |
    10 |   rate_limit: {unit: day, requests_per_unit: 1, calender: yes}
       |                                                 ^^^^^^^^
       = did you mean `calendar`?
       = allowed in `rate_limit`: requests_per_unit, unit, in_flight, unlimited, name, replaces, windows, algorithm, burst, max_debt, buckets, estimate, calendar, time_zone, charge, override, on_store_error, record, hash_values, lease, hold
       = in rule `c` of domain `d`
    "##);
}

#[test]
fn values_of_the_wrong_form() {
    let text = "domain: d
descriptors:
- key: [a]
- plain
- key: b
  shadow_mode: 'yes'
  metadata: 5
- key: c
  rate_limit: {unit: day, requests_per_unit: 1.5, charge: sometimes, record: user}
";
    insta::assert_snapshot!(errors(&[text]), @r##"
    error: `key` must be a string, found a list
     --> a.yaml:3:8
      |
    3 | - key: [a]
      |        ^^^
      = in rule `?` of domain `d`

    error: an item of `descriptors` must be a mapping, found `plain`
     --> a.yaml:4:3
      |
    4 | - plain
      |   ^^^^^
      = in rule `?` of domain `d`

    error: `shadow_mode` must be true or false, without quotes, found the string `yes`
     --> a.yaml:6:16
      |
    6 |   shadow_mode: 'yes'
      |                ^^^^^
      = in rule `b` of domain `d`

    error: `metadata` must be a mapping, found `5`
     --> a.yaml:7:13
      |
    7 |   metadata: 5
      |             ^
      = in rule `b` of domain `d`

    error: `requests_per_unit` must be a whole number from 0 to 4294967295, without quotes, found `1.5`
     --> a.yaml:9:46
      |
    9 |   rate_limit: {unit: day, requests_per_unit: 1.5, charge: sometimes, record: user}
      |                                              ^^^
      = in rule `c` of domain `d`

    error: `charge` must be one of admitted, blamed, always, afterwards, found `sometimes`
     --> a.yaml:9:59
      |
    9 |   rate_limit: {unit: day, requests_per_unit: 1.5, charge: sometimes, record: user}
      |                                                           ^^^^^^^^^
      = in rule `c` of domain `d`

    error: `record` must be a list of strings, found `user`
     --> a.yaml:9:78
      |
    9 |   rate_limit: {unit: day, requests_per_unit: 1.5, charge: sometimes, record: user}
      |                                                                              ^^^^
      = in rule `c` of domain `d`
    "##);
}

#[test]
fn limits_that_cannot_work() {
    let cases = [
        "{algorithm: gcra, unit: year, requests_per_unit: 1, burst: 100}",
        "{algorithm: gcra, unit: day, requests_per_unit: 1, burst: 0, buckets: 3}",
        "{algorithm: gcra, windows: [{unit: day, requests_per_unit: 1}]}",
        "{unit: day, windows: [{unit: day, requests_per_unit: 1}]}",
        "{windows: []}",
        "{windows: [{unit: day}, {requests_per_unit: 1}]}",
        "{algorithm: sliding_log, unit: day, requests_per_unit: 10001}",
        "{algorithm: sliding_log, unit: day, requests_per_unit: 1, charge: always}",
        "{algorithm: sliding_window, unit: 1ms, requests_per_unit: 1, buckets: 999}",
        "{algorithm: sliding_window, unit: second, requests_per_unit: 1, estimate: weighted, buckets: 7}",
        "{unit: hour, requests_per_unit: 1, calendar: true, time_zone: Europe/Berlin}",
        "{unit: day, requests_per_unit: 1, calendar: true, time_zone: Europe/Bern}",
        "{unit: day, requests_per_unit: 1, time_zone: Europe/Berlin}",
        "{unit: day, requests_per_unit: 1, calendar: true, override: inherit}",
        "{algorithm: sliding_log, unit: day, requests_per_unit: 1, override: inherit}",
        "{unit: 4000d, requests_per_unit: 1}",
        "{unit: day, requests_per_unit: 1, lease: {size: 200%, ttl: soon}}",
        "{unit: day, requests_per_unit: 1, name: n, replaces: [{name: n}, {name: ''}]}",
        "{unit: day, requests_per_unit: 1, name: n, replaces: [{name: n}]}",
        "{unlimited: true, burst: 3}",
        "{}",
    ];
    let texts: Vec<_> = cases.iter().map(|case| limited(case)).collect();
    // One line each: position and message.
    let lines = texts.iter().flat_map(|text| {
        let report = load_all(&[text]).unwrap_err();
        let line = |problem: &tollgate_yaml::report::Problem| {
            let (_, position) = problem.place().unwrap();
            format!("{:?} {}", position.unwrap(), problem.message())
        };
        report.iter().map(line).collect::<Vec<_>>()
    });
    insta::assert_snapshot!(lines.collect::<Vec<_>>().join("\n"), @r##"
    (4, 74) a burst of 100 takes more than 71 years to refill at 1 in 365d; lower burst or unit
    (4, 73) burst must be at least 1, found 0
    (4, 85) `buckets` does not apply to gcra
    (4, 42) `windows` does not apply to gcra, which has a single rate
    (4, 22) `unit` and `windows` cannot be combined
    (4, 25) `windows` must have from 1 to 8 items, found 0
    (4, 27) `requests_per_unit` is missing
    (4, 40) `unit` is missing
    (4, 70) sliding_log stores every hit and supports at most 10000 requests_per_unit, found 10001; use sliding_window
    (4, 81) sliding_log does not support `charge: always`, which has no bound; use sliding_window
    (4, 85) 999 buckets of whole microseconds would make the period of 1ms more than 1 % longer
    (4, 108) with estimate: weighted, buckets must divide the unit evenly, found 7 buckets in 1s
    (4, 22) `calendar` does not support the unit `hour`
    (4, 76) unknown time zone `Europe/Bern`, expected a name from the IANA database such as Europe/Berlin
    (4, 60) `time_zone` requires `calendar: true`
    (4, 75) `override: inherit` is not possible: calendar windows cannot take the period of an override
    (4, 83) `override: inherit` is not possible: sliding_log has a maximum amount, which an override may exceed
    (4, 22) unit must be from 1ms to 3650d, found 4000d
    (4, 63) invalid lease size `200%`
    (4, 74) invalid lease ttl `soon`
    (4, 76) limit `n` replaces itself
    (4, 87) `name` must not be empty
    (4, 76) limit `n` replaces itself
    (4, 40) `burst` has no effect with `unlimited: true`
    (4, 15) `unit` is missing
    "##);
}

#[test]
fn duplicates_point_at_both_places() {
    let text = "domain: d\ndescriptors:\n- {key: a, value: b}\n- {key: c}\n- {key: a, value: b}\n";
    insta::assert_snapshot!(errors(&[text, "domain: d\n"]), @r##"
    error: duplicate rule for this key and value
     --> a.yaml:5:9
      |
    5 | - {key: a, value: b}
      |         ^
     --> a.yaml:3:9
      |
    3 | - {key: a, value: b}
      |         ^ first defined here
      = in rule `a=b` of domain `d`

    error: duplicate domain `d`
     --> b.yaml:1:9
      |
    1 | domain: d
      |         ^
     --> a.yaml:1:9
      |
    1 | domain: d
      |         ^ first defined here
      = use --merge-domains to merge the rules of several documents
    "##);
}

#[test]
fn merged_domains_are_added_up_and_their_duplicates_are_errors() {
    let files = ["domain: d\ndescriptors: [{key: a}]\n", "domain: d\ndescriptors: [{key: b}]\n"];
    let merge = CompileOptions { merge_domains: true, ..CompileOptions::default() };
    assert_eq!(load(&sources(&files), &merge).unwrap().policies.rules().count(), 2);
    let same = ["domain: d\ndescriptors: [{key: a}]\n", "domain: d\ndescriptors: [{key: a}]\n"];
    let report = load(&sources(&same), &merge).unwrap_err().to_string();
    assert!(report.contains("duplicate rule for this key and value"), "{report}");
}

#[test]
fn a_syntax_error_ends_its_file_and_no_other() {
    let report = load_all(&["domain: d\ndescriptors: [\n", "domain: ''\n"]).unwrap_err();
    assert_eq!(report.len(), 2);
    insta::assert_snapshot!(report, @r##"
    error: invalid YAML: unclosed bracket '['
     --> a.yaml:2:14
      |
    2 | descriptors: [
      |              ^
      = the rest of this file was not checked

    error: `domain` must not be empty
     --> b.yaml:1:9
      |
    1 | domain: ''
      |         ^^
    "##);
}

#[test]
fn a_long_line_is_shown_around_its_caret_and_nothing_speaks_to_the_terminal() {
    let text = format!(
        "domain: d\ndescriptors: [{{key: \"{}\\e\u{85}31m\", valeu: {}}}]\n",
        "x".repeat(300),
        "y".repeat(300)
    );
    let report = errors(&[&text]);
    assert!(report.lines().all(|line| line.chars().count() < 400), "{report}");
    assert!(!report.contains(|letter: char| letter.is_control() && letter != '\n'));
    assert!(report.contains("did you mean `value`?"), "{report}");
    let report = errors(&["domain: d\ndescriptors: \u{1b}[31m\n"]);
    assert!(!report.contains('\u{1b}'), "{report}");
}

#[test]
fn a_report_has_an_end() {
    let text = format!("domain: d\ndescriptors:\n{}", "- {kay: k}\n".repeat(2_000));
    let report = load_all(&[&text]).unwrap_err();
    assert_eq!(report.len(), 4_000);
    assert_eq!(report.iter().count(), 500);
    assert!(report.to_string().ends_with("... and 3500 more\n"));
}
