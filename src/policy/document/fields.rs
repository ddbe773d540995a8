//! Reader of mappings: checks their words against the vocabulary, and their values against the
//! forms it defines.
//!
//! Reports every problem and treats the value as absent, so that one mistake does not hide the
//! next.

use super::budget::DocumentBudget;
use super::vocabulary::{DocumentLevel, Form, WORDS};
use crate::policy::PolicyDialect;
use crate::yaml::report::{Finding, Findings, SourceSpan, Spanned, shown};
use crate::yaml::scalar;
use crate::yaml::tree::{NodeContent, NodeId, Tree, YamlNode};

/// Maximum bytes of keys, values and names: the longest header that Envoy forwards.
const MAX_TEXT_BYTES: usize = 60 * 1024;

/// Reader of one file: its tree, its current position, and its findings.
pub(super) struct DocumentReader<'a> {
    pub(super) tree: &'a Tree,
    pub(super) dialect: PolicyDialect,
    pub(super) findings: &'a mut Findings,
    pub(super) budget: &'a mut DocumentBudget,
    /// The rule that is being read, for messages.
    pub(super) path: String,
}

/// The words of one mapping.
pub(super) struct MappingFields {
    pub(super) span: SourceSpan,
    level: DocumentLevel,
    found: Vec<Field>,
}

struct Field {
    name: &'static str,
    key: SourceSpan,
    value: NodeId,
    /// Set if the field comes from a `<<` merge: the mapping's own fields take precedence.
    merged: bool,
}

impl<'a> DocumentReader<'a> {
    /// Reports a problem, with the rule that contains it.
    pub(super) fn report(&mut self, finding: Finding) {
        let finding =
            if self.path.is_empty() { finding } else { finding.note(format!("in {}", self.path)) };
        self.findings.push(finding);
    }

