//! Results of `check` and `test` for other programs: JSON, annotations of GitHub Actions, and
//! JUnit's XML.

use std::fmt::Write as _;

use clap::ValueEnum;
use serde_json::{Value, json};

use crate::yaml::report::Severity;

/// Format of results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum ResultFormat {
    /// For people
    #[default]
    Text,
    /// One object
    Json,
    /// Annotations of GitHub Actions, beside the lines of a pull request
    Github,
    /// XML for test reports
    Junit,
}

/// Something wrong in a file.
#[derive(Clone, Debug)]
pub(super) struct FileFinding {
    pub(super) severity: Severity,
    pub(super) file: String,
    /// Line and column, from 1.
    pub(super) line: Option<usize>,
    pub(super) column: Option<usize>,
    pub(super) message: String,
}

/// A case of a JUnit report.
#[derive(Clone, Debug)]
pub(super) struct JunitCase {
    pub(super) file: String,
    pub(super) name: String,
    /// Descriptions of what failed; none if the case passed.
    pub(super) failures: Vec<String>,
    /// Descriptions of what may be wrong in a case that passed or failed.
    pub(super) warnings: Vec<String>,
}

impl FileFinding {
    pub(super) fn json(&self) -> Value {
        json!({
            "severity": name_of(self.severity),
            "file": self.file,
            "line": self.line,
            "column": self.column,
            "message": self.message,
        })
    }
}

/// Returns the name in JSON, and of the command of a workflow.
fn name_of(severity: Severity) -> &'static str {
    match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    }
}

/// Formats an annotation for each finding, as a command of a workflow:
/// <https://docs.github.com/actions/reference/workflow-commands-for-github-actions>.
pub(super) fn github(findings: &[FileFinding]) -> String {
    let mut text = String::new();
    for finding in findings {
        let FileFinding { severity, file, line, column, message } = finding;
        let _ = write!(text, "::{} file={}", name_of(*severity), github_property(file));
        for (name, number) in [("line", line), ("col", column)] {
            if let Some(number) = number {
                let _ = write!(text, ",{name}={number}");
            }
        }
        let _ = writeln!(text, "::{}", github_data(message));
    }
    text
}

fn github_data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

fn github_property(text: &str) -> String {
    github_data(text).replace(':', "%3A").replace(',', "%2C")
}

/// Formats a report of one suite.
pub(super) fn junit(suite: &str, cases: &[JunitCase]) -> String {
    let failed = cases.iter().filter(|case| !case.failures.is_empty()).count();
    let mut text = format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n  <testsuite name=\"{}\" \
         tests=\"{}\" failures=\"{failed}\">\n",
        xml(suite),
        cases.len()
    );
    for JunitCase { file, name, failures, warnings } in cases {
        let _ = write!(text, "    <testcase classname=\"{}\" name=\"{}\"", xml(file), xml(name));
        if failures.is_empty() && warnings.is_empty() {
            text.push_str("/>\n");
            continue;
        }
        text.push_str(">\n");
        for failure in failures {
            let _ = writeln!(text, "      <failure message=\"{}\"/>", xml(failure));
        }
        if !warnings.is_empty() {
            let warnings = xml(&warnings.join("\n"));
            let _ = writeln!(text, "      <system-out>{warnings}</system-out>");
        }
        text.push_str("    </testcase>\n");
    }
    text.push_str("  </testsuite>\n</testsuites>\n");
    text
}

/// Escapes a text for an attribute. XML 1.0 cannot have most control characters at all.
fn xml(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' => escaped.push_str("&#10;"),
            '\t' => escaped.push_str("&#9;"),
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            control if control.is_control() => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn annotations_cannot_be_forged_by_names_or_texts() {
        let finding = FileFinding {
            severity: Severity::Warning,
            file: "a,b:c.yaml".to_owned(),
            line: Some(3),
            column: None,
            message: "100% of\n::error::this".to_owned(),
        };
        let expected = "::warning file=a%2Cb%3Ac.yaml,line=3::100%25 of%0A::error::this\n";
        assert_eq!(github(&[finding]), expected);
    }

    #[test]
    fn a_report_is_xml_whatever_the_texts() {
        let case = |failures| JunitCase {
            file: "a.yaml".to_owned(),
            name: "5 < 6 & \"x\"\u{1}".to_owned(),
            failures,
            warnings: Vec::new(),
        };
        let warned = JunitCase { warnings: vec!["a < b".to_owned()], ..case(Vec::new()) };
        let shown = "<system-out>a &lt; b</system-out>";
        assert!(junit("s", &[warned]).contains(shown));
        let text = junit("s", &[case(Vec::new()), case(vec!["one\ntwo".to_owned()])]);
        let name = "name=\"5 &lt; 6 &amp; &quot;x&quot;\u{fffd}\"";
        assert!(text.contains(&format!("<testcase classname=\"a.yaml\" {name}/>")), "{text}");
        assert!(text.contains("<failure message=\"one&#10;two\"/>"), "{text}");
        assert!(text.contains("tests=\"2\" failures=\"1\""), "{text}");
    }
}
