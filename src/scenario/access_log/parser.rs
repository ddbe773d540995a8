//! Parser of mappings from access logs to requests.

use super::vocabulary::AccessLogLevel;
use super::{AccessLogMap, HttpFields, LineMapping, SCALES, TextSource, WITHOUT};
use crate::yaml::Source;
use crate::yaml::mapping::{MappingFields, YamlReader, single_document};
use crate::yaml::report::{Finding, ProblemReport};
use crate::yaml::tree::{NodeContent, NodeId};

/// Reads a mapping.
pub(super) fn read(source: &Source) -> Result<AccessLogMap, ProblemReport> {
    single_document(source, "an access log mapping", |yaml, root| {
        AccessLogReader { yaml }.access_log(root)
    })
}

/// Reader of one file.
struct AccessLogReader<'a> {
    yaml: YamlReader<'a>,
}

impl AccessLogReader<'_> {
    fn access_log(&mut self, root: NodeId) -> Option<AccessLogMap> {
        let fields = self.yaml.fields(root, AccessLogLevel::File)?;
        let time = self.yaml.section(&fields, "time", AccessLogLevel::Time);
        let name = time.as_ref().and_then(|time| self.yaml.some_text(time, "field"));
        let scale = time.as_ref().and_then(|time| self.yaml.one_of(time, "unit", &SCALES));
        let mapping = self.mapping(&fields);
        let scale = scale.map_or(1_000_000, |scale| scale.value);
        Some(AccessLogMap { time: name?.value, scale, mapping: mapping? })
    }

    /// Reads the sources of a request, of one kind or the other.
    fn mapping(&mut self, fields: &MappingFields<AccessLogLevel>) -> Option<LineMapping> {
        let [has_domain, has_items, has_hits, has_http] = ["domain", "descriptors", "hits", "http"]
            .map(|word| fields.get(&self.yaml, word).is_some());
        let has_descriptors = has_domain || has_items || has_hits;
        let is_whole = has_domain && has_items;
        if has_http == has_descriptors || has_descriptors != is_whole {
            let error = "a map must have either `domain` and `descriptors`, or `http`";
            self.yaml.report(Finding::error(fields.span, error));
            return None;
        }
        if has_http {
            return self.http(fields).map(LineMapping::Http);
        }
        let domain = self.source(fields, "domain");
        let hits = self.source(fields, "hits");
        let items = self.yaml.items(fields, "descriptors")?;
        if items.value.is_empty() {
            self.yaml.report(Finding::error(
                items.span,
                "`descriptors` must have at least one item, found none",
            ));
        }
        let descriptors = items
            .value
            .iter()
            .map(|item| self.sources(*item, "an item of `descriptors`"))
            .collect::<Option<_>>();
        Some(LineMapping::Descriptors { domain: domain?, descriptors: descriptors?, hits })
    }

    fn http(&mut self, fields: &MappingFields<AccessLogLevel>) -> Option<HttpFields> {
        let fields = self.yaml.section(fields, "http", AccessLogLevel::Http)?;
        let mapping = self.yaml.some_text(&fields, "mapping");
        let method = self.source(&fields, "method");
        let target = self.source(&fields, "target");
        let host = self.source(&fields, "host");
        let client = self.source(&fields, "client_address");
        let headers = fields.get(&self.yaml, "headers").map(|id| self.sources(id, "`headers`"));
        Some(HttpFields {
            mapping: mapping?.value,
            method: method?,
            target: target?,
            host,
            client,
            headers: headers.unwrap_or_else(|| Some(Vec::new()))?,
        })
    }

    fn source(&mut self, fields: &MappingFields<AccessLogLevel>, word: &str) -> Option<TextSource> {
        let id = fields.get(&self.yaml, word)?;
        self.source_at(id, &format!("`{word}`"))
    }

    /// Reads a source: a text, or `{ field: NAME }`.
    fn source_at(&mut self, id: NodeId, what: &str) -> Option<TextSource> {
        let node = self.yaml.node(id)?;
        match &node.content {
            NodeContent::Scalar { .. } => {
                self.yaml.text_at(id, what).map(|text| TextSource::Literal(text.value))
            }
            NodeContent::Map(_) => {
                let fields = self.yaml.fields(id, AccessLogLevel::Field)?;
                let without =
                    self.yaml.one_of(&fields, "without", &WITHOUT).map(|without| without.value);
                Some(TextSource::Field {
                    name: self.yaml.some_text(&fields, "field")?.value,
                    without,
                })
            }
            NodeContent::List(_) => {
                self.yaml.wrong_form(node, what, "a text or { field: NAME }");
                None
            }
        }
    }

    fn sources(&mut self, id: NodeId, what: &str) -> Option<Vec<(String, TextSource)>> {
        let node = self.yaml.node(id)?;
        let NodeContent::Map(pairs) = &node.content else {
            self.yaml.wrong_form(node, what, "a mapping of keys to a text or { field: NAME }");
            return None;
        };
        let mut entries = Vec::new();
        for (key, value) in pairs {
            let key = self.yaml.text_at(*key, "a key")?.value;
            let value = self.source_at(*value, &format!("`{key}`"))?;
            entries.push((key, value));
        }
        Some(entries)
    }
}
