//! Parser of policies: turns YAML text into policies as written.
//!
//! Knows YAML and the vocabulary of policies. The compiler, not this module, knows the requirements
//! of a limit.
//!
//! | file | contents |
//! |---|---|
//! | `vocabulary` | every word of a policy, once |
//! | `budget` | the memory of policies |
//! | `metadata` | content without a vocabulary |
//! | `overlay` | options for rules from overlays and metadata |
//! | `requests` | mappings of HTTP requests to descriptors |
//! | `written` | the result |
//! | `schema` | the vocabulary as a JSON Schema |

pub(super) mod budget;
mod metadata;
mod overlay;
mod requests;
pub(super) mod schema;
pub(super) mod vocabulary;
pub(super) mod written;

use tollgate_core::algorithm::hold::OnSettle;
use tollgate_core::algorithm::sliding_window::Estimate;
use tollgate_core::algorithm::{Charge, OnStoreError};
use tollgate_yaml::mapping::{MappingFields, Strictness, YamlReader};
use tollgate_yaml::report::{Finding, Findings, SourceSpan, Spanned, shown};
use tollgate_yaml::scalar;
use tollgate_yaml::tree::{NodeContent, NodeId, Tree};
use tollgate_yaml::vocabulary::VocabularyLevel as _;

use super::PolicyDialect;
use crate::quota::UnsupportedQuota;
use crate::rule::step;
use budget::DocumentBudget;
use vocabulary::{DocumentLevel, ENVOYPROXY_WORDS};
use written::{
    AlgorithmWord, Atomicity, Options, OverrideWord, Root, WrittenDocument, WrittenHold,
    WrittenLease, WrittenLimit, WrittenQuota, WrittenRule, WrittenWindow,
};

/// Note for files without a policy.
const POLICY_START: &str = "a policy starts with `domain: NAME`";
/// Note for files of tests.
const TEST_FILE: &str = "a test file: `tollgate test FILE` runs it";

/// Maximum number of rule levels. Envoy sends descriptors of a handful of entries.
pub(super) const MAX_DEPTH: usize = 32;

/// Reader of the policies of one file.
struct DocumentReader<'a> {
    yaml: YamlReader<'a>,
    dialect: PolicyDialect,
    budget: &'a mut DocumentBudget,
}

/// Returns `true` if a text is meant as a policy: a mapping with a domain, or invalid YAML with a
/// line that starts with `domain:`.
pub(super) fn is_policy(text: &str) -> bool {
    let mut findings = Findings::default();
    let tree = Tree::parse(0, text, &mut findings);
    if findings.errors() > 0 {
        let mut lines = text.lines().take_while(|line| !line.starts_with("```"));
        return lines.any(|line| line.trim_start_matches('\u{feff}').starts_with("domain:"));
    }
    has_top_key(&tree, |key| key == "domain")
}

/// Returns `true` if a document of a file is a mapping with a wanted key.
fn has_top_key(tree: &Tree, is_wanted: impl Fn(&str) -> bool) -> bool {
    let documents = tree.roots().iter().filter_map(|root| tree.node(*root)?.pairs());
    documents.flatten().filter_map(|(key, _)| tree.text(*key)).any(is_wanted)
}

/// Reads all documents of a file. Errors in a file that is not a policy are reported without any of
/// its text, which may be a secret that a symlink leads to.
pub(super) fn read(
    file: u32,
    text: &str,
    dialect: PolicyDialect,
    budget: &mut DocumentBudget,
    findings: &mut Findings,
) -> Vec<Root> {
    let mark = findings.mark();
    let tree = Tree::parse(file, text, findings);
    let is_whole = !findings.errors_since(&mark);
    let roots = roots((file, is_whole), &tree, dialect, budget, findings);
    if findings.errors_since(&mark) && !has_words_of_policies(&tree, text) {
        let span = SourceSpan { file, ..Default::default() };
        let error = Finding::error(span, "file contains no policy").whole_file();
        let note = if has_top_key(&tree, |key| key == "tests") { TEST_FILE } else { POLICY_START };
        let error = error.note(note).note("the content of the file is not shown");
        findings.replace_since(&mark, error);
    }
    roots
}

/// Returns `true` if a word of policies is a key at the top of a file or, if the file is not YAML,
/// begins a line.
fn has_words_of_policies(tree: &Tree, text: &str) -> bool {
    let words = DocumentLevel::File.words().chain(DocumentLevel::Overlay.words());
    let words: Vec<_> = words.map(|word| word.name).collect();
    let flow = text
        .trim_start()
        .strip_prefix('{')
        .map(|rest| rest.trim_start_matches([' ', '\n', '"', '\'']));
    has_top_key(tree, |key| words.contains(&key))
        || flow.is_some_and(|flow| words.iter().any(|word| flow.starts_with(word)))
        || text.lines().any(|line| {
            let key = line.strip_prefix("- ").unwrap_or(line).split_once(':');
            key.is_some_and(|(key, _)| words.contains(&key))
        })
}

