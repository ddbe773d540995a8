//! What is wrong with policies: every problem of every file in one report, each with its place and what to do about it.
//!
//! Problems are found as `Finding`s, which know a place as an offset in a file; a [`Report`] has looked the places up and
//! stands for itself.

use std::fmt;

use super::Source;

/// Problems of one report; what is beyond is counted only. A file of another kind given by mistake has one on each line.
const MAX_PROBLEMS: usize = 500;
/// Columns shown of a line that is longer, around the caret.
const MAX_COLUMNS: usize = 140;
/// Characters shown of a text that was found.
const MAX_SHOWN: usize = 60;

/// All problems of all sources, in the order of files and lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    problems: Vec<Problem>,
    left_out: usize,
}

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    severity: Severity,
    message: String,
    places: Vec<Place>,
    notes: Vec<String>,
}

/// Whether a problem keeps a policy from being used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The policies cannot be used.
    Error,
    /// They can, and probably do not do what was meant.
    Warning,
}

/// A place in a file, with the text that stands there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    file: String,
    /// Line and column, from 1; `None` where the problem is the file as a whole.
    position: Option<(usize, usize)>,
    excerpt: Option<Excerpt>,
    label: String,
}

/// A line and what of it is marked.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Excerpt {
    line: String,
    indent: usize,
    carets: usize,
}

impl Report {
    /// Whether there is nothing to report.
    pub fn is_empty(&self) -> bool {
        self.problems.is_empty()
    }

    /// How many problems there are, those left out included.
    pub fn len(&self) -> usize {
        self.problems.len().saturating_add(self.left_out)
    }

    /// The problems, in the order of files and lines.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.problems.iter()
    }

    /// A problem of a file as a whole, such as one that cannot be read.
    pub(super) fn push_unreadable(&mut self, file: &str, message: String) {
        let place = Place { file: file.to_owned(), position: None, excerpt: None, label: String::new() };
        let problem = Problem { severity: Severity::Error, message, places: vec![place], notes: Vec::new() };
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(problem);
        } else {
            self.left_out = self.left_out.saturating_add(1);
        }
    }
}

impl Problem {
    /// Whether it is an error or a warning.
    pub fn severity(&self) -> Severity {
        self.severity
    }

    /// What is wrong, in one line.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// File, and line and column from 1 where the problem stands at one.
    pub fn place(&self) -> Option<(&str, Option<(usize, usize)>)> {
        self.places.first().map(|place| (place.file.as_str(), place.position))
    }
}

impl std::error::Error for Report {}

impl fmt::Display for Report {
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

impl Place {
    /// `width`: that of the line numbers.
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

/// Where something stands: a file's number and byte offsets in its text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Span {
    pub(super) file: u32,
    pub(super) start: u32,
    pub(super) end: u32,
}

/// A value and where it stands.
#[derive(Clone, Debug)]
pub(super) struct Spanned<T> {
    pub(super) value: T,
    pub(super) span: Span,
}

/// A problem on its way into a report.
#[derive(Debug)]
pub(super) struct Finding {
    severity: Severity,
    span: Span,
    message: String,
    also: Option<(Span, &'static str)>,
    notes: Vec<String>,
    is_of_whole_file: bool,
}

/// Everything that is found while policies are read and compiled.
#[derive(Debug, Default)]
pub(super) struct Findings {
    list: Vec<Finding>,
    errors: usize,
    left_out: usize,
}

/// A point in the order in which findings are made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    length: usize,
    errors: usize,
    left_out: usize,
}

impl Finding {
    pub(super) fn error(span: Span, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            span,
            message: message.into(),
            also: None,
            notes: Vec::new(),
            is_of_whole_file: false,
        }
    }

    pub(super) fn warning(span: Span, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(span, message) }
    }

    /// Adds a line below the excerpt.
    pub(super) fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    /// Makes it one of the file as a whole, of which no line is shown.
    pub(super) fn whole_file(mut self) -> Self {
        self.is_of_whole_file = true;
        self
    }

    /// Adds a second place.
    pub(super) fn also(mut self, span: Span, label: &'static str) -> Self {
        self.also = Some((span, label));
        self
    }

    /// Adds "did you mean" where one of `words` is close to `found`.
    pub(super) fn suggest<'w>(self, found: &str, words: impl IntoIterator<Item = &'w str>) -> Self {
        let lower = found.to_lowercase();
        let close = words.into_iter().map(|word| (strsim::damerau_levenshtein(&lower, word), word));
        match close.min() {
            // A third of the letters may be wrong: `requests_per_minute` is still understood, `foo` is not.
            Some((distance, word)) if distance <= word.len().div_ceil(3) && found.len() < MAX_SHOWN => {
                self.note(format!("did you mean `{word}`?"))
            }
            Some(_) | None => self,
        }
    }
}

