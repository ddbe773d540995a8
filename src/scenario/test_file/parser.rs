//! Parser of policy tests: requests and expected responses.

use super::vocabulary::TestLevel;
use super::{CODES, Case, Code, Expected, TestFile, TestStep, Wait, When};
use crate::algorithm::judge::Hits;
use crate::algorithm::time::{Micros, Timestamp};
use crate::descriptor::hold;
use crate::policy;
use crate::yaml::Source;
use crate::yaml::mapping::{MappingFields, YamlReader, single_document};
use crate::yaml::report::{Finding, ProblemReport, SourceSpan, Spanned, line_of, shown};
use crate::yaml::tree::{NodeContent, NodeId};

/// Default start of a test: the beginning of a minute, hour, day, month and year. In microseconds.
const NEW_YEAR: u64 = 1_767_225_600_000_000;
/// Description of the valid durations.
const LENGTHS: &str = "expected a whole number of us, ms, s, m, h or d such as 250ms or 15m";

/// Reads a file of tests.
pub(super) fn read(source: &Source) -> Result<TestFile, ProblemReport> {
    single_document(source, "a test file", |yaml, root| {
        TestFileReader { yaml, source }.test_file(root)
    })
}

/// Reader of one file.
struct TestFileReader<'a> {
    yaml: YamlReader<'a>,
    source: &'a Source,
}

