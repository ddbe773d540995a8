//! The pages of all workers, put together: who was denied most, and what happened to whom.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::Arc;

use super::page::{OfRule, SLICE, SLICES, Slice};
use super::record::Record;
use crate::algorithm::time::{Micros, Timestamp};

/// What was denied in the last quarter of an hour, as it stood when it was read.
#[derive(Debug)]
pub struct Denials {
    /// Of all workers.
    slices: Vec<Arc<Slice>>,
    now: Timestamp,
}

/// Which denials are looked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Span<'a> {
    /// Of this domain alone.
    pub domain: Option<&'a str>,
    /// Of this rule alone, by its whole path.
    pub rule: Option<&'a str>,
    /// Of keys that have this in them, or of whose requests something was recorded that has. Commas may be escaped or not.
    pub key: Option<&'a str>,
    /// Of keys that were denied at this instant or later.
    pub since: Option<Timestamp>,
    /// Of keys that were denied at this instant or earlier.
    pub until: Option<Timestamp>,
}

/// A key that was denied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The domain.
    pub domain: String,
    /// The rule's path.
    pub rule: String,
    /// The key's text.
    pub key: String,
    /// What is known for certain.
    pub record: Record,
    /// Denials beyond those of the record that there may have been, while there was no room for this key.
    pub missed_at_most: u64,
}

impl Span<'_> {
    /// Of one minute.
    pub(super) fn of_minute(minute: u64) -> Self {
        let (since, next) = (Timestamp::at_index(minute, SLICE), Timestamp::at_index(minute.saturating_add(1), SLICE));
        Self { since: Some(since), until: Some(next - Micros::new(1)), ..Self::default() }
    }

    /// The minutes that it touches, numbered since the epoch.
    pub(super) fn minutes(&self) -> RangeInclusive<u64> {
        let index = |at: Timestamp| at.index(SLICE);
        self.since.map_or(0, index)..=self.until.map_or(u64::MAX, index)
    }
}

impl Denials {
    pub(super) fn of(pages: impl IntoIterator<Item = Vec<Arc<Slice>>>, now: Timestamp) -> Self {
        let oldest = now.index(SLICE).saturating_sub(SLICES.saturating_sub(1));
        let slices = pages.into_iter().flatten().filter(|slice| slice.number >= oldest).collect();
        Self { slices, now }
    }

    /// When it was read.
    pub fn read_at(&self) -> Timestamp {
        self.now
    }

    /// The earliest instant from which on all is known, as far as there was room.
    pub fn since(&self) -> Timestamp {
        Timestamp::at_index(self.now.index(SLICE).saturating_sub(SLICES.saturating_sub(1)), SLICE)
    }

    /// Denials in the minutes of a span for whose keys there was no room at all.
    pub fn dropped(&self, span: &Span<'_>) -> u64 {
        self.of_span(span).map(|slice| slice.dropped).fold(0, u64::saturating_add)
    }

    /// The keys of a span that were denied, each with what is known of the minutes that the span touches; those denied last
    /// are first.
    pub fn find(&self, span: &Span<'_>) -> Vec<Found> {
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

    /// The keys of a span that were denied most often, those first.
    pub fn top(&self, span: &Span<'_>) -> Vec<Found> {
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

    /// How often a key may have been denied in a span that is not among those known, at most, by domain and rule.
    pub(super) fn others(&self, span: &Span<'_>) -> HashMap<(String, String), u64> {
        let mut others = HashMap::<_, u64>::new();
        for part in self.of_span(span).flat_map(Slice::rules) {
            let most = others.entry((part.domain.to_string(), part.rule.to_string())).or_default();
            *most = most.saturating_add(part.keys.floor());
        }
        others
    }

    fn of_span<'s>(&'s self, span: &Span<'_>) -> impl Iterator<Item = &'s Slice> {
        let minutes = span.minutes();
        self.slices.iter().map(AsRef::as_ref).filter(move |slice| minutes.contains(&slice.number))
    }

    fn merge(&self, span: &Span<'_>) -> Vec<Found> {
        /// A key's record, what it missed where it was, and what may be missed at most where it was not.
        type Merged = (Record, u64, u64);
        let wants = |of_rule: &&OfRule| {
            span.domain.is_none_or(|domain| *domain == *of_rule.domain)
                && span.rule.is_none_or(|rule| *rule == *of_rule.rule)
        };
        let parts: Vec<&OfRule> = self.of_span(span).flat_map(Slice::rules).filter(wants).collect();
        let mut floors: HashMap<(&str, &str), u64> = HashMap::new();
        let mut keys: HashMap<(&str, &str, &str), Merged> = HashMap::new();
        for part in parts {
            let floor = part.keys.floor();
            let all = floors.entry((&part.domain, &part.rule)).or_default();
            *all = all.saturating_add(floor);
            for slot in part.keys.slots() {
                let place = keys.entry((&part.domain, &part.rule, &slot.key));
                place
                    .and_modify(|(record, missed, here)| {
                        record.merge(&slot.value);
                        *missed = missed.saturating_add(slot.inherited);
                        *here = here.saturating_add(floor);
                    })
                    .or_insert_with(|| (slot.value.clone(), slot.inherited, floor));
            }
        }
        let in_span = |record: &Record| {
            span.since.is_none_or(|since| record.last >= since) && span.until.is_none_or(|until| record.first <= until)
        };
        let key = span.key.map(plain);
        let is_it = |text: &str| key.as_ref().is_none_or(|key| plain(text).contains(key.as_ref()));
        let found = keys.into_iter().filter(|((.., key), (record, ..))| {
            in_span(record) && (is_it(key) || record.recorded.iter().any(|text| is_it(text)))
        });
        let found = found.map(|((domain, rule, key), (record, missed, here))| {
            let elsewhere = floors.get(&(domain, rule)).copied().unwrap_or_default().saturating_sub(here);
            let missed_at_most = missed.saturating_add(elsewhere);
            Found { domain: domain.to_owned(), rule: rule.to_owned(), key: key.to_owned(), record, missed_at_most }
        });
        found.collect()
    }
}

/// A text as people type it: with commas that are not escaped.
fn plain(text: &str) -> Cow<'_, str> {
    if text.contains(r"\,") { text.replace(r"\,", ",").into() } else { text.into() }
}
