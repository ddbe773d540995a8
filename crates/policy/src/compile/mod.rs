//! Compiler of policies: turns parsed rules into rules that can be matched, with all problems in
//! one report.
//!
//! | file | contents |
//! |---|---|
//! | `units` | periods and lease sizes |
//! | `limit` | a `rate_limit`: its windows and options |
//! | `holds` | the holds of a limit |
//! | `layers` | options of a rule from itself, its metadata, overlays and the file's defaults |
//! | `quotas` | the hits that proxies may hold by RLQS |
//! | `requests` | mappings of HTTP requests to descriptors |
//! | `algorithm` | options by algorithm, and the limits that they make |
//! | `positions` | the word of a limit that an error refers to |
//! | `identity` | identities of counters, and the version of a policy set |
//! | `unreachable`, `advice` | warnings for rules that work but are probably a mistake |

pub(super) mod advice;
mod algorithm;
mod holds;
mod identity;
mod layers;
mod limit;
mod positions;
mod quotas;
mod requests;
pub(super) mod units;
mod unreachable;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use tollgate_core::descriptor::{Identity, Keyed};
use tollgate_yaml::report::{Finding, Findings, FindingsMark, SourceSpan, text_of};

use super::document::budget::DocumentBudget;
use super::document::{note_of, written};
use super::pattern::Pattern;
use super::rule::{Extras, Imposes, Level, Rule, RuleModes};
use super::{CompileOptions, Loaded, Policy, PolicySet, ProblemReport, Source, document};
use identity::{Path, Version};
use layers::{Layers, OverlayEntry};
use limit::CompiledLimit;

/// Maximum number of rules in a policy set, at 2.9 kB each while they are compiled (measured). More
/// point to a program that generates files without a bound.
const MAX_RULES: usize = 1_000_000;
/// Maximum number of domains.
const MAX_DOMAINS: usize = 100_000;

pub(super) fn load(sources: &[Source], options: CompileOptions) -> Result<Loaded, ProblemReport> {
    let mut findings = Findings::default();
    let mut domains: BTreeMap<String, Vec<written::WrittenDocument>> = BTreeMap::new();
    let mut overlays: Vec<written::WrittenEntry> = Vec::new();
    let mut budget =
        DocumentBudget::new(options.memory_max.unwrap_or(super::MEMORY_MAX), options.memory_held);
    for (file, source) in (0..).zip(sources) {
        let begin = SourceSpan { file, start: 0, end: 0 };
        if !budget.fits_tree(text_of(source).len(), begin, &mut findings) {
            continue;
        }
        for root in
            document::read(file, text_of(source), options.dialect, &mut budget, &mut findings)
        {
            match root {
                written::Root::Policy(document) => {
                    domains.entry(document.domain.value.clone()).or_default().push(*document);
                }
                written::Root::Overlay(entries) => overlays.extend(entries),
            }
        }
    }
    let overlays = OverlayEntry::all(&overlays, &mut findings);
    if let Some(document) =
        domains.values().nth(MAX_DOMAINS).and_then(|documents| documents.first())
    {
        let error = format!("more than {MAX_DOMAINS} domains");
        findings.push(Finding::error(document.domain.span, error));
        return Err(findings.report(sources));
    }
    let mut policies = Vec::new();
    let mut version = Version::default();
    let mappings = requests::compile(domains.values().flatten(), &mut findings);
    let mut first_id = 0;
    for (domain, documents) in &domains {
        if !options.merge_domains {
            refuse_second(domain, documents, &mut findings);
        }
        let overlays = overlays.iter().filter(|entry| entry.is_for(domain)).collect();
        let policy =
            DomainCompiler::new(domain, (first_id, options), overlays, &mut findings, &mut version)
                .policy(documents);
        first_id = first_id.saturating_add(policy.rules.len());
        policies.push(policy);
    }
    if findings.errors() > 0 {
        return Err(findings.report(sources));
    }
    overlays.iter().for_each(|entry| entry.miss(&mut findings));
    for mapping in &mappings {
        version.add("requests");
        version.add(&mapping.to_string());
    }
    let memory = budget.charged();
    let policies = PolicySet { version: version.finish(), policies, mappings, memory };
    Ok(Loaded { policies, warnings: findings.report(sources) })
}

