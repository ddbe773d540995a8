//! The result of a run, as text and JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{MAX_DURATION, Verify};
use crate::algorithm::time::Micros;
use crate::cli::output::seconds_text;
use crate::cli::table;
use crate::printable::counted;
use crate::verify::check::{CheckedProperty, Contradiction, PropertyResult};
use crate::verify::history::{CallAction, HoldEnd, ObservedAnswer, ObservedCall};
use crate::verify::run::{STILL_RUNNING, VerifyRun};
use crate::verify::verdict::{PropertyVerdict, RunConditions, verdict};

/// Most calls of an example that are printed, and most kinds of errors.
const MAX_ROWS: usize = 16;
const MAX_ERRORS: usize = 5;

/// Seconds for which a run must go on before and after hits return.
const RETURN_MARGIN: u64 = 5;

/// The result of a run.
pub(super) struct VerifyReport<'a> {
    flags: &'a Verify,
    run: &'a VerifyRun,
    results: Vec<(&'a PropertyResult, PropertyVerdict)>,
    /// Difference between clocks, in milliseconds, that would explain all answers.
    explaining_skew: Option<u64>,
    /// Rules of which the run was too short to show that hits return, with the time they take.
    unseen_returns: Vec<(String, Micros)>,
}

/// Calls of a rule by their answers.
#[derive(Clone, Copy, Default)]
struct AnswerCounts {
    calls: usize,
    admitted: usize,
    denied: usize,
    kept: usize,
    ended: usize,
    errors: usize,
    late: usize,
}

impl AnswerCounts {
    fn of<'c>(calls: impl Iterator<Item = &'c ObservedCall>) -> Self {
        let mut counts = Self::default();
        for call in calls {
            let count = match call.answer {
                ObservedAnswer::Admitted { .. } => &mut counts.admitted,
                ObservedAnswer::Denied { .. } | ObservedAnswer::DeniedByOther => &mut counts.denied,
                ObservedAnswer::Kept { .. } => &mut counts.kept,
                ObservedAnswer::Ended { .. } => &mut counts.ended,
                ObservedAnswer::Failed { .. } => &mut counts.errors,
                ObservedAnswer::Late => &mut counts.late,
            };
            *count += 1;
            counts.calls += 1;
        }
        counts
    }
}

impl<'a> VerifyReport<'a> {
    pub(super) fn new(
        flags: &'a Verify,
        run: &'a VerifyRun,
        results: &'a [PropertyResult],
        conditions: &RunConditions,
    ) -> Self {
        let results = results.iter().map(|result| (result, verdict(result, conditions))).collect();
        let unseen_returns = run.unseen_returns(conditions.skew);
        Self { flags, run, results, explaining_skew: None, unseen_returns }
    }

    /// Adds a difference between clocks that would explain all answers, if there is one.
    pub(super) fn with_explaining_skew(self, explaining_skew: Option<u64>) -> Self {
        Self { explaining_skew, ..self }
    }

    /// Returns 1 if a property was violated, 2 if one is inconclusive or a disturbance failed,
    /// otherwise 0.
    pub(super) fn exit_code(&self) -> u8 {
        let mut code = if self.failed_disturbances().next().is_some() { 2 } else { 0 };
        for (_, verdict) in &self.results {
            match verdict {
                PropertyVerdict::Violated => return 1,
                PropertyVerdict::Inconclusive(_) => code = 2,
                PropertyVerdict::Held | PropertyVerdict::NotChecked => {}
            }
        }
        code
    }

    /// Returns `true` if a property is violated that clocks that differ seem to violate.
    pub(super) fn depends_on_clocks(&self) -> bool {
        let properties = CheckedProperty::ALL.into_iter();
        properties
            .filter(|property| *property != CheckedProperty::AnsweredInTime)
            .any(|property| self.is_violated(property))
    }

    fn is_violated(&self, property: CheckedProperty) -> bool {
        let mut results = self.results.iter();
        let found = results.find(|(result, _)| result.property == property);
        found.is_some_and(|(_, verdict)| *verdict == PropertyVerdict::Violated)
    }

    pub(super) fn json(&self) -> Value {
        let counts = AnswerCounts::of(self.run.calls.iter());
        let properties = self.results.iter().map(|(result, verdict)| {
            let example = result.example.as_ref().map(|example| {
                let calls = example.calls.iter();
                let calls = calls.map(|call| call_json(self.run, &self.flags.targets, call));
                json!({"reason": example.reason, "calls": calls.collect::<Vec<_>>()})
            });
            let (verdict, reason) = match verdict {
                PropertyVerdict::Held => ("held", None),
                PropertyVerdict::Violated => ("violated", None),
                PropertyVerdict::Inconclusive(missing) => ("inconclusive", Some(missing.text())),
                PropertyVerdict::NotChecked => ("not_checked", None),
            };
            json!({
                "property": result.property, "verdict": verdict, "reason": reason,
                "checked_on": result.examined, "contradictions": result.contradictions,
                "example": example,
            })
        });
        let rules = self.run.rules.iter().map(|rule| rule.name());
        let returns = self.unseen_returns.iter().map(|(rule, _)| rule);
        json!({
            "requests": self.run.requests, "calls": counts.calls, "admitted": counts.admitted, "denied": counts.denied, "kept": counts.kept, "ended": counts.ended,
            "errors": counts.errors, "late": counts.late, "error_kinds": self.errors(),
            "counters": self.run.counters.len(), "seconds": self.run.seconds, "interrupted": self.run.is_interrupted, "rules": rules.collect::<Vec<_>>(),
            "not_checked": self.run.skipped, "mismatches": self.run.mismatches,
            "never_reached": self.run.never_reached(), "returns_not_seen": returns.collect::<Vec<_>>(),
            "disturbances": self.run.disturbances,
            "explained_by_skew_ms": self.explaining_skew,
            "properties": properties.collect::<Vec<_>>(),
        })
    }