impl TestFileReader<'_> {
    fn test_file(&mut self, root: NodeId) -> Option<TestFile> {
        if self.yaml.child(root, "tests").is_none() && self.yaml.child(root, "domain").is_some() {
            let span = self.yaml.node(root)?.span;
            let error = Finding::error(span, "a policy, not a test file");
            self.yaml.report(error.note("to validate a policy: `tollgate check FILE`"));
            return None;
        }
        let fields = self.yaml.fields(root, TestLevel::File)?;
        let policies = self.yaml.texts(&fields, "policies").map(|policies| policies.value);
        let cases = self.yaml.maps(&fields, "tests", TestLevel::Test).map(|cases| cases.value);
        let cases = cases.iter().flatten().filter_map(|case| self.case(case)).collect();
        Some(TestFile { policies: policies?, cases })
    }

    fn case(&mut self, fields: &MappingFields<TestLevel>) -> Option<Case> {
        let name = self.yaml.some_text(fields, "test").map(|name| name.value);
        self.yaml.path = format!("test `{}`", shown(name.as_deref().unwrap_or("?")));
        let domain = self.yaml.some_text(fields, "domain").map(|domain| domain.value);
        let at = self.instant(fields);
        let steps = self.yaml.maps(fields, "steps", TestLevel::Step).map(|steps| steps.value);
        let steps = steps.iter().flatten().filter_map(|step| self.step(step)).collect();
        self.yaml.path.clear();
        let at = at.map_or(Timestamp::from_micros(NEW_YEAR), |at| at.value);
        Some(Case { name: name?, domain, at, steps })
    }

    fn step(&mut self, fields: &MappingFields<TestLevel>) -> Option<TestStep> {
        let at = self.instant(fields);
        let after = self.length(fields, "after");
        if let Some(at) = &at
            && let Some(after) = &after
        {
            let error = Finding::error(after.span, "`after` and `at` cannot be combined")
                .also(at.span, "`at` is here");
            self.yaml.report(
                error.note("set the time of the step, or its time since the previous step"),
            );
        }
        let hits = self.yaml.count(fields, "hits");
        let refund = self.yaml.count(fields, "refund");
        if let (Some(hits), Some(refund)) = (&hits, &refund) {
            let error = Finding::error(refund.span, "`refund` and `hits` cannot be combined")
                .also(hits.span, "`hits` is here");
            self.yaml.report(error.note("a step either charges hits or refunds them"));
        }
        let refund_span = refund.as_ref().map(|refund| refund.span);
        let cost = hits.map(saturated);
        let hits = match (cost, refund.map(saturated)) {
            (_, Some(refund)) => Hits::Refund(refund),
            (Some(0), None) => Hits::Peek(0),
            (hits, None) => Hits::Charge(hits.unwrap_or(1)),
        };
        let times = self.yaml.count(fields, "times");
        if let Some(never) = times.as_ref().filter(|times| times.value == 0) {
            self.yaml.report(Finding::error(never.span, "`times` must be at least 1, found 0"));
        }
        let every = self.length(fields, "every");
        let descriptors = self.descriptors(fields)?;
        self.check_refund(refund_span, &descriptors);
        let expected = self.expected(fields);
        let each = self.each(fields, descriptors.len());
        Some(TestStep {
            line: line_of(fields.span, self.source),
            when: at.map_or(When::After(after.map_or(Micros::ZERO, |after| after.value)), |at| {
                When::At(at.value)
            }),
            times: times.map_or(1, |times| times.value),
            every: every.map_or(Micros::ZERO, |every| every.value),
            descriptors,
            hits,
            cost,
            expected: expected?,
            each,
        })
    }

    /// Reports a refund of hits by a descriptor whose last entry is an operation on holds.
    fn check_refund(&mut self, refund: Option<SourceSpan>, descriptors: &[Vec<(String, String)>]) {
        let last = descriptors.iter().filter_map(|pairs| pairs.last());
        let operation = last.map(|(key, _)| key.as_str()).find(|key| hold::RESERVED.contains(key));
        if let Some((span, key)) = refund.zip(operation) {
            let error = Finding::error(span, format!("`refund` and `{key}` cannot be combined"));
            self.yaml.report(
                error.note("set `hits`: the estimate of a reserve, or the cost of a commit"),
            );
        }
    }

    /// Returns the expectations for each descriptor: one for each, or none at all.
    fn each(&mut self, fields: &MappingFields<TestLevel>, descriptors: usize) -> Vec<Expected> {
        let written = self.yaml.maps(fields, "each", TestLevel::Expectation);
        if let Some(written) = written.as_ref().filter(|written| written.value.len() != descriptors)
        {
            let found = written.value.len();
            let message = format!(
                "`each` must have one item per descriptor: expected {descriptors}, found {found}"
            );
            self.yaml.report(Finding::error(written.span, message));
        }
        let one_by_one = ["remaining", "retry_after", "reset_after", "rule"];
        if descriptors > 1
            && let Some((word, id)) =
                one_by_one.iter().find_map(|word| Some((*word, fields.get(&self.yaml, word)?)))
            && let Some(node) = self.yaml.node(id)
        {
            let error = Finding::error(
                node.span,
                format!("`{word}` is ambiguous in a step with {descriptors} descriptors"),
            );
            self.yaml.report(error.note("set it in the items of `each`"));
        }
        let written = written.map(|written| written.value);
        written.iter().flatten().filter_map(|fields| self.expected(fields)).collect()
    }

    fn expected(&mut self, fields: &MappingFields<TestLevel>) -> Option<Expected> {
        let code = self.yaml.one_of(fields, "expect", &CODES);
        let remaining = self.yaml.count(fields, "remaining").map(|remaining| remaining.value);
        let retry_after = self.wait(fields, "retry_after");
        let reset_after = self.wait(fields, "reset_after");
        let rule = self.yaml.text(fields, "rule").map(|rule| rule.value);
        if let (Some(Spanned { value: Code::Ok, span }), Some(_)) = (&code, retry_after) {
            let error = Finding::error(*span, "`retry_after` requires `expect: over_limit`");
            self.yaml.report(error.note("only a denied request has a time to retry"));
        }
        let rule = rule.map(|rule| if rule == "none" { String::new() } else { rule });
        Some(Expected { code: code?.value, remaining, retry_after, reset_after, rule })
    }

    fn instant(&mut self, fields: &MappingFields<TestLevel>) -> Option<Spanned<Timestamp>> {
        let text = self.yaml.some_text(fields, "at")?;
        let instant = text.value.parse::<jiff::Timestamp>().ok();
        let Some(us) = instant.and_then(|instant| u64::try_from(instant.as_microsecond()).ok())
        else {
            let error = Finding::error(text.span, format!("invalid time `{}`", shown(&text.value)));
            self.yaml.report(error.note("expected a time such as 2026-11-21T12:00:00Z"));
            return None;
        };
        Some(Spanned { value: Timestamp::from_micros(us), span: text.span })
    }

    fn wait(&mut self, fields: &MappingFields<TestLevel>, word: &str) -> Option<Wait> {
        let is_never = self.yaml.text(fields, word)?.value == "never";
        if is_never {
            Some(Wait::Never)
        } else {
            self.length(fields, word).map(|length| Wait::For(length.value))
        }
    }

    fn length(&mut self, fields: &MappingFields<TestLevel>, word: &str) -> Option<Spanned<Micros>> {
        let text = self.yaml.some_text(fields, word)?;
        let us = text.value.strip_suffix("us").and_then(|us| us.parse().ok()).map(Micros::new);
        let Some(value) = us.or_else(|| policy::duration(&text.value)) else {
            let error =
                Finding::error(text.span, format!("invalid duration `{}`", shown(&text.value)));
            self.yaml.report(error.note(LENGTHS));
            return None;
        };
        Some(Spanned { value, span: text.span })
    }

    fn descriptors(
        &mut self,
        fields: &MappingFields<TestLevel>,
    ) -> Option<Vec<Vec<(String, String)>>> {
        let id = fields.get(&self.yaml, "hit")?;
        match &self.yaml.node(id)?.content {
            NodeContent::List(items) => items.iter().map(|item| self.descriptor(*item)).collect(),
            NodeContent::Scalar { .. } | NodeContent::Map(_) => Some(vec![self.descriptor(id)?]),
        }
    }

    /// Reads a descriptor: `key=value,key=value`, or a mapping, for values that contain a comma.
    fn descriptor(&mut self, id: NodeId) -> Option<Vec<(String, String)>> {
        let node = self.yaml.node(id)?;
        match &node.content {
            NodeContent::Scalar { text, .. } => {
                let pairs = text.split(',').filter(|pair| !pair.is_empty());
                let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
                Some(pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
            }
            NodeContent::Map(pairs) => {
                pairs.iter().map(|(key, value)| self.pair(*key, *value)).collect()
            }
            NodeContent::List(_) => {
                self.yaml.wrong_form(node, "a descriptor", "key=value,key=value or a mapping");
                None
            }
        }
    }

    fn pair(&mut self, key: NodeId, value: NodeId) -> Option<(String, String)> {
        let key = self.yaml.text_at(key, "a key")?.value;
        Some((key, self.yaml.text_at(value, "a value")?.value))
    }
}

/// Returns a count as the number of hits of a request; more than fits is as good as all.
fn saturated(count: Spanned<u64>) -> u32 {
    u32::try_from(count.value).unwrap_or(u32::MAX)
}
