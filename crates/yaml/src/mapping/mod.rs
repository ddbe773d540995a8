//! Reader of mappings: checks their words against a vocabulary, and their values against the forms
//! it defines.
//!
//! Reports every problem and treats the value as absent, so that one mistake does not hide the
//! next. `forms` has a method for each form of a value.

mod forms;

use super::Source;
use super::report::{Finding, Findings, ProblemReport, SourceSpan, shown, text_of};
use super::scalar;
use super::tree::{NodeContent, NodeId, Tree, YamlNode};
use super::vocabulary::VocabularyLevel;

/// Treatment of words that are unknown or occur twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strictness {
    /// Both are errors.
    Strict,
    /// Mistakes are warnings: of a word that occurs several times the last counts, and each of the
    /// listed words is ignored at a level that is not its own.
    Lenient(&'static [&'static str]),
}

/// Reader of the mappings of one file, with the current position and the findings.
pub struct YamlReader<'a> {
    /// The file.
    pub tree: &'a Tree,
    /// Treatment of words that are unknown or occur twice.
    pub strictness: Strictness,
    /// The problems so far.
    pub findings: &'a mut Findings,
    /// The part of the file that is being read, for messages; may be empty.
    pub path: String,
}

/// The words of one mapping.
pub struct MappingFields<L> {
    /// The position of the first word.
    pub span: SourceSpan,
    level: L,
    found: Vec<MappingField>,
}

