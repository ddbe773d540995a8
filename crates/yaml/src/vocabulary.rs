//! Vocabularies: every word of a kind of file, once, with its level, its form and its meaning.
//!
//! The user of this module defines a vocabulary. The errors for unknown and misplaced words (in
//! [`mapping`](super::mapping)) and the JSON Schema (in [`schema`](super::schema)) are derived from
//! it.

use serde_json::Value;

/// A kind of mapping that words belong to: an enum of the user, one per vocabulary.
pub trait VocabularyLevel: Copy + PartialEq + 'static {
    /// All levels, in the order in which a schema lists them.
    const ALL: &'static [Self];

    /// Returns the words of all levels, in the order in which a schema shows them.
    fn vocabulary() -> &'static [Word<Self>];

    /// Returns the texts for such a mapping: its name and, as a phrase, its position in messages,
    /// and its name in a schema.
    fn texts(self) -> [&'static str; 3];

    /// Returns the name of such a mapping in messages.
    fn name(self) -> &'static str {
        let [name, ..] = self.texts();
        name
    }

    /// Returns the position of such a mapping, as a phrase for messages.
    fn place(self) -> &'static str {
        let [_, place, _] = self.texts();
        place
    }

    /// Returns the name of such a mapping in a schema.
    fn definition(self) -> &'static str {
        let [.., definition] = self.texts();
        definition
    }

    /// Returns the words of this level.
    fn words(self) -> impl Iterator<Item = &'static Word<Self>> + Clone {
        Self::vocabulary().iter().filter(move |word| word.levels.contains(&self))
    }

    /// Returns the word with this name, if it is allowed at this level.
    fn word(self, name: &str) -> Option<&'static Word<Self>> {
        self.words().find(|word| word.name == name)
    }

    /// Returns all levels at which a word is allowed.
    fn levels_of(name: &str) -> impl Iterator<Item = Self> {
        Self::vocabulary()
            .iter()
            .filter(move |word| word.name == name)
            .flat_map(|word| word.levels)
            .copied()
    }
}

/// The form of a word's value.
#[derive(Clone, Copy, Debug)]
pub enum Form<L: 'static> {
    /// Any scalar, as written.
    Text,
    /// A list of texts.
    Texts,
    /// A boolean.
    Truth,
    /// A whole number up to this one.
    Count(u64),
    /// One of a few words.
    OneOf(fn() -> Vec<&'static str>),
    /// A mapping of a level.
    Map(L),
    /// A list of mappings of a level.
    Maps(L),
    /// A form of the user, by its JSON Schema.
    Other(fn() -> Value),
}

/// A word of a vocabulary.
#[derive(Debug)]
pub struct Word<L: 'static> {
    /// The key, as written.
    pub name: &'static str,
    /// The mappings in which it is allowed.
    pub levels: &'static [L],
    /// The form of its value.
    pub form: Form<L>,
    /// Set if each mapping of these levels must have it.
    pub required: bool,
    /// The meaning, in one line.
    pub meaning: &'static str,
}

/// Returns a word that a mapping may have.
pub const fn may<L>(
    name: &'static str,
    levels: &'static [L],
    form: Form<L>,
    meaning: &'static str,
) -> Word<L> {
    Word { name, levels, form, required: false, meaning }
}

/// Returns a word that a mapping must have.
pub const fn must<L>(
    name: &'static str,
    levels: &'static [L],
    form: Form<L>,
    meaning: &'static str,
) -> Word<L> {
    Word { name, levels, form, required: true, meaning }
}

/// Returns the words of a table of choices.
pub fn names<T>(table: &[(&'static str, T)]) -> Vec<&'static str> {
    table.iter().map(|(name, _)| *name).collect()
}
