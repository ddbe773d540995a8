//! Reader of options for rules that are written elsewhere: in overlays, and in the metadata of the
//! rule.

use tollgate_yaml::mapping::MappingFields;
use tollgate_yaml::tree::NodeId;

use super::DocumentReader;
use super::metadata::TOLLGATE;
use super::vocabulary::DocumentLevel;
use super::written::{Switches, WrittenEntry, WrittenLayer};

impl DocumentReader<'_> {
    /// Returns `true` if a document is an overlay. One with the words of both is read as a policy,
    /// which gives the best error.
    pub(super) fn is_overlay(&self, root: NodeId) -> bool {
        self.yaml.child(root, "overlay").is_some() && self.yaml.child(root, "domain").is_none()
    }

    pub(super) fn overlay(&mut self, root: NodeId) -> Option<Vec<WrittenEntry>> {
        let fields = self.yaml.fields(root, DocumentLevel::Overlay)?;
        let entries = self.yaml.maps(&fields, "overlay", DocumentLevel::Entry)?.value;
        Some(entries.iter().map(|entry| self.entry(entry)).collect())
    }

    fn entry(&mut self, fields: &MappingFields<DocumentLevel>) -> WrittenEntry {
        WrittenEntry {
            span: fields.span,
            domain: self.yaml.some_text(fields, "domain"),
            key: self.yaml.some_text(fields, "key"),
            value: self.yaml.text(fields, "value"),
            name: self.yaml.text(fields, "name"),
            layer: self.layer(fields),
        }
    }

    fn layer(&mut self, fields: &MappingFields<DocumentLevel>) -> WrittenLayer {
        let options = self.yaml.section(fields, "rate_limit", DocumentLevel::Overlaid);
        let options = options.map(|found| self.options(&found)).unwrap_or_default();
        WrittenLayer { options, switches: self.switches(fields) }
    }

    pub(super) fn switches(&mut self, fields: &MappingFields<DocumentLevel>) -> Switches {
        Switches {
            shadow_mode: self.yaml.truth(fields, "shadow_mode"),
            quota_mode: self.yaml.truth(fields, "quota_mode"),
            share_threshold: self.yaml.truth(fields, "share_threshold"),
            detailed_metric: self.yaml.truth(fields, "detailed_metric"),
            value_to_metric: self.yaml.truth(fields, "value_to_metric"),
        }
    }

    /// Returns the options for Tollgate in the metadata of a rule.
    pub(super) fn options_in_metadata(
        &mut self,
        fields: &MappingFields<DocumentLevel>,
    ) -> Option<Box<WrittenLayer>> {
        let ours = self.yaml.child(fields.get(&self.yaml, "metadata")?, TOLLGATE)?;
        let fields = self.yaml.fields(ours, DocumentLevel::Tollgate)?;
        Some(Box::new(self.layer(&fields)))
    }
}
