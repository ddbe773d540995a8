//! Values of words in the forms of a vocabulary.

use std::fmt::Display;

use super::{MappingFields, YamlReader, plain};
use crate::report::{Finding, Spanned, shown};
use crate::scalar;
use crate::tree::{NodeContent, NodeId, YamlNode};
use crate::vocabulary::{Form, VocabularyLevel};

/// Maximum bytes of a text: the longest header that Envoy forwards.
const MAX_TEXT_BYTES: usize = 60 * 1024;

impl<'a> YamlReader<'a> {
    /// Returns the value of a word as text, exactly as written, whatever type YAML gives it.
    pub fn text<L: VocabularyLevel>(
        &mut self,
        fields: &MappingFields<L>,
        word: &str,
    ) -> Option<Spanned<String>> {
        let id = fields.get(self, word)?;
        self.text_at(id, &format!("`{word}`"))
    }

    /// Returns a node as text, exactly as written. `what`: its name in messages.
    pub fn text_at(&mut self, id: NodeId, what: &str) -> Option<Spanned<String>> {
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
    pub fn some_text<L: VocabularyLevel>(
        &mut self,
        fields: &MappingFields<L>,
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
    pub fn texts<L: VocabularyLevel>(
        &mut self,
        fields: &MappingFields<L>,
        word: &str,
    ) -> Option<Spanned<Vec<String>>> {
        let node = self.node(fields.get(self, word)?)?;
        let items = self.in_form(node.items(), node, word, "a list of strings")?;
        let value = self.texts_at(items.value, word).into_iter().map(|text| text.value).collect();
        Some(Spanned { value, span: node.span })
    }

    /// Returns nodes as texts, exactly as written, without empty ones. `word`: that of the list.
    pub fn texts_at(&mut self, items: &[NodeId], word: &str) -> Vec<Spanned<String>> {
        let what = format!("an item of `{word}`");
        let mut texts = Vec::new();
        for item in items {
            match self.text_at(*item, &what) {
                Some(text) if text.value.is_empty() => {
                    self.report(Finding::error(text.span, format!("{what} must not be empty")));
                }
                text => texts.extend(text),
            }
        }
        texts
    }

    /// Returns the value of a word as a boolean.
    pub fn truth<L: VocabularyLevel>(
        &mut self,
        fields: &MappingFields<L>,
        word: &str,
    ) -> Option<Spanned<bool>> {
        let node = self.node(fields.get(self, word)?)?;
        let value = plain(node).and_then(scalar::boolean);
        self.in_form(value, node, word, "true or false, without quotes")
    }

    /// Returns the value of a word as a whole number, within the bounds of the vocabulary.
    pub fn count<L: VocabularyLevel>(
        &mut self,
        fields: &MappingFields<L>,
        word: &str,
    ) -> Option<Spanned<u64>> {
        let node = self.node(fields.get(self, word)?)?;
        let most =
            if let Form::Count(most) = fields.level.word(word)?.form { most } else { u64::MAX };
        let number =
            plain(node).and_then(scalar::integer).and_then(|number| u64::try_from(number).ok());
        let value = number.filter(|number| *number <= most);
        let form = format_args!("a whole number from 0 to {most}, without quotes");
        self.in_form(value, node, word, form)
    }

    /// Returns the value of a word as one of the choices in `table`.
    pub fn one_of<L: VocabularyLevel, T: Copy>(
        &mut self,
        fields: &MappingFields<L>,
        word: &str,
        table: &[(&'static str, T)],
    ) -> Option<Spanned<T>> {
        let text = self.text(fields, word)?;
        if let Some((_, value)) = table.iter().find(|(name, _)| *name == text.value) {
            return Some(Spanned { value: *value, span: text.span });
        }
        let names = table.iter().map(|(name, _)| *name);
        let allowed = names.clone().collect::<Vec<_>>().join(", ");
        let found = shown(&text.value);
        let error = format!("`{word}` must be one of {allowed}, found `{found}`");
        self.report(Finding::error(text.span, error).suggest(&text.value, names));
        None
    }

    /// Returns the items of a list.
    pub fn items<L: VocabularyLevel>(
        &mut self,
        fields: &MappingFields<L>,
        word: &str,
    ) -> Option<Spanned<&'a [NodeId]>> {
        let node = self.node(fields.get(self, word)?)?;
        self.in_form(node.items(), node, word, "a list")
    }

    /// Returns the value of a word. Reports an error if there is none, as its form is not `wanted`.
    fn in_form<T>(
        &mut self,
        value: Option<T>,
        node: &YamlNode,
        word: &str,
        wanted: impl Display,
    ) -> Option<Spanned<T>> {
        if value.is_none() {
            self.wrong_form(node, &format!("`{word}`"), &wanted.to_string());
        }
        Some(Spanned { value: value?, span: node.span })
    }

    /// Returns the value of a word as a list of mappings.
    pub fn maps<L: VocabularyLevel>(
        &mut self,
        fields: &MappingFields<L>,
        word: &str,
        level: L,
    ) -> Option<Spanned<Vec<MappingFields<L>>>> {
        let items = self.items(fields, word)?;
        let value = items.value.iter().filter_map(|item| self.fields(*item, level)).collect();
        Some(Spanned { value, span: items.span })
    }

    /// Returns the text of a word in a mapping, without merges, to name the mapping in messages
    /// before it is read.
    pub fn peek(&self, id: NodeId, word: &str) -> Option<&'a str> {
        self.tree.text(self.child(id, word)?)
    }

    /// Returns the value of a word in a mapping, without merges.
    pub fn child(&self, id: NodeId, word: &str) -> Option<NodeId> {
        let mut pairs = self.node(id)?.pairs()?.iter();
        pairs.find(|(key, _)| self.tree.text(*key) == Some(word)).map(|(_, value)| *value)
    }
}
