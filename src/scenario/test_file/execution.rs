//! Execution of one policy test: decides its steps until a decision differs from the expected one.

use std::path::PathBuf;

use smallvec::SmallVec;

use super::{Case, Code, Expected, TestStep, Wait, When};
use crate::algorithm::time::Timestamp;
use crate::descriptor::{Descriptor, Entry, Request};
use crate::limiter::{Decision, Status};
use crate::printable::shell_quoted;
use crate::scenario::dry_run::DryRun;

/// A test to run.
pub struct PendingTest<'t> {
    /// The test.
    pub case: &'t Case,
    /// The domain of its requests.
    pub domain: &'t str,
    /// Paths of the policies, for messages.
    pub policies: &'t [PathBuf],
    /// The policies, without counters.
    pub dry_run: DryRun,
}

/// A decision that differs from the expected one.
pub struct Mismatch {
    /// Line of the step.
    pub line: usize,
    /// The request and the descriptor that failed, if there are several.
    pub request: String,
    /// The expected value, as text.
    pub expected: String,
    /// The actual value.
    pub found: String,
    /// Command that explains the match.
    pub explain: String,
}

/// The outcome of a test.
#[derive(Default)]
pub struct TestOutcome {
    /// The first mismatch; `None` if the test passed.
    pub failure: Option<Mismatch>,
    /// Steps to which no rule applied although they do not expect `rule: none`.
    pub unlimited: Vec<UnlimitedStep>,
}

/// A step to which no rule applied. Its response is OK whatever the limits are.
pub struct UnlimitedStep {
    /// Line of the step.
    pub line: usize,
    /// Command that explains the match.
    pub explain: String,
}

/// The expected and the actual value of a mismatch; `None` if there is none.
type Difference = Option<(String, String)>;

impl PendingTest<'_> {
    /// Decides all steps until one differs from what it expects.
    pub async fn outcome(&self) -> TestOutcome {
        let mut outcome = TestOutcome::default();
        let mut now = self.case.at;
        for step in &self.case.steps {
            now = match step.when {
                When::At(at) => at,
                When::After(length) => now + length,
            };
            for number in 1..=step.times {
                now = if number > 1 { now + step.every } else { now };
                outcome.failure = self.decide(step, number, now, &mut outcome.unlimited).await;
                if outcome.failure.is_some() {
                    return outcome;
                }
            }
        }
        outcome
    }

    /// Decides a request of a step, and returns the mismatch.
    async fn decide(
        &self,
        step: &TestStep,
        number: u64,
        at: Timestamp,
        unlimited: &mut Vec<UnlimitedStep>,
    ) -> Option<Mismatch> {
        let snapshot = self.dry_run.snapshot();
        let request = Request {
            domain: self.domain,
            descriptors: step.descriptors.iter().map(|pairs| descriptor(pairs, step)).collect(),
        };
        let (index, (expected, found)) = match self.dry_run.decide(at, &snapshot, &request).await {
            Ok(decision) => {
                if number == 1 && is_unlimited(step, &decision) {
                    let explain = self.explain(step.descriptors.first()?);
                    unlimited.push(UnlimitedStep { line: step.line, explain });
                }
                mismatch(step, number == step.times, &decision)?
            }
            Err(error) => (0, (step.expected.code.word().to_owned(), error.to_string())),
        };
        let request = match (step.times, step.descriptors.len()) {
            (1, 0 | 1) => String::new(),
            (1, _) => format!("descriptor {}: ", index + 1),
            (times, 0 | 1) => format!("request {number} of {times}: "),
            (times, _) => {
                format!("request {number} of {times}: descriptor {}: ", index + 1)
            }
        };
        Some(Mismatch {
            line: step.line,
            request,
            expected,
            found,
            explain: self.explain(step.descriptors.get(index)?),
        })
    }

    fn explain(&self, pairs: &[(String, String)]) -> String {
        let flags = self.policies.iter().map(|path| format!("--policy {} ", path.display()));
        let pairs: Vec<_> = pairs.iter().map(|(key, value)| format!("{key}={value}")).collect();
        let flags = flags.collect::<String>();
        format!("tollgate explain {flags}{} {}", self.domain, shell_quoted(&pairs.join(",")))
    }
}

