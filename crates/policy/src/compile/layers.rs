//! Layers of options for a rule: the rule itself, its metadata, the overlay entries that match it,
//! and the defaults of its file, in this order. For each option the first layer that sets it wins.

use std::cell::Cell;

use smallvec::{SmallVec, smallvec};
use tollgate_yaml::report::{Finding, Findings, SourceSpan, Spanned};

use crate::document::written::{self, Options, Switches};
use crate::pattern::Pattern;

/// Maximum number of entries in all overlays. Each is compared with every rule of its domains.
const MAX_ENTRIES: usize = 1_000;

/// The layers that apply to one rule, by precedence.
pub(super) struct Layers<'w>(SmallVec<[Layer<'w>; 4]>);

#[derive(Clone, Copy)]
struct Layer<'w> {
    options: Option<&'w Options>,
    switches: Option<&'w Switches>,
    /// Set for the rule itself and its metadata, which apply to this rule only.
    of_rule_alone: bool,
    /// Set when the options have to apply: those of the rule alone, and of the layer that chooses
    /// its algorithm.
    own: bool,
}

impl<'w> Layer<'w> {
    /// Returns a layer that applies to one rule only.
    fn of_rule(options: Option<&'w Options>, switches: Option<&'w Switches>) -> Self {
        Self { options, switches, of_rule_alone: true, own: true }
    }

    /// Returns a layer that is written for many rules.
    fn shared(options: &'w Options, switches: Option<&'w Switches>) -> Self {
        Self { options: Some(options), switches, of_rule_alone: false, own: false }
    }
}

/// An option with its value.
#[derive(Debug)]
pub(super) struct OptionValue<'w, T> {
    pub(super) value: &'w T,
    pub(super) span: SourceSpan,
    /// Set when the option has to apply. Options set for many rules at once are ignored if they do
    /// not apply.
    pub(super) own: bool,
}

impl<T> Clone for OptionValue<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

// A derived `Copy` would require `T: Copy`; this is only a reference to a `T`.
impl<T> Copy for OptionValue<'_, T> {}

impl<'w> Layers<'w> {
    pub(super) fn of(
        rule: &'w written::WrittenRule,
        overlays: &[&'w OverlayEntry<'w>],
        defaults: &'w Options,
    ) -> Self {
        let options = rule.limit.as_ref().map(|limit| &limit.options);
        let mut layers: SmallVec<[Layer<'w>; 4]> =
            smallvec![Layer::of_rule(options, Some(&rule.switches))];
        if let Some(metadata) = &rule.layer {
            layers.push(Layer::of_rule(Some(&metadata.options), Some(&metadata.switches)));
        }
        for entry in overlays.iter().filter(|entry| entry.matches(rule)) {
            let layer = &entry.written.layer;
            layers.push(Layer::shared(&layer.options, Some(&layer.switches)));
        }
        layers.push(Layer::shared(defaults, None));
        let chooser = layers
            .iter_mut()
            .find(|layer| layer.options.is_some_and(|options| options.algorithm.is_some()));
        if let Some(chooser) = chooser.filter(|layer| layer.switches.is_some()) {
            chooser.own = true;
        }
        Self(layers)
    }

    /// Returns the layers of a candidate limit: the limit itself and the defaults of the file.
    pub(super) fn of_candidate(limit: &'w written::WrittenLimit, defaults: &'w Options) -> Self {
        Self(smallvec![Layer::of_rule(Some(&limit.options), None), Layer::shared(defaults, None)])
    }

    /// Returns an option from the first layer that sets it.
    pub(super) fn option<T>(
        &self,
        get: impl Fn(&'w Options) -> &'w Option<Spanned<T>>,
    ) -> Option<OptionValue<'w, T>> {
        self.0.iter().find_map(|layer| option_value(get(layer.options?).as_ref(), layer.own))
    }

    /// Returns the positions of an option in all layers in which it has to apply.
    pub(super) fn has_to_apply<T: 'w>(
        &self,
        get: impl Fn(&'w Options) -> &'w Option<Spanned<T>>,
    ) -> impl Iterator<Item = SourceSpan> {
        self.0
            .iter()
            .filter(|layer| layer.own)
            .filter_map(move |layer| Some(get(layer.options?).as_ref()?.span))
    }

    /// Returns the options set for this rule only, by name.
    pub(super) fn own_options(&self) -> impl Iterator<Item = (&'static str, SourceSpan)> {
        self.0
            .iter()
            .filter(|layer| layer.of_rule_alone)
            .filter_map(|layer| layer.options)
            .flat_map(Options::written)
    }

    /// Returns a switch from the first layer that sets it.
    pub(super) fn switch(
        &self,
        get: impl Fn(&'w Switches) -> &'w Option<Spanned<bool>>,
    ) -> Option<OptionValue<'w, bool>> {
        self.0
            .iter()
            .find_map(|layer| option_value(get(layer.switches?).as_ref(), layer.of_rule_alone))
    }

    /// Returns `true` if a switch is on.
    pub(super) fn is_on(&self, get: impl Fn(&'w Switches) -> &'w Option<Spanned<bool>>) -> bool {
        self.switch(get).is_some_and(|option| *option.value)
    }
}

fn option_value<T>(option: Option<&Spanned<T>>, own: bool) -> Option<OptionValue<'_, T>> {
    option.map(|option| OptionValue { value: &option.value, span: option.span, own })
}

/// An overlay entry with compiled patterns, and whether it has matched a rule.
pub(super) struct OverlayEntry<'w> {
    written: &'w written::WrittenEntry,
    domain: Option<Pattern>,
    key: Option<Pattern>,
    value: Option<Pattern>,
    name: Option<Pattern>,
    is_met: Cell<bool>,
}

