//! YAML text as a tree of nodes with positions.
//!
//! Aliases stay references, so that a tree is never larger than its text. The size with all aliases
//! expanded is bounded here, once, so that code that walks a tree may follow them.

use std::collections::HashMap;

use granit_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Tag};

use super::report::{Finding, Findings, SourceSpan};

/// Maximum number of nodes of a file with all aliases expanded: ten for each of a million rules.
/// Stops alias bombs.
const MAX_EXPANDED: u64 = 10_000_000;
/// Number of nodes that aliases may add in any file. A base of options for each of many rules fits;
/// rules that consist of aliases alone do not.
const FREE_ALIASED: u64 = 50_000;
/// Number of nodes that aliases may add for each node that is written.
const ALIASED_PER_NODE: u64 = 4;
/// Maximum depth, with aliases expanded. Rules nest to 32 levels, with two levels of nodes each.
const MAX_NESTING: u32 = 128;

/// The number of a node in its tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeId(usize);

/// A node of the tree.
#[derive(Debug)]
pub struct YamlNode {
    /// The content.
    pub content: NodeContent,
    /// The position.
    pub span: SourceSpan,
    extent: Extent,
}

/// The extent of a subtree, its root included, with all aliases expanded.
#[derive(Clone, Copy, Debug, Default)]
struct Extent {
    nodes: u64,
    /// Bytes of the texts.
    bytes: u64,
    height: u32,
}

impl Extent {
    /// Adds another subtree below the same root.
    fn add(&mut self, other: Self) {
        self.nodes = self.nodes.saturating_add(other.nodes);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.height = self.height.max(other.height);
    }
}

/// The content of a node.
#[derive(Debug)]
pub enum NodeContent {
    /// A text.
    Scalar {
        /// The text.
        text: String,
        /// `true` if it is not quoted, and so may be a number, a boolean or null.
        plain: bool,
    },
    /// Items.
    List(Vec<NodeId>),
    /// Keys and values.
    Map(Vec<(NodeId, NodeId)>),
}

/// The documents of one file.
#[derive(Debug, Default)]
pub struct Tree {
    nodes: Vec<YamlNode>,
    roots: Vec<NodeId>,
}

impl YamlNode {
    /// Returns the items of a list.
    pub fn items(&self) -> Option<&[NodeId]> {
        let NodeContent::List(items) = &self.content else { return None };
        Some(items)
    }

    /// Returns the keys and values of a mapping.
    pub fn pairs(&self) -> Option<&[(NodeId, NodeId)]> {
        let NodeContent::Map(pairs) = &self.content else { return None };
        Some(pairs)
    }

    /// Returns the bytes of all texts in the subtree, with all aliases expanded.
    pub fn bytes(&self) -> u64 {
        self.extent.bytes
    }
}

impl Tree {
    /// Parses all documents of a file. A syntax error ends the file; the documents before it are
    /// kept.
    pub fn parse(file: u32, text: &str, findings: &mut Findings) -> Self {
        let mut builder = Builder { file, ..Builder::default() };
        for event in Parser::new_from_str(text) {
            let done = match event {
                Ok((event, span)) => builder.take(event, builder.span(span)),
                Err(error) => Err(builder.syntax(&error, text)),
            };
            if let Err(finding) = done {
                findings.push(finding);
                break;
            }
        }
        builder.tree
    }

    /// Returns the root of each document.
    pub fn roots(&self) -> &[NodeId] {
        &self.roots
    }

    /// Returns a node. Never `None` for an ID from this tree.
    pub fn node(&self, id: NodeId) -> Option<&YamlNode> {
        self.nodes.get(id.0)
    }

    /// Returns the text of a node; `None` for a list or a mapping.
    pub fn text(&self, id: NodeId) -> Option<&str> {
        let NodeContent::Scalar { text, .. } = &self.node(id)?.content else { return None };
        Some(text)
    }
}

/// A collection whose end is not read yet.
struct OpenNode {
    anchor: usize,
    span: SourceSpan,
    is_map: bool,
    children: Vec<NodeId>,
}

#[derive(Default)]
struct Builder {
    file: u32,
    tree: Tree,
    open: Vec<OpenNode>,
    anchors: HashMap<usize, NodeId>,
    expanded: u64,
    aliased: u64,
}

