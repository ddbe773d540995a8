//! Reader of `requests`: how HTTP requests become descriptors.

use tollgate_yaml::mapping::MappingFields;
use tollgate_yaml::report::Finding;
use tollgate_yaml::tree::{NodeContent, NodeId};

use super::DocumentReader;
use super::vocabulary::DocumentLevel;
use super::written::{
    AttributeWord, WrittenEntrySource, WrittenMappedDescriptor, WrittenMapping, WrittenMatch,
    WrittenSource, WrittenText,
};
use crate::requests::{IfUndecided, Repeated};

impl DocumentReader<'_> {
    /// Reads the mappings of a document.
    pub(super) fn mappings(
        &mut self,
        fields: &MappingFields<DocumentLevel>,
    ) -> Vec<WrittenMapping> {
        let found = self.yaml.maps(fields, "requests", DocumentLevel::Mapping);
        let outer = self.yaml.path.clone();
        let mappings = found.iter().flat_map(|found| &found.value);
        let mappings = mappings.filter_map(|mapping| self.mapping(mapping, &outer)).collect();
        self.yaml.path = outer;
        mappings
    }

    fn mapping(
        &mut self,
        fields: &MappingFields<DocumentLevel>,
        place: &str,
    ) -> Option<WrittenMapping> {
        let name = self.yaml.some_text(fields, "name")?;
        self.yaml.path = format!("request mapping `{}` of {place}", name.value);
        let trusted_hops = self.yaml.count(fields, "trusted_hops");
        let undecided = self.yaml.one_of(fields, "undecided", IfUndecided::WORDS);
        let descriptors = self.yaml.maps(fields, "descriptors", DocumentLevel::Mapped)?;
        if descriptors.value.is_empty() {
            let error = "`descriptors` must have at least one item, found none";
            self.yaml.report(Finding::error(descriptors.span, error));
        }
        let read = descriptors.value.iter();
        let read = read.filter_map(|descriptor| self.mapped_descriptor(descriptor)).collect();
        Some(WrittenMapping { name, trusted_hops, undecided, descriptors: read })
    }

    fn mapped_descriptor(
        &mut self,
        fields: &MappingFields<DocumentLevel>,
    ) -> Option<WrittenMappedDescriptor> {
        let section = self.yaml.section(fields, "match", DocumentLevel::Match);
        let matches = section.map(|section| WrittenMatch {
            methods: self.spanned_texts(&section, "methods"),
            hosts: self.spanned_texts(&section, "hosts"),
            paths: self.spanned_texts(&section, "paths"),
        });
        let matches = matches.unwrap_or_default();
        let all = matches.methods.iter().chain(&matches.hosts).chain(&matches.paths);
        let bytes = all.map(|text| text.value.len()).fold(0, usize::saturating_add);
        if !self.budget.charge_rule(0, bytes, fields.span, self.yaml.findings) {
            return None;
        }
        let hits = self.yaml.count(fields, "hits");
        let entries = self.entry_sources(fields.get(&self.yaml, "entries")?)?;
        Some(WrittenMappedDescriptor { span: fields.span, matches, hits, entries })
    }

    /// Returns the value of a word as a list of texts, each with its position.
    fn spanned_texts(
        &mut self,
        fields: &MappingFields<DocumentLevel>,
        word: &str,
    ) -> Vec<WrittenText> {
        let items = self.yaml.items(fields, word).map(|items| items.value).unwrap_or_default();
        self.yaml.texts_at(items, word)
    }

    /// Reads the entries of a descriptor: a mapping of keys to sources.
    fn entry_sources(&mut self, id: NodeId) -> Option<Vec<WrittenEntrySource>> {
        let node = self.yaml.node(id)?;
        let Some(pairs) = node.pairs() else {
            self.yaml.wrong_form(node, "`entries`", "a mapping of keys to a text or a source");
            return None;
        };
        if pairs.is_empty() {
            let error = "`entries` must have at least one key, found none";
            self.yaml.report(Finding::error(node.span, error));
        }
        let mut entries: Vec<WrittenEntrySource> = Vec::new();
        for (key, value) in pairs {
            let Some(key) = self.yaml.text_at(*key, "a key") else { continue };
            if let Some(first) = entries.iter().find(|entry| entry.key.value == key.value) {
                let error = Finding::error(key.span, format!("duplicate key `{}`", key.value));
                self.yaml.report(error.also(first.key.span, "first defined here"));
            } else if let Some((source, default)) = self.entry_source(*value, &key.value) {
                entries.push(WrittenEntrySource { key, source, default });
            }
        }
        Some(entries)
    }

    /// Reads a source and its default.
    fn entry_source(
        &mut self,
        id: NodeId,
        key: &str,
    ) -> Option<(WrittenSource, Option<WrittenText>)> {
        let node = self.yaml.node(id)?;
        match &node.content {
            NodeContent::Scalar { .. } => {
                let text = self.yaml.text_at(id, &format!("`{key}`"))?;
                Some((WrittenSource::Literal(text), None))
            }
            NodeContent::Map(_) => {
                let fields = self.yaml.fields(id, DocumentLevel::Source)?;
                let default = self.yaml.some_text(&fields, "default");
                Some((self.source_of(&fields)?, default))
            }
            NodeContent::List(_) => {
                self.yaml.wrong_form(node, &format!("`{key}`"), "a text or a source");
                None
            }
        }
    }

    fn source_of(&mut self, fields: &MappingFields<DocumentLevel>) -> Option<WrittenSource> {
        let ipv4_prefix = self.yaml.count(fields, "ipv4_prefix");
        let ipv6_prefix = self.yaml.count(fields, "ipv6_prefix");
        let repeated = self.yaml.one_of(fields, "repeated", Repeated::WORDS);
        let how = repeated.as_ref().map_or(Repeated::default(), |word| word.value);
        let header = self.yaml.some_text(fields, "header");
        let query = self.yaml.some_text(fields, "query");
        if let Some(repeated) = repeated.filter(|_| header.is_none() && query.is_none()) {
            let error = "`repeated` requires `header` or `query`";
            self.yaml.report(Finding::error(repeated.span, error));
        }
        let header = header.map(|name| WrittenSource::Header(name, how));
        let query = query.map(|name| WrittenSource::Query(name, how));
        let segment = self.yaml.count(fields, "segment").map(WrittenSource::Segment);
        let metadata = self.yaml.texts(fields, "metadata").map(WrittenSource::Metadata);
        let attribute =
            self.yaml.one_of(fields, "attribute", AttributeWord::WORDS).map(|word| word.value);
        let has_prefix = ipv4_prefix.is_some() || ipv6_prefix.is_some();
        if has_prefix && attribute != Some(AttributeWord::ClientAddress) {
            let error = "`ipv4_prefix` and `ipv6_prefix` require `attribute: client_address`";
            self.yaml.report(Finding::error(fields.span, error));
        }
        let words = ["header", "query", "segment", "metadata", "attribute"];
        if words.iter().filter_map(|word| fields.get(&self.yaml, word)).count() != 1 {
            let error = format!("a source must have exactly one of {}", words.join(", "));
            self.yaml.report(Finding::error(fields.span, error));
            return None;
        }
        let attribute = attribute.map(|attribute| WrittenSource::Attribute {
            attribute,
            ipv4_prefix,
            ipv6_prefix,
        });
        header.or(query).or(segment).or(metadata).or(attribute)
    }
}