    pub(super) fn node(&self, id: NodeId) -> Option<&'a YamlNode> {
        self.tree.node(id)
    }

    /// Returns the words of a mapping at `level`.
    pub(super) fn fields(&mut self, id: NodeId, level: DocumentLevel) -> Option<MappingFields> {
        let node = self.node(id)?;
        let NodeContent::Map(pairs) = &node.content else {
            self.wrong_form(node, level.name(), "a mapping");
            return None;
        };
        let span =
            pairs.first().and_then(|(key, _)| self.node(*key)).map_or(node.span, |key| key.span);
        let mut fields = MappingFields { span, level, found: Vec::with_capacity(pairs.len()) };
        self.collect(pairs, &mut fields, false);
        for word in level.words().filter(|word| word.required) {
            if fields.get(self, word.name).is_none() {
                let error = Finding::error(
                    fields.span,
                    format!("`{}` is missing {}", word.name, level.place()),
                );
                self.report(error.note(format!("`{}`: {}", word.name, word.meaning)));
            }
        }
        Some(fields)
    }

    fn collect(&mut self, pairs: &'a [(NodeId, NodeId)], fields: &mut MappingFields, merged: bool) {
        let mut merges = Vec::new();
        for (key, value) in pairs {
            let Some(key) = self.node(*key) else { continue };
            match &key.content {
                NodeContent::Scalar { text, plain: true } if text == "<<" => merges.push(*value),
                NodeContent::Scalar { text, .. } => {
                    self.word(text, key.span, *value, fields, merged)
                }
                NodeContent::List(_) | NodeContent::Map(_) => {
                    self.wrong_form(key, "a key", "a string")
                }
            }
        }
        for merge in merges {
            self.merge(merge, fields, true);
        }
    }

    /// Merges `<<: *mapping` or `<<: [*first, *second]`: the first mapping takes precedence.
    fn merge(&mut self, id: NodeId, fields: &mut MappingFields, lists: bool) {
        let Some(node) = self.node(id) else { return };
        match &node.content {
            NodeContent::Map(pairs) => self.collect(pairs, fields, true),
            NodeContent::List(items) if lists => {
                items.iter().for_each(|item| self.merge(*item, fields, false))
            }
            NodeContent::List(_) | NodeContent::Scalar { .. } => {
                self.wrong_form(node, "the value of `<<`", "a mapping")
            }
        }
    }

    fn word(
        &mut self,
        text: &str,
        key: SourceSpan,
        value: NodeId,
        fields: &mut MappingFields,
        merged: bool,
    ) {
        let level = fields.level;
        let Some(word) = level.word(text) else {
            let finding = match self.dialect {
                PolicyDialect::Envoyproxy if is_of_envoyproxy(text) => {
                    Finding::warning(key, format!("key `{text}` is ignored {}", level.place()))
                }
                PolicyDialect::Envoyproxy | PolicyDialect::Tollgate => unknown(text, key, level),
            };
            return self.report(finding);
        };
        match fields.found.iter_mut().find(|field| field.name == word.name) {
            Some(_) if merged => {}
            Some(first) if !first.merged && self.dialect == PolicyDialect::Envoyproxy => {
                let warning = Finding::warning(
                    first.key,
                    format!("duplicate key `{text}`, the last value is used"),
                );
                let warning = warning.also(key, "last value");
                *first = Field { name: word.name, key, value, merged };
                self.report(warning);
            }
            Some(first) if !first.merged => {
                let error = Finding::error(key, format!("duplicate key `{}`", word.name));
                let error = error.also(first.key, "first defined here");
                self.report(error);
            }
            Some(_) | None => fields.found.push(Field { name: word.name, key, value, merged }),
        }
    }

    pub(super) fn wrong_form(&mut self, node: &YamlNode, what: &str, wanted: &str) {
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

    /// Returns the value of a word as text, exactly as written, whatever type YAML gives it.
    pub(super) fn text(&mut self, fields: &MappingFields, word: &str) -> Option<Spanned<String>> {
        let id = fields.get(self, word)?;
        self.text_at(id, &format!("`{word}`"))
    }

    pub(super) fn text_at(&mut self, id: NodeId, what: &str) -> Option<Spanned<String>> {
        let node = self.node(id)?;
        let NodeContent::Scalar { text, .. } = &node.content else {
            self.wrong_form(node, what, "a string");
            return None;
        };
        if text.len() > MAX_TEXT_BYTES {
            let error =
                format!("{what} must be at most {MAX_TEXT_BYTES} bytes long, found {}", text.len());
            self.report(Finding::error(node.span, error));
            return None;
        }
        Some(Spanned { value: text.clone(), span: node.span })
    }

    /// Returns the value of a word as text. Reports an error if it is empty.
    pub(super) fn some_text(
        &mut self,
        fields: &MappingFields,
        word: &str,
    ) -> Option<Spanned<String>> {
        let text = self.text(fields, word)?;
        if text.value.is_empty() {
            self.report(Finding::error(text.span, format!("`{word}` must not be empty")));
            return None;
        }
        Some(text)
    }

    /// Returns the value of a word as a list of texts.
    pub(super) fn texts(
        &mut self,
        fields: &MappingFields,
        word: &str,
    ) -> Option<Spanned<Vec<String>>> {
        let node = self.node(fields.get(self, word)?)?;
        let NodeContent::List(items) = &node.content else {
            self.wrong_form(node, &format!("`{word}`"), "a list of strings");
            return None;
        };
        let mut value = Vec::new();
        for item in items {
            let what = format!("an item of `{word}`");
            match self.text_at(*item, &what) {
                Some(text) if text.value.is_empty() => {
                    self.report(Finding::error(text.span, format!("{what} must not be empty")));
                }
                Some(text) => value.push(text.value),
                None => {}
            }
        }
        Some(Spanned { value, span: node.span })
    }

    /// Returns the value of a word as a boolean.
    pub(super) fn truth(&mut self, fields: &MappingFields, word: &str) -> Option<Spanned<bool>> {
        let node = self.node(fields.get(self, word)?)?;
        let value = plain(node).and_then(scalar::boolean);
        if value.is_none() {
            self.wrong_form(node, &format!("`{word}`"), "true or false, without quotes");
        }
        Some(Spanned { value: value?, span: node.span })
    }

    /// Returns the value of a word as a whole number, within the bounds of the vocabulary.
    pub(super) fn count(&mut self, fields: &MappingFields, word: &str) -> Option<Spanned<u64>> {
        let node = self.node(fields.get(self, word)?)?;
        let most =
            if let Form::Count(most) = fields.level.word(word)?.form { most } else { u64::MAX };
        let number =
            plain(node).and_then(scalar::integer).and_then(|number| u64::try_from(number).ok());
        let value = number.filter(|number| *number <= most);
        if value.is_none() {
            self.wrong_form(
                node,
                &format!("`{word}`"),
                &format!("a whole number from 0 to {most}, without quotes"),
            );
        }
        Some(Spanned { value: value?, span: node.span })
    }

    /// Returns the value of a word as one of the choices in `table`.
    pub(super) fn one_of<T: Copy>(
        &mut self,
        fields: &MappingFields,
        word: &str,
        table: &[(&'static str, T)],
    ) -> Option<Spanned<T>> {
        let text = self.text(fields, word)?;
        if let Some((_, value)) = table.iter().find(|(name, _)| *name == text.value) {
            return Some(Spanned { value: *value, span: text.span });
        }
        let names = table.iter().map(|(name, _)| *name);
        let allowed = names.clone().collect::<Vec<_>>().join(", ");
        let error = Finding::error(
            text.span,
            format!("`{word}` must be one of {allowed}, found `{}`", shown(&text.value)),
        );
        self.report(error.suggest(&text.value, names));
        None
    }

    /// Returns the items of a list.
    pub(super) fn items(
        &mut self,
        fields: &MappingFields,
        word: &str,
    ) -> Option<Spanned<&'a [NodeId]>> {
        let node = self.node(fields.get(self, word)?)?;
        let NodeContent::List(items) = &node.content else {
            self.wrong_form(node, &format!("`{word}`"), "a list");
            return None;
        };
        Some(Spanned { value: items, span: node.span })
    }

    /// Returns the value of a word as a list of mappings.
    pub(super) fn maps(
        &mut self,
        fields: &MappingFields,
        word: &str,
        level: DocumentLevel,
    ) -> Option<Spanned<Vec<MappingFields>>> {
        let items = self.items(fields, word)?;
        let value = items.value.iter().filter_map(|item| self.fields(*item, level)).collect();
        Some(Spanned { value, span: items.span })
    }

    /// Returns the text of a word in a mapping, without merges, to name the mapping in messages
    /// before it is read.
    pub(super) fn peek(&self, id: NodeId, word: &str) -> Option<&'a str> {
        let NodeContent::Map(pairs) = &self.node(id)?.content else { return None };
        let text = |id: NodeId| match &self.node(id)?.content {
            NodeContent::Scalar { text, .. } => Some(text.as_str()),
            NodeContent::List(_) | NodeContent::Map(_) => None,
        };
        pairs.iter().find(|(key, _)| text(*key) == Some(word)).and_then(|(_, value)| text(*value))
    }
}