impl Builder {
    fn take(&mut self, event: Event<'_>, span: SourceSpan) -> Result<(), Finding> {
        match event {
            Event::Scalar(text, style, anchor, tag) => {
                let plain = style == ScalarStyle::Plain && !tag.is_some_and(|tag| is_text(&tag));
                self.close(NodeContent::Scalar { text: text.into_owned(), plain }, span, anchor)
            }
            Event::SequenceStart(_, anchor, _) | Event::MappingStart(_, anchor, _) => {
                let is_map = matches!(event, Event::MappingStart(..));
                self.open.push(OpenNode { anchor, span, is_map, children: Vec::new() });
                Ok(())
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(span),
            Event::Alias(anchor) => self.alias(anchor, span),
            Event::UnresolvedAlias(_) => Err(Finding::error(span, "unknown anchor")),
            Event::StreamStart | Event::StreamEnd | Event::DocumentEnd | Event::Anchor(..) => {
                Ok(())
            }
            Event::DocumentStart(..) => {
                self.anchors.clear();
                Ok(())
            }
            // Later versions of the parser may add events about layout. Nodes can only arrive as
            // the events above.
            _ => Ok(()),
        }
    }

    fn end(&mut self, end: SourceSpan) -> Result<(), Finding> {
        let Some(open) = self.open.pop() else { return Ok(()) };
        let span = SourceSpan { end: end.end.max(open.span.start), ..open.span };
        let content = if open.is_map {
            let (pairs, _) = open.children.as_chunks();
            NodeContent::Map(pairs.iter().map(|[key, value]| (*key, *value)).collect())
        } else {
            NodeContent::List(open.children)
        };
        self.close(content, span, open.anchor)
    }

    /// Adds a complete node to the tree, and registers its anchor and its parent.
    fn close(
        &mut self,
        content: NodeContent,
        span: SourceSpan,
        anchor: usize,
    ) -> Result<(), Finding> {
        let extent = self.extent(&content);
        if extent.height > MAX_NESTING {
            let error = format!("nested more than {MAX_NESTING} levels deep");
            return Err(Finding::error(span, error));
        }
        let id = NodeId(self.tree.nodes.len());
        self.tree.nodes.push(YamlNode { content, span, extent });
        if anchor != 0 {
            self.anchors.insert(anchor, id);
        }
        self.attach(id, span)
    }

    fn attach(&mut self, id: NodeId, span: SourceSpan) -> Result<(), Finding> {
        match self.open.last_mut() {
            Some(parent) => parent.children.push(id),
            None => self.tree.roots.push(id),
        }
        self.expanded = self.expanded.saturating_add(1);
        if self.expanded > MAX_EXPANDED {
            let error = format!("more than {MAX_EXPANDED} nodes with all aliases expanded");
            return Err(Finding::error(span, error));
        }
        Ok(())
    }

    fn alias(&mut self, anchor: usize, span: SourceSpan) -> Result<(), Finding> {
        let Some(id) = self.anchors.get(&anchor).copied() else {
            return Err(Finding::error(span, "alias to a node that contains it"));
        };
        let size = self.extent_of(id).nodes;
        self.expanded = self.expanded.saturating_add(size);
        self.aliased = self.aliased.saturating_add(size);
        self.attach(id, span)?;
        let written = u64::try_from(self.tree.nodes.len()).unwrap_or(u64::MAX);
        let allowed = written.saturating_mul(ALIASED_PER_NODE).saturating_add(FREE_ALIASED);
        if self.aliased <= allowed {
            return Ok(());
        }
        let error = format!("aliases add more than {allowed} nodes to {written} nodes");
        Err(Finding::error(span, error).note(format!(
            "allowed: {FREE_ALIASED}, plus {ALIASED_PER_NODE} for each node before the alias"
        )))
    }

    /// Returns the extent of a node with this content.
    fn extent(&self, content: &NodeContent) -> Extent {
        let mut extent = Extent::default();
        match content {
            NodeContent::Scalar { text, .. } => {
                extent.bytes = u64::try_from(text.len()).unwrap_or(u64::MAX);
            }
            NodeContent::List(items) => {
                items.iter().for_each(|item| extent.add(self.extent_of(*item)));
            }
            NodeContent::Map(pairs) => {
                for (key, value) in pairs {
                    extent.add(self.extent_of(*key));
                    extent.add(self.extent_of(*value));
                }
            }
        }
        extent.nodes = extent.nodes.saturating_add(1);
        extent.height = extent.height.saturating_add(1);
        extent
    }

    fn extent_of(&self, id: NodeId) -> Extent {
        self.tree.node(id).map(|node| node.extent).unwrap_or_default()
    }

    fn span(&self, span: granit_parser::Span) -> SourceSpan {
        SourceSpan { file: self.file, start: offset_of(span.start), end: offset_of(span.end) }
    }

    fn syntax(&self, error: &ScanError, text: &str) -> Finding {
        let offset = error.marker().byte_offset().unwrap_or(text.len());
        let start = u32::try_from(offset).unwrap_or(u32::MAX);
        let span = SourceSpan { file: self.file, start, end: start.saturating_add(1) };
        Finding::error(span, format!("invalid YAML: {}", error.info()))
            .note("the rest of this file was not checked")
    }
}

fn offset_of(mark: Marker) -> u32 {
    mark.byte_offset().and_then(|offset| u32::try_from(offset).ok()).unwrap_or(u32::MAX)
}

fn is_text(tag: &Tag) -> bool {
    tag.is_yaml_core_schema_tag("str")
}