fn refuse_second(domain: &str, documents: &[written::WrittenDocument], findings: &mut Findings) {
    let Some((first, others)) = documents.split_first() else { return };
    for other in others {
        let error = Finding::error(other.domain.span, format!("duplicate domain `{domain}`"));
        let way = "use --merge-domains to merge the rules of several documents";
        findings.push(error.also(first.domain.span, "first defined here").note(way));
    }
}

/// Compiler of the rules of one domain.
struct DomainCompiler<'a> {
    domain: Arc<str>,
    place: String,
    first_id: usize,
    options: CompileOptions,
    rules: Vec<Rule>,
    /// Overlay entries that apply to the domain.
    overlays: Vec<&'a OverlayEntry<'a>>,
    findings: &'a mut Findings,
    version: &'a mut Version,
    /// Names of all limits, for checking `replaces`.
    names: HashSet<String>,
    /// For each replaced limit: its name, its position, and the path of the rule that replaces it.
    replaces: Vec<(String, SourceSpan, String)>,
    /// Comparisons left for the search for unreachable rules.
    comparisons: usize,
    full: bool,
}

/// A rule as written, with the defaults of its document.
type RuleWithOptions<'w> = (&'w written::WrittenRule, &'w written::Options);

impl<'a> DomainCompiler<'a> {
    fn new(
        domain: &str,
        (first_id, options): (usize, CompileOptions),
        overlays: Vec<&'a OverlayEntry<'a>>,
        findings: &'a mut Findings,
        version: &'a mut Version,
    ) -> Self {
        Self {
            options,
            domain: domain.into(),
            place: format!("domain `{domain}`"),
            first_id,
            rules: Vec::new(),
            overlays,
            findings,
            version,
            names: HashSet::new(),
            replaces: Vec::new(),
            comparisons: unreachable::MAX_COMPARISONS,
            full: false,
        }
    }

    fn policy(mut self, documents: &[written::WrittenDocument]) -> Policy {
        let rules = documents
            .iter()
            .flat_map(|document| document.rules.iter().map(|rule| (rule, &document.defaults)));
        let top = Path::of(&self.domain, self.options.are_candidates);
        let top = self.level(&rules.collect::<Vec<_>>(), &top);
        self.version.add("domain");
        self.version.add(&self.domain);
        for (name, span, path) in std::mem::take(&mut self.replaces) {
            // After an error the missing limit may be one that could not be read.
            if !self.names.contains(&name) && self.findings.errors() == 0 {
                let warning =
                    Finding::warning(span, format!("`replaces` names an unknown limit `{name}`"));
                let warning = warning.suggest(&name, self.names.iter().map(String::as_str));
                self.findings.push(warning.note(note_of(&path, &self.place)));
            }
        }
        let override_identity = identity::of_overrides(&self.domain);
        let atomicity = documents.iter().filter_map(|document| document.atomicity.as_ref());
        let in_one_slot =
            atomicity.into_iter().any(|atomicity| atomicity.value == written::Atomicity::Domain);
        if in_one_slot {
            self.version.add("atomicity: domain");
        }
        let unsupported_quota = quotas::unsupported(documents, self.version);
        let override_charge = self.options.window_charge();
        let has_candidates = self.rules.iter().any(|rule| rule.candidate().is_some());
        let mut limits = self.rules.iter().chain(self.rules.iter().filter_map(Rule::candidate));
        let hashes_any = limits.any(Rule::hashes_values);
        let keyed = self.options.hash_key.as_ref().filter(|_| hashes_any).map(Keyed::new);
        let Self { domain, rules, .. } = self;
        Policy {
            domain,
            in_one_slot,
            has_candidates,
            override_identity,
            override_charge,
            unsupported_quota,
            keyed,
            top,
            rules,
        }
    }

