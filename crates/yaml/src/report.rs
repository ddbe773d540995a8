//! The report of every problem of every file, each with its position and a suggestion.
//!
//! Problems are collected as `Finding`s, whose positions are offsets in a file. A [`ProblemReport`]
//! has resolved them and no longer needs the sources.

mod excerpt;

use std::fmt;

use self::excerpt::{Excerpt, MAX_SHOWN};
use super::Source;

pub use self::excerpt::shown;

/// Maximum number of problems in a report; more are only counted. A file of another kind can have
/// one on every line.
const MAX_PROBLEMS: usize = 500;

/// All problems of all sources, in the order of files and lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProblemReport {
    problems: Vec<Problem>,
    left_out: usize,
}

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    severity: Severity,
    message: String,
    places: Vec<SourcePosition>,
    notes: Vec<String>,
}

/// The severity of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The policies cannot be used.
    Error,
    /// The policies can be used, but probably do not do what was meant.
    Warning,
}

/// A position in a file, with the text there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SourcePosition {
    file: String,
    /// Line and column, from 1; `None` for the file as a whole.
    position: Option<(usize, usize)>,
    excerpt: Option<Excerpt>,
    label: String,
}

impl ProblemReport {
    /// Returns `true` if there are no problems.
    pub fn is_empty(&self) -> bool {
        self.problems.is_empty()
    }

    /// Returns the number of problems, including those left out.
    pub fn len(&self) -> usize {
        self.problems.len().saturating_add(self.left_out)
    }

    /// Returns the problems, in the order of files and lines.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.problems.iter()
    }

    /// Adds a problem of a file as a whole, such as one that cannot be read.
    pub fn push_unreadable(&mut self, file: &str, message: String) {
        let places = vec![SourcePosition { file: file.to_owned(), ..SourcePosition::default() }];
        let problem = Problem { severity: Severity::Error, message, places, notes: Vec::new() };
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(problem);
        } else {
            self.left_out = self.left_out.saturating_add(1);
        }
    }
}

impl Problem {
    /// Returns the severity.
    pub fn severity(&self) -> Severity {
        self.severity
    }

    /// Returns the description of the problem, in one line.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the position and the description, in one line.
    pub fn headline(&self) -> String {
        let message = &self.message;
        match self.place() {
            Some((file, Some((line, column)))) => format!("{file}:{line}:{column}: {message}"),
            Some((file, None)) => format!("{file}: {message}"),
            None => message.clone(),
        }
    }

    /// Returns suggestions and other notes, each in one line.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Returns the file, and line and column from 1 if the problem has a position in it.
    pub fn place(&self) -> Option<(&str, Option<(usize, usize)>)> {
        self.places.first().map(|place| (place.file.as_str(), place.position))
    }
}

impl std::error::Error for ProblemReport {}

impl fmt::Display for ProblemReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            if index > 0 {
                writeln!(f)?;
            }
            write!(f, "{problem}")?;
        }
        if self.left_out > 0 {
            write!(f, "\n... and {} more\n", self.left_out)?;
        }
        Ok(())
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let severity = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        writeln!(f, "{severity}: {}", self.message)?;
        let lines = self.places.iter().filter_map(|place| place.position);
        let width = lines.map(|(line, _)| line.to_string().len()).max().unwrap_or(1);
        self.places.iter().try_for_each(|place| place.show(f, width))?;
        self.notes.iter().try_for_each(|note| writeln!(f, "{:width$} = {note}", ""))
    }
}

impl SourcePosition {
    /// Writes the position with its excerpt. `width`: the width of the line numbers.
    fn show(&self, f: &mut fmt::Formatter<'_>, width: usize) -> fmt::Result {
        let blank = "";
        let Some((line, column)) = self.position else {
            return writeln!(f, "{blank:width$}--> {}", self.file);
        };
        writeln!(f, "{blank:width$}--> {}:{line}:{column}", self.file)?;
        let Some(excerpt) = &self.excerpt else { return Ok(()) };
        writeln!(f, "{blank:width$} |")?;
        writeln!(f, "{line:width$} | {}", excerpt.line)?;
        let carets = "^".repeat(excerpt.carets);
        let marked = format!("{blank:indent$}{carets} {}", self.label, indent = excerpt.indent);
        writeln!(f, "{blank:width$} | {}", marked.trim_end())
    }
}

/// A range in a source: the file's index and byte offsets in its text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourceSpan {
    /// Index of the file.
    pub file: u32,
    /// Offset of the first byte.
    pub start: u32,
    /// Offset behind the last byte.
    pub end: u32,
}

/// A value and its position.
#[derive(Clone, Debug)]
pub struct Spanned<T> {
    /// The value.
    pub value: T,
    /// Its position.
    pub span: SourceSpan,
}

/// A problem that is not resolved to a line yet.
#[derive(Debug)]
pub struct Finding {
    severity: Severity,
    span: SourceSpan,
    message: String,
    also: Option<(SourceSpan, &'static str)>,
    notes: Vec<String>,
    is_of_whole_file: bool,
}

/// All problems found while policies are parsed and compiled.
#[derive(Debug, Default)]
pub struct Findings {
    list: Vec<Finding>,
    errors: usize,
    left_out: usize,
}

/// A point in the sequence of findings.
#[derive(Clone, Copy, Debug)]
pub struct FindingsMark {
    length: usize,
    errors: usize,
    left_out: usize,
}

impl Finding {
    /// Creates an error.
    pub fn error(span: SourceSpan, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            span,
            message: message.into(),
            also: None,
            notes: Vec::new(),
            is_of_whole_file: false,
        }
    }

