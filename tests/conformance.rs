//! HTTP/2 and HPACK conformance by h2spec, a client that tests the requirements of RFC 7540 and RFC
//! 7541.
//!
//! Every case passes or is listed below with a reason. A listed case that passes fails the test
//! too, so that its row is removed.

use std::collections::BTreeMap;
use std::process::Command;

use tempfile::TempDir;

use crate::support::policy::{Policies, daily};
use crate::support::root;
use crate::support::tollgate::Tollgate;

/// Seconds for which h2spec waits for the expected event. Only a failing case waits that long.
const TIMEOUT: &str = "5";

/// A case that does not pass.
struct Exception {
    /// Section of h2spec, and name of the case.
    case: (&'static str, &'static str),
    result: CaseResult,
    reason: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CaseResult {
    Passed,
    /// Not applicable, as detected by h2spec.
    Skipped,
    Failed,
}

/// Results by section and name, with h2spec's expectation and observation if the case failed.
type Results = BTreeMap<(String, String), (CaseResult, String)>;

/// h2spec calls without a message, which gRPC answers immediately with a single HEADERS frame.
const NO_DATA: &str = "waits for DATA, and the response to a call without a message has none";

const EXCEPTIONS: &[Exception] = &[
    Exception {
        case: ("generic/2", "Sends a WINDOW_UPDATE frame on half-closed (remote) stream"),
        result: CaseResult::Failed,
        reason: NO_DATA,
    },
    Exception {
        case: ("generic/2", "Sends a PRIORITY frame on half-closed (remote) stream"),
        result: CaseResult::Failed,
        reason: NO_DATA,
    },
    Exception {
        case: (
            "http2/5.1.2",
            "Sends HEADERS frames that causes their advertised concurrent stream limit to be exceeded",
        ),
        result: CaseResult::Failed,
        reason: "expects that windows of 0 keep streams open, and responses without DATA need no window",
    },
    Exception {
        case: ("http2/6.5.3", "Sends multiple values of SETTINGS_INITIAL_WINDOW_SIZE"),
        result: CaseResult::Skipped,
        reason: NO_DATA,
    },
    Exception {
        case: (
            "http2/6.9.1",
            "Sends SETTINGS frame to set the initial window size to 1 and sends HEADERS frame",
        ),
        result: CaseResult::Skipped,
        reason: NO_DATA,
    },
    Exception {
        case: ("http2/6.9.2", "Changes SETTINGS_INITIAL_WINDOW_SIZE after sending HEADERS frame"),
        result: CaseResult::Skipped,
        reason: NO_DATA,
    },
    Exception {
        case: ("http2/6.9.2", "Sends a SETTINGS frame for window size to be negative"),
        result: CaseResult::Skipped,
        reason: NO_DATA,
    },
];

#[test]
fn common_frames_and_header_lists_are_accepted() {
    conforms("generic", 44);
}

#[test]
fn http2_conforms_to_its_specification() {
    conforms("http2", 94);
}

#[test]
fn hpack_decoding_conforms_to_its_specification() {
    conforms("hpack", 7);
}

/// Runs one of h2spec's groups, which has `cases` cases, against a service.
fn conforms(part: &str, cases: usize) {
    let service = Tollgate::serve(Policies::of(&daily("user", 5)).path());
    let files = TempDir::new().unwrap();
    let port = service.grpc.port().to_string();
    let report = files.path().join("report.xml");
    let mut h2spec = Command::new(root().join("target/go-tools/h2spec"));
    h2spec.args([part, "--host", "127.0.0.1", "--port", &port, "--timeout", TIMEOUT]);
    h2spec.args(["--path", "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"]);
    let ended =
        h2spec.arg("--junit-report").arg(&report).output().expect("tests/run installs h2spec");
    let text = std::fs::read_to_string(&report).expect("h2spec writes its report");

    let results = results(&text);
    assert_eq!(results.len(), cases, "{}", String::from_utf8_lossy(&ended.stdout));
    let exceptions: Vec<_> =
        EXCEPTIONS.iter().filter(|exception| exception.case.0.starts_with(part)).collect();
    let wrong = wrong(&results, &exceptions);
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// Returns the results that differ from the list, and the rows without a case.
fn wrong(results: &Results, exceptions: &[&Exception]) -> Vec<String> {
    let mut wrong = Vec::new();
    for Exception { case: (section, name), reason, .. } in exceptions {
        if !results.contains_key(&((*section).to_owned(), (*name).to_owned())) {
            wrong
                .push(format!("{section}: {name}: listed, and h2spec has no such case ({reason})"));
        }
    }
    for ((section, name), (result, detail)) in results {
        let exception = exceptions.iter().find(|exception| exception.case == (section, name));
        let expected = exception.map_or(CaseResult::Passed, |exception| exception.result);
        if *result != expected {
            wrong.push(format!(
                "{section}: {name}: {result:?}, and listed as {expected:?}\n    {detail}"
            ));
        }
    }
    wrong
}

#[test]
fn a_case_that_is_not_as_listed_is_reported_whether_it_fails_or_passes() {
    let report = |body: &str| {
        results(&format!(r#"<testcase package="http2/1" classname="A">{body}</testcase>"#))
    };
    let listed = |result| Exception { case: ("http2/1", "A"), result, reason: "none" };
    let failed = report("<error>DATA frame\nHEADERS Frame</error>");
    let rows = [
        (report(""), CaseResult::Passed),
        (report("<skipped></skipped>"), CaseResult::Skipped),
        (failed, CaseResult::Failed),
    ];
    for (results, result) in &rows {
        for (_, other) in &rows {
            assert_eq!(
                wrong(results, &[&listed(*other)]).is_empty(),
                result == other,
                "{result:?}, {other:?}"
            );
        }
        assert_eq!(wrong(results, &[]).is_empty(), *result == CaseResult::Passed, "{result:?}");
    }
    assert_eq!(wrong(&Results::new(), &[&listed(CaseResult::Failed)]).len(), 1);
}

/// Parses the cases of a report.
fn results(report: &str) -> Results {
    let cases = report.split("<testcase ").skip(1).map(|case| {
        let attribute = |name: &str| {
            let (_, rest) = case.split_once(&format!("{name}=\"")).unwrap();
            rest.split_once('"').unwrap().0.replace("&#34;", "\"")
        };
        let body = case.split("</testcase>").next().unwrap();
        let detail = body.split_once("<error>").or_else(|| body.split_once("<failure>"));
        let detail =
            detail.map(|(_, rest)| rest.split("</").next().unwrap().replace('\n', "\n    "));
        let result = match detail {
            Some(_) => CaseResult::Failed,
            None if body.contains("<skipped>") => CaseResult::Skipped,
            None => CaseResult::Passed,
        };
        ((attribute("package"), attribute("classname")), (result, detail.unwrap_or_default()))
    });
    cases.collect()
}
