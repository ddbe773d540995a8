//! Compiler of `requests`: mappings as written to mappings that can be applied.

use std::collections::HashMap;
use std::sync::Arc;

use tollgate_core::descriptor::hold::is_reserved;
use tollgate_yaml::report::{Finding, Findings, SourceSpan, Spanned};

use super::written::{
    AttributeWord, WrittenDocument, WrittenEntrySource, WrittenMappedDescriptor, WrittenMapping,
    WrittenMatch, WrittenSource, WrittenText,
};
use crate::pattern::Pattern;
use crate::requests::{
    DescriptorMapping, EntryMapping, LineName, LineNames, Repeated, RequestMapping, RequestMatch,
    SourceNames, ValueSource, normal_host, normal_path,
};

/// Maximum number of mappings in a policy set.
const MAX_MAPPINGS: usize = 1_000;
/// Maximum number of descriptors of a mapping, of entries of a descriptor, and of items in all
/// `match` of a mapping: a request is compared with each.
const MAX_DESCRIPTORS: usize = 64;
const MAX_ENTRIES: usize = 32;
const MAX_PATTERNS: usize = 256;
/// Maximum length of a name.
const MAX_NAME: usize = 64;

/// Compiles the mappings of all documents, sorted by name.
pub(super) fn compile<'w>(
    documents: impl Iterator<Item = &'w WrittenDocument>,
    findings: &mut Findings,
) -> Vec<RequestMapping> {
    let mut mappings = Vec::new();
    let mut names: HashMap<&str, SourceSpan> = HashMap::new();
    for document in documents {
        let domain: Arc<str> = document.domain.value.as_str().into();
        for written in &document.mappings {
            let name = &written.name;
            let mark = findings.mark();
            if let Some(first) = names.insert(&name.value, name.span) {
                let error = format!("duplicate request mapping `{}`", name.value);
                findings.push(Finding::error(name.span, error).also(first, "first defined here"));
            }
            if names.len() == MAX_MAPPINGS + 1 {
                let error = format!("more than {MAX_MAPPINGS} request mappings");
                findings.push(Finding::error(name.span, error));
            }
            mappings.push(MappingCompiler { findings }.mapping(written, &domain));
            findings.note_since(&mark, || {
                format!("in request mapping `{}` of domain `{domain}`", name.value)
            });
        }
    }
    mappings.sort_by(|a, b| a.name.cmp(&b.name));
    mappings
}

impl SourceNames {
    fn of(descriptors: &[WrittenMappedDescriptor]) -> Self {
        let mut headers = Vec::new();
        let mut queries = Vec::new();
        let mut metadata = Vec::new();
        for entry in descriptors.iter().flat_map(|descriptor| &descriptor.entries) {
            match &entry.source {
                WrittenSource::Header(name, repeated) => headers.push(header(name, *repeated)),
                WrittenSource::Query(name, repeated) => queries.push(query(name, *repeated)),
                WrittenSource::Metadata(keys) => metadata.push(keys.value.clone()),
                WrittenSource::Literal(_)
                | WrittenSource::Segment(_)
                | WrittenSource::Attribute { .. } => {}
            }
        }
        Self {
            headers: LineNames::of_headers(headers),
            queries: LineNames::of_queries(queries),
            metadata: metadata.into(),
        }
    }
}

fn header(name: &WrittenText, repeated: Repeated) -> LineName {
    LineName { name: name.value.to_ascii_lowercase().into_bytes().into(), repeated }
}

fn query(name: &WrittenText, repeated: Repeated) -> LineName {
    LineName { name: name.value.as_bytes().into(), repeated }
}

/// Compiler of one mapping.
struct MappingCompiler<'f> {
    findings: &'f mut Findings,
}