    /// Compiles the rules of one level.
    fn level(&mut self, siblings: &[RuleWithOptions<'_>], above: &Path) -> Level {
        self.refuse_duplicates(siblings, above);
        self.find_unreachable(siblings, above);
        let mut children = Vec::with_capacity(siblings.len());
        for (rule, defaults) in siblings {
            if self.first_id.saturating_add(self.rules.len()) >= MAX_RULES {
                if !std::mem::replace(&mut self.full, true) {
                    let error = format!("more than {MAX_RULES} rules");
                    self.findings.push(Finding::error(rule.key.span, error));
                }
                break;
            }
            children.extend(self.rule(rule, defaults, above));
        }
        Level::new(&children, &self.rules)
    }

    fn refuse_duplicates(&mut self, siblings: &[RuleWithOptions<'_>], above: &Path) {
        let mut seen = HashMap::with_capacity(siblings.len());
        for (rule, _) in siblings {
            holds::check_key(&rule.key.value, rule.key.span, self.findings);
            if let Some(first) = seen.insert((&rule.key.value, rule.value_text()), rule.key.span) {
                let error = Finding::error(rule.key.span, "duplicate rule for this key and value");
                let error = error.also(first, "first defined here");
                self.findings.push(error.note(note_of(&above.readable(rule), &self.place)));
            }
        }
    }

    /// Compiles a rule and all rules below it; returns its number in the policy.
    fn rule(
        &mut self,
        rule: &written::WrittenRule,
        defaults: &written::Options,
        above: &Path,
    ) -> Option<u32> {
        let index = self.rules.len();
        let layers = Layers::of(rule, &self.overlays, defaults);
        let modes = modes(rule, &layers);
        let path = above.below(rule, modes.share_threshold);
        let terms = self.terms(rule, &layers, &path);
        let identity = path.identity(terms.algorithm, &terms.imposes);
        let candidate = rule.candidate.as_ref().map(|candidate| {
            let hashes_values = terms.hashes_values;
            self.candidate(rule, (candidate, defaults), hashes_values, (&path, index))
        });
        let compiled = Rule {
            modes: RuleModes { inherits_override: terms.inherits_override, ..modes },
            extras: extras(rule, &terms, candidate),
            ..self.without_options(rule, (&path, index), identity, terms.imposes)
        };
        self.version.rule(&compiled);
        self.rules.push(compiled);
        let below: Vec<_> = rule.children.iter().map(|child| (child, defaults)).collect();
        let children = self.level(&below, &path);
        self.rules.get_mut(index)?.children = children;
        u32::try_from(index).ok()
    }

    /// Compiles the candidate limit of a rule, as a rule with the same number. `hashes_values`: set
    /// if the rule hashes values, so that its candidate does too.
    fn candidate(
        &mut self,
        rule: &written::WrittenRule,
        (candidate, defaults): (&written::WrittenLimit, &written::Options),
        hashes_values: bool,
        (path, index): (&Path, usize),
    ) -> Rule {
        let mark = self.findings.mark();
        let layers = Layers::of_candidate(candidate, defaults);
        let terms = limit::compile(candidate, &layers, &self.options, self.findings);
        self.note_rule(&mark, path);
        let extras = Extras {
            algorithm: terms.algorithm,
            hashes_values: hashes_values || terms.hashes_values,
            lease: terms.lease,
            ..Extras::default()
        };
        let identity = path.of_candidate().identity(terms.algorithm, &terms.imposes);
        Rule {
            modes: RuleModes { shadow: true, ..RuleModes::default() },
            extras: Some(Box::new(extras)),
            ..self.without_options(rule, (path, index), identity, terms.imposes)
        }
    }

    /// Creates a rule without options, and without rules below it.
    fn without_options(
        &self,
        rule: &written::WrittenRule,
        (path, index): (&Path, usize),
        identity: Identity,
        imposes: Imposes,
    ) -> Rule {
        Rule {
            id: self.first_id.saturating_add(index),
            domain: Arc::clone(&self.domain),
            path: path.text().into(),
            key: Pattern::new(&rule.key.value),
            value: rule.value_text().map(Pattern::new),
            identity,
            modes: RuleModes::default(),
            extras: None,
            imposes,
            children: Level::default(),
        }
    }

    fn terms<'w>(
        &mut self,
        rule: &'w written::WrittenRule,
        layers: &Layers<'w>,
        path: &Path,
    ) -> CompiledLimit {
        let mark = self.findings.mark();
        let options = &self.options;
        let terms = match &rule.limit {
            Some(limit) => limit::compile(limit, layers, options, self.findings),
            None => {
                // The options of the rule apply to its candidate even if the rule has no limit.
                let hashes_values = rule.candidate.is_some()
                    && limit::hashes_values(layers, options, self.findings);
                let without = CompiledLimit::without_options(Imposes::Nothing, None);
                CompiledLimit { hashes_values, ..without }
            }
        };
        advice::give(rule, layers, &terms, self.findings);
        let share = layers.switch(|switches| &switches.share_threshold);
        if let Some(share) = share.filter(|share| *share.value && share.own && !is_wild(rule)) {
            let error = Finding::error(share.span, "`share_threshold` requires a `*` in `value`");
            let way =
                "without `value`, each value has its own counter; to share one, set `value: \"*\"`";
            self.findings.push(error.note(way));
        }
        self.note_rule(&mark, path);
        self.names.extend(terms.name.as_deref().map(str::to_owned));
        let replaced = rule.limit.iter().flat_map(|limit| &limit.replaces);
        self.replaces
            .extend(replaced.map(|name| (name.value.clone(), name.span, path.text().to_owned())));
        terms
    }

    /// Adds the rule to all findings since `mark`.
    fn note_rule(&mut self, mark: &FindingsMark, path: &Path) {
        self.findings.note_since(mark, || note_of(path.text(), &self.place));
    }
}

/// Returns the switches of a rule. `inherits_override` is not known yet and set later.
fn modes(rule: &written::WrittenRule, layers: &Layers<'_>) -> RuleModes {
    RuleModes {
        shadow: layers.is_on(|switches| &switches.shadow_mode),
        quota: layers.is_on(|switches| &switches.quota_mode),
        inherits_override: false,
        detailed_metric: layers.is_on(|switches| &switches.detailed_metric),
        value_to_metric: layers.is_on(|switches| &switches.value_to_metric),
        share_threshold: is_wild(rule) && layers.is_on(|switches| &switches.share_threshold),
    }
}

/// Returns `true` if the rule has a `*`, and so something to share.
fn is_wild(rule: &written::WrittenRule) -> bool {
    rule.key.value.contains('*')
        || rule.value.as_ref().is_some_and(|value| value.value.contains('*'))
}

fn extras(
    rule: &written::WrittenRule,
    terms: &CompiledLimit,
    candidate: Option<Rule>,
) -> Option<Box<Extras>> {
    let has_any =
        rule.metadata.is_some() || candidate.is_some() || terms.imposes != Imposes::Nothing;
    has_any.then(|| {
        let limit = rule.limit.as_ref();
        Box::new(Extras {
            name: terms.name.clone(),
            algorithm: terms.algorithm,
            replaces: limit
                .into_iter()
                .flat_map(|limit| &limit.replaces)
                .map(|name| name.value.as_str().into())
                .collect(),
            record: terms.record.clone(),
            hashes_values: terms.hashes_values,
            lease: terms.lease,
            metadata: rule.metadata.clone(),
            candidate: candidate.map(Box::new),
        })
    })
}
