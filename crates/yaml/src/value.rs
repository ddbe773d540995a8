//! A node with its tree, for readers without a vocabulary.

use super::report::SourceSpan;
use super::tree::{NodeId, Tree};

/// A node with its tree.
#[derive(Clone, Copy, Debug)]
pub struct YamlValue<'t> {
    tree: &'t Tree,
    id: NodeId,
}

impl<'t> YamlValue<'t> {
    /// Returns the first document of a tree; `None` for an empty file.
    pub fn first(tree: &'t Tree) -> Option<Self> {
        let id = *tree.roots().first()?;
        Some(Self { tree, id })
    }

    /// Returns the position.
    pub fn span(self) -> SourceSpan {
        self.tree.node(self.id).map(|node| node.span).unwrap_or_default()
    }

    /// Returns the text of a scalar.
    pub fn text(self) -> Option<&'t str> {
        self.tree.text(self.id)
    }

    /// Returns the items of a list.
    pub fn items(self) -> Option<impl ExactSizeIterator<Item = Self>> {
        Some(self.tree.node(self.id)?.items()?.iter().map(move |id| self.at(*id)))
    }

    /// Returns the keys and values of a map, without keys that are not scalars.
    pub fn pairs(self) -> Option<impl Iterator<Item = (&'t str, Self)>> {
        let pairs = self.tree.node(self.id)?.pairs()?.iter();
        Some(pairs.filter_map(move |(key, value)| Some((self.tree.text(*key)?, self.at(*value)))))
    }

    /// Returns the value of a key in a map.
    pub fn get(self, key: &str) -> Option<Self> {
        self.pairs()?.find_map(|(name, value)| (name == key).then_some(value))
    }

    fn at(self, id: NodeId) -> Self {
        Self { id, ..self }
    }
}