impl MappingCompiler<'_> {
    fn error(&mut self, span: SourceSpan, message: String) {
        self.findings.push(Finding::error(span, message));
    }

    fn mapping(&mut self, written: &WrittenMapping, domain: &Arc<str>) -> RequestMapping {
        self.check_name(&written.name);
        let descriptors = &written.descriptors;
        if let Some(excess) = descriptors.get(MAX_DESCRIPTORS) {
            self.error(excess.span, format!("more than {MAX_DESCRIPTORS} descriptors"));
        }
        let mut patterns = descriptors.iter().flat_map(|descriptor| {
            let WrittenMatch { methods, hosts, paths } = &descriptor.matches;
            methods.iter().chain(hosts).chain(paths)
        });
        if let Some(excess) = patterns.nth(MAX_PATTERNS) {
            self.error(excess.span, format!("more than {MAX_PATTERNS} items in `match`"));
        }
        let names = SourceNames::of(descriptors);
        let descriptors =
            descriptors.iter().map(|descriptor| self.descriptor(descriptor, &names)).collect();
        RequestMapping {
            name: written.name.value.as_str().into(),
            domain: Arc::clone(domain),
            undecided: written.undecided.as_ref().map(|word| word.value).unwrap_or_default(),
            trusted_hops: written.trusted_hops.as_ref().map_or(0, |hops| small(hops.value)),
            names,
            descriptors,
        }
    }

    fn check_name(&mut self, name: &WrittenText) {
        let text = &name.value;
        let is_dots = text.bytes().all(|byte| byte == b'.');
        if text.len() > MAX_NAME || is_dots || !consists_of(text, b"-_.") {
            let what = "letters, digits, `-`, `_` and `.`: it is part of a URL";
            self.error(name.span, format!("`name` must be at most {MAX_NAME} {what}"));
        }
    }

    fn descriptor(
        &mut self,
        written: &WrittenMappedDescriptor,
        names: &SourceNames,
    ) -> DescriptorMapping {
        let WrittenMatch { methods, hosts, paths } = &written.matches;
        if let Some(excess) = written.entries.get(MAX_ENTRIES) {
            self.error(excess.key.span, format!("more than {MAX_ENTRIES} entries"));
        }
        DescriptorMapping {
            matches: RequestMatch {
                methods: methods.iter().map(|method| self.method(method)).collect(),
                hosts: hosts.iter().map(|host| self.host(host)).collect(),
                paths: paths.iter().map(|path| self.path(path)).collect(),
            },
            hits: written.hits.as_ref().map_or(1, |hits| hits.value.try_into().unwrap_or(u32::MAX)),
            entries: written.entries.iter().map(|entry| self.entry(entry, names)).collect(),
        }
    }

    fn method(&mut self, method: &WrittenText) -> Box<[u8]> {
        if !method.value.bytes().all(|byte| byte.is_ascii_alphabetic() || b"-_".contains(&byte)) {
            let error = format!("a method must be a word such as GET, found `{}`", method.value);
            self.error(method.span, error);
        }
        method.value.to_ascii_uppercase().into_bytes().into()
    }

    fn host(&mut self, host: &WrittenText) -> Pattern {
        let normal = normal_host(host.value.as_bytes());
        if !normal.eq_ignore_ascii_case(host.value.as_bytes()) {
            let normal = String::from_utf8_lossy(&normal);
            let error = format!("a host has no port and no final dot here; use `{normal}`");
            self.error(host.span, error);
        }
        Pattern::new(&host.value.to_ascii_lowercase())
    }

    fn path(&mut self, path: &WrittenText) -> Pattern {
        let text = &path.value;
        if !text.starts_with(['/', '*']) {
            let error = format!("a path must begin with `/` or `*`, found `{text}`");
            self.error(path.span, error);
            return Pattern::new(text);
        }
        // What follows a leading `*` need not begin with a slash.
        let begin = if text.starts_with('/') { "" } else { "/" };
        let whole = format!("{begin}{text}");
        let normal = normal_path(whole.as_bytes());
        let normal = normal.ok().and_then(|normal| String::from_utf8(normal.into_owned()).ok());
        let normal = normal.as_ref().and_then(|normal| normal.strip_prefix(begin));
        if normal != Some(text) {
            let error = Finding::error(path.span, format!("no normalized path matches `{text}`"));
            let note = match normal {
                _ if text.contains(['?', '#']) => {
                    "a path is matched without query and fragment".to_owned()
                }
                Some(normal) => format!("normalized, it is `{normal}`"),
                None => "servers resolve it differently, so such requests are refused".to_owned(),
            };
            self.findings.push(error.note(note));
        }
        Pattern::new(text)
    }

    fn entry(&mut self, entry: &WrittenEntrySource, names: &SourceNames) -> EntryMapping {
        let key = &entry.key;
        if key.value.is_empty() || is_reserved(key.value.as_bytes()) {
            let error =
                format!("`{}` cannot be a key: it is empty or reserved for holds", key.value);
            self.error(key.span, error);
        }
        EntryMapping {
            key: key.value.as_bytes().into(),
            source: self.source(&entry.source, &key.value, names),
            default: entry.default.as_ref().map(|text| text.value.as_bytes().into()),
        }
    }

    fn source(&mut self, source: &WrittenSource, key: &str, names: &SourceNames) -> ValueSource {
        match source {
            WrittenSource::Literal(text) => {
                if text.value.is_empty() {
                    self.error(text.span, format!("`{key}` must not be empty"));
                }
                ValueSource::Literal(text.value.as_bytes().into())
            }
            WrittenSource::Header(name, repeated) => {
                self.check_header(name);
                let name = header(name, *repeated);
                ValueSource::Header(at(&names.headers.list, |known| *known == name))
            }
            WrittenSource::Query(name, repeated) => {
                let name = query(name, *repeated);
                ValueSource::Query(at(&names.queries.list, |known| *known == name))
            }
            WrittenSource::Segment(number) => {
                if number.value == 0 {
                    self.error(number.span, "segments are counted from 1".to_owned());
                }
                ValueSource::Segment(small(number.value))
            }
            WrittenSource::Metadata(keys) => {
                if keys.value.is_empty() {
                    self.error(keys.span, "`metadata` must have at least one key".to_owned());
                }
                ValueSource::Metadata(at(&names.metadata, |known| *known == keys.value))
            }
            WrittenSource::Attribute { attribute, ipv4_prefix, ipv6_prefix } => attribute_source(
                *attribute,
                prefix(ipv4_prefix.as_ref(), 32),
                prefix(ipv6_prefix.as_ref(), 128),
            ),
        }
    }

    fn check_header(&mut self, name: &WrittenText) {
        if !consists_of(&name.value, b"!#$%&'*+-.^_`|~") {
            let error = format!("`{}` is not the name of a header", name.value);
            let note = "method, host and path are attributes: `attribute: path`".to_owned();
            self.findings.push(Finding::error(name.span, error).note(note));
        }
    }
}

/// Returns `true` if a text has only ASCII letters, digits, and the bytes in `others`.
fn consists_of(text: &str, others: &[u8]) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || others.contains(&byte))
}

/// Returns the length of the prefix of an address; by default, all its bits.
fn prefix(written: Option<&Spanned<u64>>, bits: u32) -> u32 {
    written.map_or(bits, |prefix| u32::try_from(prefix.value).unwrap_or(bits))
}

fn attribute_source(attribute: AttributeWord, ipv4_prefix: u32, ipv6_prefix: u32) -> ValueSource {
    match attribute {
        AttributeWord::Method => ValueSource::Method,
        AttributeWord::Host => ValueSource::Host,
        AttributeWord::Path => ValueSource::Path,
        AttributeWord::ClientAddress => ValueSource::ClientAddress { ipv4_prefix, ipv6_prefix },
        AttributeWord::ClientCertificate => ValueSource::ClientCertificate,
    }
}

/// Returns the position of a name, which is in the list.
fn at<T>(names: &[T], is_it: impl Fn(&T) -> bool) -> usize {
    names.iter().position(is_it).unwrap_or_default()
}

fn small(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