impl MappingFields {
    /// Returns the node of a word. Null counts as absent.
    pub(super) fn get(&self, reader: &DocumentReader<'_>, name: &str) -> Option<NodeId> {
        let field = self.found.iter().find(|field| field.name == name)?;
        let null = reader.node(field.value).and_then(plain).is_some_and(scalar::is_null);
        (!null).then_some(field.value)
    }
}

fn plain(node: &YamlNode) -> Option<&str> {
    match &node.content {
        NodeContent::Scalar { text, plain: true } => Some(text),
        NodeContent::Scalar { plain: false, .. } | NodeContent::List(_) | NodeContent::Map(_) => {
            None
        }
    }
}

/// Returns `true` if envoyproxy/ratelimit has the word, which it accepts at any level.
fn is_of_envoyproxy(text: &str) -> bool {
    WORDS.iter().any(|word| word.name == text && word.is_of_envoyproxy())
}

fn unknown(text: &str, key: SourceSpan, level: DocumentLevel) -> Finding {
    let places: Vec<_> = level.elsewhere(text).map(DocumentLevel::place).collect();
    if !places.is_empty() {
        let error = Finding::error(key, format!("key `{text}` is not allowed {}", level.place()));
        return error.note(format!("it is allowed {}", places.join(" or ")));
    }
    let words = level.words().map(|word| word.name);
    Finding::error(key, format!("unknown key `{}`", shown(text)))
        .suggest(text, words.clone())
        .note(format!("allowed {}: {}", level.place(), words.collect::<Vec<_>>().join(", ")))
}