struct MappingField {
    name: &'static str,
    key: SourceSpan,
    value: NodeId,
    origin: FieldOrigin,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum FieldOrigin {
    /// The mapping itself.
    Own,
    /// A `<<` merge: the mapping's own fields take precedence.
    Merge,
}

/// Reads a file with one document, strictly.
///
/// # Errors
/// Returns all problems of the file. `what`: the kind of file, for messages.
pub fn single_document<T>(
    source: &Source,
    what: &str,
    read: impl FnOnce(YamlReader<'_>, NodeId) -> Option<T>,
) -> Result<T, ProblemReport> {
    let mut findings = Findings::default();
    let tree = Tree::parse(0, text_of(source), &mut findings);
    let found = match tree.roots() {
        [root] => read(YamlReader::new(&tree, Strictness::Strict, &mut findings), *root),
        roots => {
            if findings.errors() == 0 {
                let message =
                    format!("{what} must have exactly one document, found {}", roots.len());
                findings.push(Finding::error(SourceSpan::default(), message));
            }
            None
        }
    };
    found
        .filter(|_| findings.errors() == 0)
        .ok_or_else(|| findings.report(std::slice::from_ref(source)))
}

impl<'a> YamlReader<'a> {
    /// Returns a reader of a file.
    pub fn new(tree: &'a Tree, strictness: Strictness, findings: &'a mut Findings) -> Self {
        Self { tree, strictness, findings, path: String::new() }
    }

    /// Reports a problem, with the part of the file that contains it.
    pub fn report(&mut self, finding: Finding) {
        let finding =
            if self.path.is_empty() { finding } else { finding.note(format!("in {}", self.path)) };
        self.findings.push(finding);
    }

    /// Returns a node.
    pub fn node(&self, id: NodeId) -> Option<&'a YamlNode> {
        self.tree.node(id)
    }

    /// Returns the words of a mapping at `level`.
    pub fn fields<L: VocabularyLevel>(&mut self, id: NodeId, level: L) -> Option<MappingFields<L>> {
        let node = self.node(id)?;
        let Some(pairs) = node.pairs() else {
            self.wrong_form(node, level.name(), "a mapping");
            return None;
        };
        let span =
            pairs.first().and_then(|(key, _)| self.node(*key)).map_or(node.span, |key| key.span);
        let mut fields = MappingFields { span, level, found: Vec::with_capacity(pairs.len()) };
        self.collect(pairs, &mut fields, FieldOrigin::Own);
        for word in level.words().filter(|word| word.required) {
            if fields.get(self, word.name).is_none() {
                let error = format!("`{}` is missing {}", word.name, level.place());
                let meaning = format!("`{}`: {}", word.name, word.meaning);
                self.report(Finding::error(fields.span, error).note(meaning));
            }
        }
        Some(fields)
    }

    /// Returns the value of a word as a mapping.
    pub fn section<L: VocabularyLevel>(
        &mut self,
        fields: &MappingFields<L>,
        word: &str,
        level: L,
    ) -> Option<MappingFields<L>> {
        let id = fields.get(self, word)?;
        self.fields(id, level)
    }

    fn collect<L: VocabularyLevel>(
        &mut self,
        pairs: &'a [(NodeId, NodeId)],
        fields: &mut MappingFields<L>,
        origin: FieldOrigin,
    ) {
        let mut merges = Vec::new();
        for (key, value) in pairs {
            let Some(key) = self.node(*key) else { continue };
            match &key.content {
                NodeContent::Scalar { text, plain: true } if text == "<<" => merges.push(*value),
                NodeContent::Scalar { text, .. } => {
                    self.word(text, key.span, *value, fields, origin)
                }
                NodeContent::List(_) | NodeContent::Map(_) => {
                    self.wrong_form(key, "a key", "a string")
                }
            }
        }
        for merge in merges {
            self.merge(merge, fields);
        }
    }

    /// Merges `<<: *mapping` or `<<: [*first, *second]`: the first mapping takes precedence.
    fn merge<L: VocabularyLevel>(&mut self, id: NodeId, fields: &mut MappingFields<L>) {
        let several = self.node(id).and_then(YamlNode::items);
        for item in several.unwrap_or(std::slice::from_ref(&id)) {
            let Some(node) = self.node(*item) else { continue };
            match node.pairs() {
                Some(pairs) => self.collect(pairs, fields, FieldOrigin::Merge),
                None => self.wrong_form(node, "the value of `<<`", "a mapping"),
            }
        }
    }

    fn word<L: VocabularyLevel>(
        &mut self,
        text: &str,
        key: SourceSpan,
        value: NodeId,
        fields: &mut MappingFields<L>,
        origin: FieldOrigin,
    ) {
        let level = fields.level;
        let Some(word) = level.word(text) else {
            let finding = match self.strictness {
                Strictness::Lenient(ignored) if ignored.contains(&text) => {
                    Finding::warning(key, format!("key `{text}` is ignored {}", level.place()))
                }
                Strictness::Lenient(_) | Strictness::Strict => unknown(text, key, level),
            };
            return self.report(finding);
        };
        let field = MappingField { name: word.name, key, value, origin };
        match fields.found.iter_mut().find(|field| field.name == word.name) {
            Some(_) if origin == FieldOrigin::Merge => {}
            Some(first)
                if first.origin == FieldOrigin::Own && self.strictness != Strictness::Strict =>
            {
                let warning = format!("duplicate key `{text}`, the last value is used");
                let warning = Finding::warning(first.key, warning).also(key, "last value");
                *first = field;
                self.report(warning);
            }
            Some(first) if first.origin == FieldOrigin::Own => {
                let error = Finding::error(key, format!("duplicate key `{text}`"));
                self.report(error.also(first.key, "first defined here"));
            }
            Some(_) | None => fields.found.push(field),
        }
    }

    /// Reports a value of another form than the wanted one.
    pub fn wrong_form(&mut self, node: &YamlNode, what: &str, wanted: &str) {
        let found = match &node.content {
            NodeContent::Scalar { text, plain: true } if scalar::is_null(text) => {
                "no value".to_owned()
            }
            NodeContent::Scalar { text, plain: true } => format!("`{}`", shown(text)),
            NodeContent::Scalar { text, plain: false } => format!("the string `{}`", shown(text)),
            NodeContent::List(_) => "a list".to_owned(),
            NodeContent::Map(_) => "a mapping".to_owned(),
        };
        self.report(Finding::error(node.span, format!("{what} must be {wanted}, found {found}")));
    }
}

impl<L> MappingFields<L> {
    /// Returns the node of a word. Null counts as absent.
    pub fn get(&self, reader: &YamlReader<'_>, name: &str) -> Option<NodeId> {
        let field = self.found.iter().find(|field| field.name == name)?;
        let null = reader.node(field.value).and_then(plain).is_some_and(scalar::is_null);
        (!null).then_some(field.value)
    }
}

fn plain(node: &YamlNode) -> Option<&str> {
    let NodeContent::Scalar { text, plain: true } = &node.content else { return None };
    Some(text)
}

fn unknown<L: VocabularyLevel>(text: &str, key: SourceSpan, level: L) -> Finding {
    let places: Vec<_> = L::levels_of(text).map(VocabularyLevel::place).collect();
    if !places.is_empty() {
        let error = Finding::error(key, format!("key `{text}` is not allowed {}", level.place()));
        return error.note(format!("it is allowed {}", places.join(" or ")));
    }
    let words = level.words().map(|word| word.name);
    let error =
        Finding::error(key, format!("unknown key `{}`", shown(text))).suggest(text, words.clone());
    // As the rest of a value with a comma in a mapping of the form `{ ... }`.
    if text.contains('=') {
        return error.note("quote a value that contains a comma: { key: \"a=1,b=2\" }");
    }
    error.note(format!("allowed {}: {}", level.place(), words.collect::<Vec<_>>().join(", ")))
}
