//! Parser of mappings from access logs to requests.

use super::fields::{DocumentReader, MappingFields};
use super::test_file::document;
use super::vocabulary::DocumentLevel;
use crate::policy::access_log::{AccessLogMap, SCALES, TextSource, WITHOUT};
use crate::policy::{ProblemReport, Source};
use crate::yaml::report::Finding;
use crate::yaml::tree::{NodeContent, NodeId};

/// Reads a mapping.
pub(in crate::policy) fn read(source: &Source) -> Result<AccessLogMap, ProblemReport> {
    document(source, "an access log mapping", |reader, root| reader.access_log(root))
}

impl DocumentReader<'_> {
    fn access_log(&mut self, root: NodeId) -> Option<AccessLogMap> {
        let fields = self.fields(root, DocumentLevel::AccessLog)?;
        let time = fields.get(self, "time").and_then(|time| self.fields(time, DocumentLevel::Time));
        let name = time.as_ref().and_then(|time| self.some_text(time, "field"));
        let scale = time.as_ref().and_then(|time| self.one_of(time, "unit", &SCALES));
        let domain = self.source(&fields, "domain");
        let hits = self.source(&fields, "hits");
        let items = self.items(&fields, "descriptors")?;
        if items.value.is_empty() {
            self.report(Finding::error(
                items.span,
                "`descriptors` must have at least one item, found none",
            ));
        }
        let descriptors = items.value.iter().map(|item| self.sources(*item)).collect::<Option<_>>();
        let scale = scale.map_or(1_000_000, |scale| scale.value);
        Some(AccessLogMap {
            time: name?.value,
            scale,
            domain: domain?,
            descriptors: descriptors?,
            hits,
        })
    }

    fn source(&mut self, fields: &MappingFields, word: &str) -> Option<TextSource> {
        let id = fields.get(self, word)?;
        self.source_at(id, &format!("`{word}`"))
    }

    /// Reads a source: a text, or `{ field: NAME }`.
    fn source_at(&mut self, id: NodeId, what: &str) -> Option<TextSource> {
        let node = self.node(id)?;
        match &node.content {
            NodeContent::Scalar { .. } => {
                self.text_at(id, what).map(|text| TextSource::Literal(text.value))
            }
            NodeContent::Map(_) => {
                let fields = self.fields(id, DocumentLevel::Field)?;
                let without =
                    self.one_of(&fields, "without", &WITHOUT).map(|without| without.value);
                Some(TextSource::Field { name: self.some_text(&fields, "field")?.value, without })
            }
            NodeContent::List(_) => {
                self.wrong_form(node, what, "a text or { field: NAME }");
                None
            }
        }
    }

    fn sources(&mut self, id: NodeId) -> Option<Vec<(String, TextSource)>> {
        let node = self.node(id)?;
        let NodeContent::Map(pairs) = &node.content else {
            self.wrong_form(
                node,
                "an item of `descriptors`",
                "a mapping of keys to a text or { field: NAME }",
            );
            return None;
        };
        let mut entries = Vec::new();
        for (key, value) in pairs {
            let key = self.text_at(*key, "a key")?.value;
            let value = self.source_at(*value, &format!("`{key}`"))?;
            entries.push((key, value));
        }
        Some(entries)
    }
}
