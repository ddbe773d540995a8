//! Reader of options for rules that are written elsewhere: in overlays, and in the metadata of the
//! rule.

use super::fields::{DocumentReader, MappingFields};
use super::metadata::TOLLGATE;
use super::vocabulary::DocumentLevel;
use super::written::{Switches, WrittenEntry, WrittenLayer};
use crate::yaml::tree::{NodeContent, NodeId};

impl DocumentReader<'_> {
    /// Returns `true` if a document is an overlay. One with the words of both is read as a policy,
    /// which gives the best error.
    pub(super) fn is_overlay(&self, root: NodeId) -> bool {
        self.child(root, "overlay").is_some() && self.child(root, "domain").is_none()
    }

    pub(super) fn overlay(&mut self, root: NodeId) -> Option<Vec<WrittenEntry>> {
        let fields = self.fields(root, DocumentLevel::Overlay)?;
        let entries = self.maps(&fields, "overlay", DocumentLevel::Entry)?.value;
        Some(entries.iter().map(|entry| self.entry(entry)).collect())
    }

    fn entry(&mut self, fields: &MappingFields) -> WrittenEntry {
        WrittenEntry {
            span: fields.span,
            domain: self.some_text(fields, "domain"),
            key: self.some_text(fields, "key"),
            value: self.text(fields, "value"),
            name: self.text(fields, "name"),
            layer: self.layer(fields),
        }
    }

    fn layer(&mut self, fields: &MappingFields) -> WrittenLayer {
        let options = self
            .section(fields, "rate_limit", DocumentLevel::Overlaid)
            .map(|found| self.options(&found));
        WrittenLayer { options: options.unwrap_or_default(), switches: self.switches(fields) }
    }

    pub(super) fn switches(&mut self, fields: &MappingFields) -> Switches {
        Switches {
            shadow_mode: self.truth(fields, "shadow_mode"),
            quota_mode: self.truth(fields, "quota_mode"),
            share_threshold: self.truth(fields, "share_threshold"),
            detailed_metric: self.truth(fields, "detailed_metric"),
            value_to_metric: self.truth(fields, "value_to_metric"),
        }
    }

    /// Returns the options for Tollgate in the metadata of a rule.
    pub(super) fn options_in_metadata(
        &mut self,
        fields: &MappingFields,
    ) -> Option<Box<WrittenLayer>> {
        let ours = self.child(fields.get(self, "metadata")?, TOLLGATE)?;
        let fields = self.fields(ours, DocumentLevel::Tollgate)?;
        Some(Box::new(self.layer(&fields)))
    }

    /// Returns the value of a key in a mapping, without merges.
    fn child(&self, id: NodeId, name: &str) -> Option<NodeId> {
        let NodeContent::Map(pairs) = &self.node(id)?.content else { return None };
        let is_it = |key: NodeId| match self.node(key).map(|node| &node.content) {
            Some(NodeContent::Scalar { text, .. }) => text == name,
            Some(NodeContent::List(_) | NodeContent::Map(_)) | None => false,
        };
        pairs.iter().find(|(key, _)| is_it(*key)).map(|(_, value)| *value)
    }
}