/// Reads the documents of a parsed file. `is_whole`: the file has no syntax errors.
fn roots(
    (file, is_whole): (u32, bool),
    tree: &Tree,
    dialect: PolicyDialect,
    budget: &mut DocumentBudget,
    findings: &mut Findings,
) -> Vec<Root> {
    let roots = tree.roots().iter().copied();
    let written: Vec<_> = roots
        .filter(|root| match tree.node(*root).map(|node| &node.content) {
            Some(NodeContent::Scalar { text, plain }) => !(*plain && scalar::is_null(text)),
            Some(NodeContent::List(_) | NodeContent::Map(_)) => true,
            None => false,
        })
        .collect();
    if written.is_empty() && is_whole {
        let span = SourceSpan { file, ..Default::default() };
        // Not treated as a policy without rules: a file that is being written is empty for a
        // moment.
        findings.push(Finding::error(span, "file contains no policy").note(POLICY_START));
    }
    let strictness = match dialect {
        PolicyDialect::Tollgate => Strictness::Strict,
        PolicyDialect::Envoyproxy => Strictness::Lenient(&ENVOYPROXY_WORDS),
    };
    let yaml = YamlReader::new(tree, strictness, findings);
    let mut reader = DocumentReader { yaml, dialect, budget };
    let read = reader.documents_to_read(&written);
    read.iter().filter_map(|root| reader.root(*root)).collect()
}