    pub(super) fn text(&self) -> String {
        let mut text = format!(
            "{} by {} to {} in {:.0} s",
            counted(self.run.requests, "call"),
            counted(self.flags.clients, "client"),
            counted(self.flags.targets.len(), "target"),
            self.run.seconds,
        );
        if self.flags.disturb.is_some() {
            let count = counted(self.run.disturbances.len(), "disturbance");
            let _ = write!(text, ", {count}");
        }
        if self.run.is_interrupted {
            text.push_str(", interrupted");
        }
        let _ = writeln!(text, "\n\n{}", self.rules());
        self.notes(&mut text);
        text.push_str(&self.verdicts());
        for (result, verdict) in &self.results {
            let Some(example) = &result.example else { continue };
            if *verdict == PropertyVerdict::Violated {
                text.push_str(&self.example(result.property, example));
            }
        }
        text
    }

    fn rules(&self) -> String {
        let rows = self.run.rules.iter().enumerate().map(|(index, rule)| {
            let AnswerCounts { calls, admitted, denied, kept, ended, errors, late } =
                AnswerCounts::of(self.run.calls_of(index));
            let counters = self.run.counters.iter().filter(|counter| counter.rule == index).count();
            let counts = [counters, calls, admitted, denied, kept, ended, errors, late];
            let [counters, calls, admitted, denied, kept, ended, errors, late] =
                counts.map(|count| count.to_string());
            [rule.name(), counters, calls, admitted, denied, kept, ended, errors, late]
        });
        let columns =
            ["rule", "counters", "calls", "admitted", "denied", "kept", "ended", "errors", "late"];
        table::of(columns, rows)
    }

    /// Writes what limits the result.
    fn notes(&self, text: &mut String) {
        let mut notes: Vec<String> = Vec::new();
        notes.extend(self.run.mismatches.iter().map(|note| format!("mismatch: {note}")));
        notes.extend(self.run.skipped.iter().map(|reason| format!("not checked: {reason}")));
        let unreached = self.run.never_reached().into_iter();
        notes.extend(
            unreached.map(|rule| format!("limit not reached: {rule}: raise --duration or --rate")),
        );
        notes.extend(self.unseen_returns.iter().map(|(rule, after)| {
            let duration = after.get().div_ceil(1_000_000) + RETURN_MARGIN;
            let next = if duration > MAX_DURATION {
                "longer than any run".to_owned()
            } else {
                format!("use --duration {duration}s")
            };
            format!("not checked: that hits of {rule} return after {after}: {next}")
        }));
        if self.is_violated(CheckedProperty::AnsweredInTime) {
            let delay = millis(self.run.paused);
            notes.push(format!("delays: this process itself was delayed by up to {delay}"));
        }
        if let Some(skew) = self.explaining_skew {
            notes.push(format!(
                "clocks: a difference of {skew} ms between the clocks of this machine, the replicas \
                 and the store would explain all answers: compare them, or raise --skew"
            ));
        } else if self.run.mismatches.is_empty() && self.is_violated(CheckedProperty::ResetAccurate)
        {
            let note = "clocks: compare the clocks of this machine, the replicas and the store; they \
                        must not differ by more than --skew";
            notes.push(note.to_owned());
        }
        notes.extend(self.failed_disturbances().map(|end| format!("disturbance failed: {end}")));
        let errors = self.errors();
        let kinds = errors.iter().take(MAX_ERRORS);
        notes.extend(kinds.map(|(count, error)| format!("error, {count} times: {error}")));
        if errors.len() > MAX_ERRORS {
            notes.push(format!("{} other errors: see --json", errors.len() - MAX_ERRORS));
        }
        for note in &notes {
            text.push_str(note);
            text.push('\n');
        }
        if !notes.is_empty() {
            text.push('\n');
        }
    }

