//! Reader of options for rules that are written elsewhere: in overlays, and in the metadata of the
//! rule.

use super::fields::{Fields, Reader};
use super::metadata::OURS;
use super::vocabulary::Level;
use super::written::{Entry, Layer, Switches};
use super::yaml::{Content, NodeId};

impl Reader<'_> {
    /// Returns `true` if a document is an overlay. One with the words of both is read as a policy,
    /// which gives the best error.
    pub(super) fn is_overlay(&self, root: NodeId) -> bool {
        self.child(root, "overlay").is_some() && self.child(root, "domain").is_none()
    }

    pub(super) fn overlay(&mut self, root: NodeId) -> Option<Vec<Entry>> {
        let fields = self.fields(root, Level::Overlay)?;
        let entries = self.maps(&fields, "overlay", Level::Entry)?.value;
        Some(entries.iter().map(|entry| self.entry(entry)).collect())
    }

    fn entry(&mut self, fields: &Fields) -> Entry {
        Entry {
            span: fields.span,
            domain: self.some_text(fields, "domain"),
            key: self.some_text(fields, "key"),
            value: self.text(fields, "value"),
            name: self.text(fields, "name"),
            layer: self.layer(fields),
        }
    }

    fn layer(&mut self, fields: &Fields) -> Layer {
        let options = self.section(fields, "rate_limit", Level::Overlaid).map(|found| self.options(&found));
        Layer { options: options.unwrap_or_default(), switches: self.switches(fields) }
    }

    pub(super) fn switches(&mut self, fields: &Fields) -> Switches {
        Switches {
            shadow_mode: self.truth(fields, "shadow_mode"),
            quota_mode: self.truth(fields, "quota_mode"),
            share_threshold: self.truth(fields, "share_threshold"),
            detailed_metric: self.truth(fields, "detailed_metric"),
            value_to_metric: self.truth(fields, "value_to_metric"),
        }
    }

    /// Returns the options for Tollgate in the metadata of a rule.
    pub(super) fn said_in_metadata(&mut self, fields: &Fields) -> Option<Box<Layer>> {
        let ours = self.child(fields.get(self, "metadata")?, OURS)?;
        let fields = self.fields(ours, Level::Tollgate)?;
        Some(Box::new(self.layer(&fields)))
    }

    /// Returns the value of a key in a mapping, without merges.
    fn child(&self, id: NodeId, name: &str) -> Option<NodeId> {
        let Content::Map(pairs) = &self.node(id)?.content else { return None };
        let is_it = |key: NodeId| match self.node(key).map(|node| &node.content) {
            Some(Content::Scalar { text, .. }) => text == name,
            Some(Content::List(_) | Content::Map(_)) | None => false,
        };
        pairs.iter().find(|(key, _)| is_it(*key)).map(|(_, value)| *value)
    }
}