impl DocumentReader<'_> {
    /// Returns the documents of a file that the dialect reads.
    fn documents_to_read<'d>(&mut self, documents: &'d [NodeId]) -> &'d [NodeId] {
        let Some((first, others)) = documents.split_first() else { return documents };
        if self.dialect == PolicyDialect::Tollgate {
            return documents;
        }
        for other in others {
            let Some(span) = self.yaml.node(*other).map(|other| other.span) else { continue };
            let warning = "only the first document of a file is read, this one is ignored";
            self.yaml.report(Finding::warning(span, warning));
        }
        std::slice::from_ref(first)
    }

    /// Reads a document, unless its texts do not fit into the budget.
    fn root(&mut self, root: NodeId) -> Option<Root> {
        let node = self.yaml.node(root)?;
        if !self.budget.charge_text(node.bytes(), node.span, self.yaml.findings) {
            return None;
        }
        if self.is_overlay(root) {
            return self.overlay(root).map(Root::Overlay);
        }
        self.document(root).map(Box::new).map(Root::Policy)
    }

    fn document(&mut self, root: NodeId) -> Option<WrittenDocument> {
        let fields = self.yaml.fields(root, DocumentLevel::File)?;
        let domain = self.yaml.some_text(&fields, "domain");
        let place = format!("domain `{}`", domain.as_ref().map_or("?", |domain| &domain.value));
        self.yaml.path.clone_from(&place);
        let atomicity = self.yaml.one_of(&fields, "atomicity", Atomicity::WORDS);
        let quotas = self.yaml.section(&fields, "rlqs", DocumentLevel::Quotas);
        let unsupported_quota = quotas
            .and_then(|found| self.yaml.one_of(&found, "unsupported", UnsupportedQuota::WORDS));
        let defaults = self.yaml.section(&fields, "defaults", DocumentLevel::Defaults);
        let defaults = defaults.map(|found| self.options(&found)).unwrap_or_default();
        let mappings = self.mappings(&fields);
        let rules = self.rules(&fields, &place, "", 1);
        self.yaml.path.clear();
        Some(WrittenDocument {
            domain: domain?,
            atomicity,
            unsupported_quota,
            defaults,
            rules,
            mappings,
        })
    }

    fn rules(
        &mut self,
        fields: &MappingFields<DocumentLevel>,
        place: &str,
        above: &str,
        depth: usize,
    ) -> Vec<WrittenRule> {
        let items =
            self.yaml.items(fields, "descriptors").map(|items| items.value).unwrap_or_default();
        let first = items.first().and_then(|item| self.yaml.node(*item));
        if let Some(first) = first.filter(|_| depth > MAX_DEPTH) {
            let error = format!("rules are nested more than {MAX_DEPTH} levels deep");
            self.yaml.report(Finding::error(first.span, error));
            return Vec::new();
        }
        let outer = self.yaml.path.clone();
        let rules = items.iter().filter_map(|item| self.rule(*item, place, above, depth)).collect();
        self.yaml.path = outer;
        rules
    }

    /// Reads a rule. `above`: the path of its parent.
    fn rule(
        &mut self,
        item: NodeId,
        place: &str,
        above: &str,
        depth: usize,
    ) -> Option<WrittenRule> {
        let known = self.yaml.peek(item, "value").filter(|value| !value.is_empty());
        let step = step(self.yaml.peek(item, "key").unwrap_or("?"), known);
        let path = if above.is_empty() { step } else { format!("{above} > {step}") };
        self.yaml.path = in_rule(&path, place);
        let span = self.yaml.node(item)?.span;
        let texts = ["key", "value"]
            .map(|word| self.yaml.peek(item, word).filter(|text| text.contains('*')));
        let patterns = texts.iter().flatten().map(|text| text.len()).fold(0, usize::saturating_add);
        if !self.budget.charge_rule(path.len(), patterns, span, self.yaml.findings) {
            return None;
        }
        let fields = &self.yaml.fields(item, DocumentLevel::Rule)?;
        let key = self.yaml.some_text(fields, "key");
        let value = self.yaml.text(fields, "value").filter(|value| !value.value.is_empty());
        let limit = self.yaml.section(fields, "rate_limit", DocumentLevel::Limit);
        let limit = limit.map(|found| self.limit(&found));
        let candidate = self.yaml.section(fields, "candidate", DocumentLevel::Candidate);
        let candidate = candidate.map(|found| self.limit(&found));
        let switches = self.switches(fields);
        let metadata = self.metadata(fields);
        let layer = self.options_in_metadata(fields);
        let children = self.rules(fields, place, &path, depth.saturating_add(1));
        Some(WrittenRule {
            key: key?,
            value,
            limit,
            candidate,
            switches,
            metadata,
            layer,
            children,
        })
    }

    fn limit(&mut self, fields: &MappingFields<DocumentLevel>) -> WrittenLimit {
        let errors = self.yaml.findings.errors();
        let single = self.window(fields);
        let windows = self.yaml.maps(fields, "windows", DocumentLevel::Window);
        let windows = windows.map(|Spanned { value, span }| {
            let value = value.iter().map(|window| self.window(window)).collect();
            Spanned { value, span }
        });
        let replaced = self.yaml.maps(fields, "replaces", DocumentLevel::Replaced);
        let mut limit = WrittenLimit {
            span: fields.span,
            is_whole: true,
            single,
            windows,
            in_flight: self.yaml.count(fields, "in_flight"),
            unlimited: self.yaml.truth(fields, "unlimited"),
            name: self.yaml.text(fields, "name").filter(|name| !name.value.is_empty()),
            replaces: replaced
                .iter()
                .flat_map(|replaced| &replaced.value)
                .filter_map(|item| self.yaml.some_text(item, "name"))
                .collect(),
            options: self.options(fields),
        };
        limit.is_whole = self.yaml.findings.errors() == errors;
        limit
    }

    fn window(&mut self, fields: &MappingFields<DocumentLevel>) -> WrittenWindow {
        WrittenWindow {
            span: fields.span,
            requests_per_unit: self.yaml.count(fields, "requests_per_unit"),
            unit: self.yaml.text(fields, "unit"),
        }
    }

    fn quota(&mut self, lease: &MappingFields<DocumentLevel>) -> Option<WrittenQuota> {
        let found = self.yaml.section(lease, "rlqs", DocumentLevel::Quota)?;
        let size = self.yaml.some_text(&found, "size");
        Some(WrittenQuota { size, ttl: self.yaml.some_text(&found, "ttl") })
    }

    fn options(&mut self, fields: &MappingFields<DocumentLevel>) -> Options {
        Options {
            algorithm: self.yaml.one_of(fields, "algorithm", AlgorithmWord::WORDS),
            burst: self.yaml.count(fields, "burst"),
            max_debt: self.yaml.count(fields, "max_debt"),
            buckets: self.yaml.count(fields, "buckets"),
            estimate: self.yaml.one_of(fields, "estimate", Estimate::WORDS),
            calendar: self.yaml.truth(fields, "calendar"),
            time_zone: self.yaml.some_text(fields, "time_zone"),
            charge: self.yaml.one_of(fields, "charge", Charge::WORDS),
            inherit: self.yaml.one_of(fields, "override", OverrideWord::WORDS),
            on_store_error: self.yaml.one_of(fields, "on_store_error", OnStoreError::WORDS),
            record: self.yaml.texts(fields, "record"),
            hash_values: self.yaml.truth(fields, "hash_values"),
            lease: self.yaml.section(fields, "lease", DocumentLevel::Lease).map(|found| Spanned {
                value: WrittenLease {
                    size: self.yaml.some_text(&found, "size"),
                    ttl: self.yaml.some_text(&found, "ttl"),
                    holders: self.yaml.texts(&found, "holders"),
                    quota: self.quota(&found),
                },
                span: found.span,
            }),
            hold: self.yaml.section(fields, "hold", DocumentLevel::Hold).map(|found| Spanned {
                value: WrittenHold {
                    ttl: self.yaml.some_text(&found, "ttl"),
                    on_settle: self.yaml.one_of(&found, "on_settle", OnSettle::WORDS),
                },
                span: found.span,
            }),
        }
    }
}

/// Describes a rule in a message.
fn in_rule(path: &str, place: &str) -> String {
    format!("rule `{}` of {place}", shown(path))
}

/// Returns the note of a finding about a rule.
pub(super) fn note_of(path: &str, place: &str) -> String {
    format!("in {}", in_rule(path, place))
}