fn descriptor<'s>(pairs: &'s [(String, String)], step: &TestStep) -> Descriptor<'s> {
    let entries: SmallVec<_> = pairs
        .iter()
        .map(|(key, value)| Entry { key: key.as_bytes(), value: value.as_bytes() })
        .collect();
    Descriptor::new(entries, step.hits, step.cost, None)
}

/// Returns `true` if no rule applies to a step that does not expect so.
fn is_unlimited(step: &TestStep, decision: &Decision<'_>) -> bool {
    let mut expectations = step.each.iter().chain([&step.expected]);
    decision.statuses().iter().all(|status| status.rule().is_none())
        && expectations.all(|expected| expected.rule.is_none())
}

/// Returns the first mismatch of a decision, with the index of its descriptor. Unless `is_last`,
/// only the code is compared.
fn mismatch(
    step: &TestStep,
    is_last: bool,
    decision: &Decision<'_>,
) -> Option<(usize, (String, String))> {
    let statuses = decision.statuses();
    let code = Code::of(decision.is_over_limit());
    if code != step.expected.code {
        let denying = statuses.iter().position(Status::is_over_limit).unwrap_or_default();
        let details = statuses.get(denying).map_or(String::new(), details);
        return Some((
            denying,
            (step.expected.code.word().to_owned(), format!("{}{details}", code.word())),
        ));
    }
    let alone = (statuses.len() == 1).then_some(&step.expected);
    let all = if step.each.is_empty() {
        alone.into_iter().collect()
    } else {
        step.each.iter().collect::<Vec<_>>()
    };
    let mut compared = statuses.iter().zip(all).filter(|_| is_last).enumerate();
    compared
        .find_map(|(index, (status, expected))| Some((index, status_mismatch(expected, status)?)))
}

fn status_mismatch(expected: &Expected, status: &Status<'_>) -> Difference {
    let rule = status.rule().map_or("", |rule| rule.path());
    let code = Code::of(status.is_over_limit());
    if code != expected.code {
        return Some((
            expected.code.word().to_owned(),
            format!("{}{}", code.word(), details(status)),
        ));
    }
    if let Some(remaining) =
        expected.remaining.filter(|remaining| Some(*remaining) != status.left())
    {
        let left = status.left().map_or("none".to_owned(), |left| left.to_string());
        return Some((format!("remaining {remaining}"), left));
    }
    let times = [
        ("retry_after", expected.retry_after, status.retry_after()),
        ("reset_after", expected.reset_after, status.reset_after()),
    ];
    for (word, expected, found) in times {
        let found = found.map_or(Wait::Never, Wait::For);
        if let Some(expected) = expected.filter(|expected| *expected != found) {
            return Some((format!("{word} {expected}"), found.to_string()));
        }
    }
    let expected = expected.rule.as_deref().filter(|expected| *expected != rule)?;
    Some((format!("rule {}", name_of(expected)), name_of(rule)))
}

/// Returns the path of a rule in backticks.
fn name_of(rule: &str) -> String {
    if rule.is_empty() { "none".to_owned() } else { format!("`{rule}`") }
}

/// Formats the details of a status, to append to its code.
fn details(status: &Status<'_>) -> String {
    let remaining = match (status.left(), status.limit()) {
        (Some(left), Some(applied)) if status.is_over_limit() => {
            format!(", {left} of {} left", applied.amount)
        }
        _ => status.remaining().map_or(String::new(), |left| format!(", {left} remaining")),
    };
    let rule = status.rule().map_or("no rule".to_owned(), |rule| format!("rule `{}`", rule.path()));
    let retry = status.retry_after().filter(|_| status.is_over_limit());
    let retry = retry.map_or(String::new(), |wait| format!(", retry after {wait}"));
    format!(" ({rule}{remaining}{retry})")
}