    /// Creates a warning.
    pub fn warning(span: SourceSpan, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(span, message) }
    }

    /// Adds a line below the excerpt.
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    /// Turns it into a problem of the file as a whole, without an excerpt.
    pub fn whole_file(mut self) -> Self {
        self.is_of_whole_file = true;
        self
    }

    /// Adds a second position.
    pub fn also(mut self, span: SourceSpan, label: &'static str) -> Self {
        self.also = Some((span, label));
        self
    }

    /// Adds "did you mean" if one of `words` is close to `found`.
    pub fn suggest<'w>(self, found: &str, words: impl IntoIterator<Item = &'w str>) -> Self {
        match closest(&found.to_lowercase(), words) {
            Some(word) => self.note(format!("did you mean `{word}`?")),
            None => self,
        }
    }
}

/// Returns the one of `words` that is probably meant by `found`, if one is close to it.
pub fn closest<'w>(found: &str, words: impl IntoIterator<Item = &'w str>) -> Option<&'w str> {
    // Bounds the work for each word.
    if found.len() >= MAX_SHOWN {
        return None;
    }
    let close = words.into_iter().map(|word| (strsim::damerau_levenshtein(found, word), word));
    let (distance, word) = close.min()?;
    // A third of the letters may be wrong: `requests_per_minute` still matches, `foo` does not.
    (distance <= word.len().div_ceil(3)).then_some(word)
}

impl Findings {
    /// Adds a finding.
    pub fn push(&mut self, finding: Finding) {
        if finding.severity == Severity::Error {
            self.errors = self.errors.saturating_add(1);
        }
        if self.list.len() < MAX_PROBLEMS {
            self.list.push(finding);
        } else {
            self.left_out = self.left_out.saturating_add(1);
        }
    }

    /// Returns the current point.
    pub fn mark(&self) -> FindingsMark {
        FindingsMark { length: self.list.len(), errors: self.errors, left_out: self.left_out }
    }

    /// Returns `true` if there were errors since `mark`.
    pub fn errors_since(&self, mark: &FindingsMark) -> bool {
        self.errors > mark.errors
    }

    /// Replaces all findings since `mark` with an error.
    pub fn replace_since(&mut self, mark: &FindingsMark, error: Finding) {
        self.list.truncate(mark.length);
        self.errors = mark.errors;
        self.left_out = mark.left_out;
        self.push(error);
    }

    /// Adds a note to all findings since `mark`.
    pub fn note_since(&mut self, mark: &FindingsMark, note: impl Fn() -> String) {
        for finding in self.list.iter_mut().skip(mark.length) {
            finding.notes.push(note());
        }
    }

    /// Returns the number of errors.
    pub fn errors(&self) -> usize {
        self.errors
    }

    /// Resolves the positions and returns the report.
    pub fn report(mut self, sources: &[Source]) -> ProblemReport {
        self.list.sort_by_key(|finding| (finding.span, finding.severity));
        // An option of an overlay can be wrong for each of many rules: report it once.
        self.list.dedup_by(|one, other| one.span == other.span && one.message == other.message);
        let problems = self.list.into_iter().map(|finding| finding.placed(sources)).collect();
        ProblemReport { problems, left_out: self.left_out }
    }
}

impl Extend<Finding> for Findings {
    fn extend<I: IntoIterator<Item = Finding>>(&mut self, findings: I) {
        findings.into_iter().for_each(|finding| self.push(finding));
    }
}

impl Finding {
    fn placed(self, sources: &[Source]) -> Problem {
        let also = self.also.map(|(span, label)| place(span, label, sources));
        let mut first = place(self.span, "", sources);
        if self.is_of_whole_file {
            first.position = None;
            first.excerpt = None;
        }
        let places = std::iter::once(first).chain(also).collect();
        Problem { severity: self.severity, message: self.message, places, notes: self.notes }
    }
}

/// Returns the text of a source without a byte order mark. Offsets of spans refer to it.
pub fn text_of(source: &Source) -> &str {
    source.text.strip_prefix('\u{feff}').unwrap_or(&source.text)
}

/// Returns the line in which a span begins, from 1.
pub fn line_of(span: SourceSpan, source: &Source) -> usize {
    let text = text_of(source);
    let start = text.floor_char_boundary(usize::try_from(span.start).unwrap_or(usize::MAX));
    let (before, _) = text.split_at(start);
    before.bytes().filter(|byte| *byte == b'\n').count().saturating_add(1)
}

fn place(span: SourceSpan, label: &'static str, sources: &[Source]) -> SourcePosition {
    let label = label.to_owned();
    let index = usize::try_from(span.file).unwrap_or(usize::MAX);
    let Some(source) = sources.get(index) else {
        return SourcePosition { label, ..SourcePosition::default() };
    };
    let text = text_of(source);
    let [start, end] = [span.start, span.end]
        .map(|at| text.floor_char_boundary(usize::try_from(at).unwrap_or(usize::MAX)));
    let (before, after) = text.split_at(start);
    let line_number = line_of(span, source);
    let line_start = before.rfind('\n').map_or(0, |at| at.saturating_add(1));
    let indent = before.get(line_start..).unwrap_or_default().chars().count();
    let rest = after.lines().next().unwrap_or_default();
    let marked = after.get(..end.saturating_sub(start)).unwrap_or(rest);
    let carets = marked.lines().next().unwrap_or_default().trim_end().chars().count().max(1);
    let line = before.get(line_start..).unwrap_or_default().chars().chain(rest.chars());
    let excerpt = Excerpt::of(line, indent, carets);
    SourcePosition {
        file: source.name.clone(),
        position: Some((line_number, indent.saturating_add(1))),
        excerpt: Some(excerpt),
        label,
    }
}