impl<'w> OverlayEntry<'w> {
    /// Compiles the patterns of all entries, in order.
    pub(super) fn all(overlays: &'w [written::WrittenEntry], findings: &mut Findings) -> Vec<Self> {
        if let Some(beyond) = overlays.get(MAX_ENTRIES) {
            let error = format!("more than {MAX_ENTRIES} overlay items");
            findings.push(Finding::error(beyond.span, error));
        }
        for empty in overlays.iter().filter(|entry| sets_nothing(&entry.layer)) {
            let warning = Finding::warning(empty.span, "overlay item sets no options");
            let way =
                "set options of the limit under `rate_limit`, or switches such as `shadow_mode`";
            findings.push(warning.note(way));
        }
        overlays.iter().take(MAX_ENTRIES).map(Self::new).collect()
    }

    fn new(written: &'w written::WrittenEntry) -> Self {
        let written::WrittenEntry { domain, key, value, name, .. } = written;
        let [domain, key, value, name] = [domain, key, value, name]
            .map(|text| text.as_ref().map(|text| Pattern::new(&text.value)));
        Self { written, domain, key, value, name, is_met: Cell::new(false) }
    }

    /// Returns `true` if the entry applies to this domain.
    pub(super) fn is_for(&self, domain: &str) -> bool {
        self.domain.as_ref().is_none_or(|pattern| pattern.matches(domain.as_bytes()))
    }

    fn matches(&self, rule: &written::WrittenRule) -> bool {
        let name = rule.limit.as_ref().and_then(|limit| limit.name.as_ref());
        let is_it =
            [(&self.key, Some(&rule.key)), (&self.value, rule.value.as_ref()), (&self.name, name)]
                .into_iter()
                .all(|(pattern, text)| {
                    let text = text.map_or(b"".as_slice(), |text| text.value.as_bytes());
                    pattern.as_ref().is_none_or(|pattern| pattern.matches(text))
                });
        self.is_met.set(self.is_met.get() || is_it);
        is_it
    }

    /// Reports a warning if the entry matched no rule.
    pub(super) fn miss(&self, findings: &mut Findings) {
        if !self.is_met.get() {
            let warning = Finding::warning(self.written.span, "overlay item matches no rule");
            let note = "`domain`, `key`, `value` and `name` match the rule itself, as written";
            findings.push(warning.note(note));
        }
    }
}

fn sets_nothing(layer: &written::WrittenLayer) -> bool {
    let Switches { shadow_mode, quota_mode, share_threshold, detailed_metric, value_to_metric } =
        &layer.switches;
    let switches = [shadow_mode, quota_mode, share_threshold, detailed_metric, value_to_metric];
    layer.options.written().next().is_none() && switches.into_iter().all(Option::is_none)
}