    fn verdicts(&self) -> String {
        let rows = self.results.iter().map(|(result, verdict)| {
            let items = counted(result.examined, result.property.item());
            let (word, basis) = match verdict {
                PropertyVerdict::Held => ("held", format!("checked on {items}")),
                PropertyVerdict::Violated => {
                    ("VIOLATED", format!("{} of {items}", result.contradictions))
                }
                PropertyVerdict::Inconclusive(missing) => {
                    ("inconclusive", missing.text().to_owned())
                }
                PropertyVerdict::NotChecked => (
                    "not checked",
                    "not possible with leases, several windows or a gateway".to_owned(),
                ),
            };
            [word.to_owned(), result.property.text().to_owned(), basis]
        });
        table::of(["verdict", "property", "evidence"], rows)
    }

    /// Returns how disturbances ended that failed.
    fn failed_disturbances(&self) -> impl Iterator<Item = &String> {
        let ends = self.run.disturbances.iter();
        ends.filter(|end| *end != "exit status: 0" && *end != STILL_RUNNING)
    }

    /// Returns the errors with their counts, the most frequent first.
    fn errors(&self) -> Vec<(usize, String)> {
        let mut counts = BTreeMap::<&str, usize>::new();
        for call in &self.run.calls {
            if let ObservedAnswer::Failed { error } = &call.answer {
                *counts.entry(error).or_default() += 1;
            }
        }
        let mut errors: Vec<(usize, String)> =
            counts.into_iter().map(|(error, count)| (count, error.to_owned())).collect();
        errors.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
        errors
    }

    fn example(&self, property: CheckedProperty, example: &Contradiction) -> String {
        let Some(first) = example.calls.first() else { return String::new() };
        let rows = example.calls.iter().take(MAX_ROWS).map(|call| {
            let target = self.flags.targets.get(call.target).cloned().unwrap_or_default();
            let [begin, end] =
                [call.begin, call.end].map(|time| millis(time.saturating_sub(first.begin)));
            let action = action_text(call.action);
            [begin, end, target, action, call.hits.to_string(), answer_text(&call.answer)]
        });
        let calls = table::of(["begin", "end", "target", "call", "hits", "answer"], rows);
        let more = match example.calls.len().saturating_sub(MAX_ROWS) {
            0 => String::new(),
            more => format!("and {more} more: see --json\n"),
        };
        format!(
            "\n{}: {}\n{}, first call at {}\n{calls}{more}",
            property.text(),
            example.reason,
            self.run.counter_name(first.counter).unwrap_or_default(),
            timestamp(first.begin),
        )
    }
}

/// Returns a call with the names of its target and counter.
pub(super) fn call_json(run: &VerifyRun, targets: &[String], call: &ObservedCall) -> Value {
    json!({
        "counter": run.counter_name(call.counter),
        "target": targets.get(call.target),
        "request": call.request, "action": call.action, "hits": call.hits, "begin": call.begin, "end": call.end, "answer": call.answer,
    })
}

fn end_text(by: HoldEnd) -> &'static str {
    match by {
        HoldEnd::Commit => "commit",
        HoldEnd::Cancel => "cancel",
        HoldEnd::Settle => "settle",
    }
}

fn action_text(action: CallAction) -> String {
    match action {
        CallAction::Charge => "charge".to_owned(),
        CallAction::Reserve { hold } => format!("reserve {hold}"),
        CallAction::Repeat { hold } => format!("reserve {hold} again"),
        CallAction::Extend { hold } => format!("extend {hold}"),
        CallAction::End { hold, by } => format!("{} {hold}", end_text(by)),
        CallAction::EndAgain { hold, by } => format!("{} {hold} again", end_text(by)),
    }
}

fn answer_text(answer: &ObservedAnswer) -> String {
    match answer {
        ObservedAnswer::Admitted { remaining, reset }
        | ObservedAnswer::Kept { remaining, reset }
        | ObservedAnswer::Ended { remaining, reset } => {
            let remaining = remaining.map(|hits| format!(", {hits} remaining"));
            format!("OK{}{}", remaining.unwrap_or_default(), reset_text(*reset))
        }
        ObservedAnswer::Denied { reset, .. } => format!("OVER_LIMIT{}", reset_text(*reset)),
        ObservedAnswer::DeniedByOther => "OVER_LIMIT by another limit".to_owned(),
        ObservedAnswer::Failed { error } => error.clone(),
        ObservedAnswer::Late => "no answer".to_owned(),
    }
}

fn reset_text(reset: Option<u64>) -> String {
    let seconds = reset.map(|seconds| i64::try_from(seconds).unwrap_or(i64::MAX));
    seconds.map_or(String::new(), |seconds| format!(", resets in {}", seconds_text(seconds)))
}

fn millis(micros: u64) -> String {
    format!("{}.{:03} ms", micros / 1000, micros % 1000)
}

fn timestamp(micros: u64) -> String {
    let time = i64::try_from(micros).ok().and_then(|t| jiff::Timestamp::from_microsecond(t).ok());
    time.map_or_else(|| micros.to_string(), |time| time.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_until_a_reset_is_readable() {
        let admitted = ObservedAnswer::Admitted { remaining: Some(2), reset: Some(3_661) };
        assert_eq!(answer_text(&admitted), "OK, 2 remaining, resets in 1h 1m 1s");
    }
}