impl Findings {
    pub(super) fn push(&mut self, finding: Finding) {
        if finding.severity == Severity::Error {
            self.errors = self.errors.saturating_add(1);
        }
        if self.list.len() < MAX_PROBLEMS {
            self.list.push(finding);
        } else {
            self.left_out = self.left_out.saturating_add(1);
        }
    }

    /// Now.
    pub(super) fn mark(&self) -> Mark {
        Mark { length: self.list.len(), errors: self.errors, left_out: self.left_out }
    }

    /// Returns if there were errors since.
    pub(super) fn errors_since(&self, mark: &Mark) -> bool {
        self.errors > mark.errors
    }

    /// Puts an error in the place of all that was found since.
    pub(super) fn replace_since(&mut self, mark: &Mark, error: Finding) {
        self.list.truncate(mark.length);
        self.errors = mark.errors;
        self.left_out = mark.left_out;
        self.push(error);
    }

    pub(super) fn errors(&self) -> usize {
        self.errors
    }

    /// Looks up the places.
    pub(super) fn report(mut self, sources: &[Source]) -> Report {
        self.list.sort_by_key(|finding| (finding.span, finding.severity));
        // What an overlay says of many rules can be wrong for each of them.
        self.list.dedup_by(|one, other| one.span == other.span && one.message == other.message);
        let problems = self.list.into_iter().map(|finding| finding.placed(sources)).collect();
        Report { problems, left_out: self.left_out }
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

/// The text that spans are offsets in: without a byte order mark.
pub(super) fn text_of(source: &Source) -> &str {
    source.text.strip_prefix('\u{feff}').unwrap_or(&source.text)
}

/// The line that a span begins in, from 1.
pub(super) fn line_of(span: Span, source: &Source) -> usize {
    let text = text_of(source);
    let start = text.floor_char_boundary(usize::try_from(span.start).unwrap_or(usize::MAX));
    let (before, _) = text.split_at(start);
    before.bytes().filter(|byte| *byte == b'\n').count().saturating_add(1)
}

fn place(span: Span, label: &'static str, sources: &[Source]) -> Place {
    let label = label.to_owned();
    let index = usize::try_from(span.file).unwrap_or(usize::MAX);
    let Some(source) = sources.get(index) else {
        return Place { file: String::new(), position: None, excerpt: None, label };
    };
    let text = text_of(source);
    let offset = |at: u32| text.floor_char_boundary(usize::try_from(at).unwrap_or(usize::MAX));
    let (start, end) = (offset(span.start), offset(span.end));
    let (before, after) = text.split_at(start);
    let line_number = line_of(span, source);
    let line_start = before.rfind('\n').map_or(0, |at| at.saturating_add(1));
    let indent = before.get(line_start..).unwrap_or_default().chars().count();
    let rest = after.lines().next().unwrap_or_default();
    let marked = after.get(..end.saturating_sub(start)).unwrap_or(rest);
    let carets = marked.lines().next().unwrap_or_default().trim_end().chars().count().max(1);
    let line = before.get(line_start..).unwrap_or_default().chars().chain(rest.chars());
    let excerpt = Excerpt::of(line, indent, carets);
    Place {
        file: source.name.clone(),
        position: Some((line_number, indent.saturating_add(1))),
        excerpt: Some(excerpt),
        label,
    }
}

impl Excerpt {
    fn of(line: impl Iterator<Item = char> + Clone, indent: usize, carets: usize) -> Self {
        let is_long = line.clone().nth(MAX_COLUMNS).is_some();
        // A third of the room for what stands before the caret.
        let cut = if is_long { indent.saturating_sub(MAX_COLUMNS / 3) } else { 0 };
        let mut shown = if cut > 0 { "...".to_owned() } else { String::new() };
        let indent = indent.saturating_sub(cut).saturating_add(shown.len());
        let mut line = line.skip(cut).map(printable);
        shown.extend(line.by_ref().take(MAX_COLUMNS));
        if line.next().is_some() {
            shown.push_str("...");
        }
        let carets = carets.min(MAX_COLUMNS.saturating_sub(indent)).max(1);
        Self { line: shown.trim_end().to_owned(), indent, carets }
    }
}

/// A tab is one column like any other character, and nothing in a file speaks to the terminal.
fn printable(letter: char) -> char {
    match letter {
        '\t' => ' ',
        letter if letter.is_control() => '\u{fffd}',
        letter => letter,
    }
}

/// A text that was found, as messages show it: not longer than a line can bear.
pub(super) fn shown(text: &str) -> String {
    let mut letters = text.chars().map(printable);
    let mut shown: String = letters.by_ref().take(MAX_SHOWN).collect();
    if letters.next().is_some() {
        shown.push_str("...");
    }
    shown
}
