//! Merged denials of all workers: the most denied keys, and the history of a key.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use tollgate_core::algorithm::time::{Micros, Timestamp};

use super::record::DenialRecord;
use super::worker_denials::{RuleDenials, SLICE, SLICES, Slice};

/// The denials of the last 15 minutes, at the time of reading.
#[derive(Debug)]
pub struct RecentDenials {
    /// Slices of all workers.
    slices: Vec<Arc<Slice>>,
    now: Timestamp,
}

/// A filter for denials.
#[derive(Clone, Copy, Debug, Default)]
pub struct DenialFilter<'a> {
    /// Domain to match.
    pub domain: Option<&'a str>,
    /// Rule to match, by its full path.
    pub rule: Option<&'a str>,
    /// Text to find in the key or in the recorded entries. Commas may be escaped or not.
    pub key: Option<&'a str>,
    /// Matches keys that were denied at this instant or later.
    pub since: Option<Timestamp>,
    /// Matches keys that were denied at this instant or earlier.
    pub until: Option<Timestamp>,
}

/// A denied key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeniedKey {
    /// Domain of the rule.
    pub domain: String,
    /// Path of the rule.
    pub rule: String,
    /// Text form of the key.
    pub key: String,
    /// Denials known for certain.
    pub record: DenialRecord,
    /// Maximum number of denials missing from the record, while there was no entry for this key.
    pub missed_at_most: u64,
}

impl DenialFilter<'_> {
    /// Creates a filter for one minute.
    pub(super) fn of_minute(minute: u64) -> Self {
        let since = Timestamp::at_index(minute, SLICE);
        let next = Timestamp::at_index(minute.saturating_add(1), SLICE);
        Self { since: Some(since), until: Some(next - Micros::new(1)), ..Self::default() }
    }

    /// Returns the minutes that its time range touches, numbered since the epoch.
    pub(super) fn minutes(&self) -> RangeInclusive<u64> {
        self.since.map_or(0, |at| at.index(SLICE))
            ..=self.until.map_or(u64::MAX, |at| at.index(SLICE))
    }

    fn is_of_rule(&self, found: &RuleDenials) -> bool {
        self.domain.is_none_or(|domain| *domain == *found.domain)
            && self.rule.is_none_or(|rule| *rule == *found.rule)
    }

    fn is_of_time(&self, record: &DenialRecord) -> bool {
        self.since.is_none_or(|since| record.last >= since)
            && self.until.is_none_or(|until| record.first <= until)
    }
}

impl RecentDenials {
    pub(super) fn of(tables: impl IntoIterator<Item = Vec<Arc<Slice>>>, now: Timestamp) -> Self {
        let oldest = now.index(SLICE).saturating_sub(SLICES - 1);
        let slices = tables.into_iter().flatten().filter(|slice| slice.number >= oldest).collect();
        Self { slices, now }
    }

    /// Returns the time of reading.
    pub fn read_at(&self) -> Timestamp {
        self.now
    }

    /// Returns the earliest instant from which all denials are known, as far as memory allowed.
    pub fn since(&self) -> Timestamp {
        Timestamp::at_index(self.now.index(SLICE).saturating_sub(SLICES - 1), SLICE)
    }

    /// Returns the number of denials dropped for lack of memory in the minutes of a filter.
    pub fn dropped(&self, span: &DenialFilter<'_>) -> u64 {
        self.of_span(span).map(|slice| slice.dropped).fold(0, u64::saturating_add)
    }

    /// Returns the denied keys that match a filter, most recent first. Each record covers the
    /// minutes that the filter touches.
    pub fn find(&self, span: &DenialFilter<'_>) -> Vec<DeniedKey> {
        let mut found = self.merge(span);
        found.sort_by(|one, other| {
            (other.record.last, &one.domain, &one.rule, &one.key).cmp(&(
                one.record.last,
                &other.domain,
                &other.rule,
                &other.key,
            ))
        });
        found
    }

    /// Returns the denied keys that match a filter, most denied first.
    pub fn top(&self, span: &DenialFilter<'_>) -> Vec<DeniedKey> {
        let mut found = self.merge(span);
        found.sort_by(|one, other| {
            (other.record.count, &one.domain, &one.rule, &one.key).cmp(&(
                one.record.count,
                &other.domain,
                &other.rule,
                &other.key,
            ))
        });
        found
    }

    /// Returns the maximum number of denials of any key without an entry, by domain and rule.
    pub(super) fn others(&self, span: &DenialFilter<'_>) -> HashMap<(String, String), u64> {
        let mut others = HashMap::<_, u64>::new();
        for part in self.of_span(span).flat_map(Slice::rules) {
            let most = others.entry((part.domain.to_string(), part.rule.to_string())).or_default();
            *most = most.saturating_add(part.keys.floor());
        }
        others
    }

    fn of_span<'s>(&'s self, span: &DenialFilter<'_>) -> impl Iterator<Item = &'s Slice> {
        let minutes = span.minutes();
        self.slices.iter().map(AsRef::as_ref).filter(move |slice| minutes.contains(&slice.number))
    }

    fn merge(&self, span: &DenialFilter<'_>) -> Vec<DeniedKey> {
        /// Record of a key, and for the slices with the key: denials missed, and sum of floors.
        type Merged = (DenialRecord, u64, u64);
        let parts = self.of_span(span).flat_map(Slice::rules);
        let mut floors: HashMap<(&str, &str), u64> = HashMap::new();
        let mut keys: HashMap<(&str, &str, &str), Merged> = HashMap::new();
        for part in parts.filter(|part| span.is_of_rule(part)) {
            let floor = part.keys.floor();
            let all = floors.entry((&part.domain, &part.rule)).or_default();
            *all = all.saturating_add(floor);
            for entry in part.keys.entries() {
                let place = keys.entry((&part.domain, &part.rule, &entry.key));
                place
                    .and_modify(|(record, missed, here)| {
                        record.merge(&entry.value);
                        *missed = missed.saturating_add(entry.inherited);
                        *here = here.saturating_add(floor);
                    })
                    .or_insert_with(|| (entry.value.clone(), entry.inherited, floor));
            }
        }
        let wanted = span.key.map_or(Cow::Borrowed(""), plain);
        let found = keys.into_iter().filter(|((.., key), (record, ..))| {
            let recorded = record.recorded.iter().map(AsRef::as_ref);
            let mut texts = [*key].into_iter().chain(recorded);
            span.is_of_time(record)
                && (wanted.is_empty() || texts.any(|text| plain(text).contains(&*wanted)))
        });
        let found = found.map(|((domain, rule, key), (record, missed, here))| {
            let elsewhere =
                floors.get(&(domain, rule)).copied().unwrap_or_default().saturating_sub(here);
            let missed_at_most = missed.saturating_add(elsewhere);
            DeniedKey {
                domain: domain.to_owned(),
                rule: rule.to_owned(),
                key: key.to_owned(),
                record,
                missed_at_most,
            }
        });
        found.collect()
    }
}

/// Returns a text with unescaped commas, as an operator types it.
fn plain(text: &str) -> Cow<'_, str> {
    if text.contains(r"\,") { text.replace(r"\,", ",").into() } else { text.into() }
}
