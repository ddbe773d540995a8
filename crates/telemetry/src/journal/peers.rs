//! Exchange of the most denied keys of a minute between processes on one store, bounded in size.
//!
//! Encoded as JSON for compatibility between versions: readers ignore unknown fields and treat
//! missing ones as empty.

use std::collections::HashMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tollgate_core::algorithm::time::Timestamp;

use super::reading::{DenialFilter, DeniedKey, RecentDenials};
use super::record::DenialRecord;
use super::summary::Summary;
use super::worker_denials::{RuleDenials, Slice};

/// Maximum size of a minute's message in bytes.
pub const MAX_MESSAGE: usize = 32 * 1024;
/// Maximum number of bytes read from another process: later versions may send more.
const MAX_READ: usize = 1 << 20;

/// The denials of one minute, received from another process.
#[derive(Clone, Debug)]
pub struct PeerDenials(pub(super) Arc<Slice>);

#[derive(Serialize, Deserialize)]
struct MinuteMessage {
    rules: Vec<SharedRule>,
    /// Denials dropped for lack of memory.
    #[serde(default)]
    dropped: u64,
}

#[derive(Serialize, Deserialize)]
struct SharedRule {
    domain: String,
    rule: String,
    /// Maximum number of denials of a key that is not listed.
    #[serde(default)]
    others: u64,
    keys: Vec<SharedKey>,
}

/// The record of a key; times are in us since the epoch.
#[derive(Serialize, Deserialize)]
struct SharedKey {
    key: String,
    first: u64,
    last: u64,
    count: u64,
    #[serde(default)]
    missed: u64,
    #[serde(default)]
    passed: u64,
    #[serde(default)]
    presumed: u64,
    #[serde(default)]
    hits: u64,
    #[serde(default)]
    last_hits: u64,
    #[serde(default)]
    retry_at: Option<u64>,
    #[serde(default)]
    version: String,
    #[serde(default)]
    recorded: Vec<Box<str>>,
}

impl RecentDenials {
    /// Returns the message for one minute; `None` if nothing was denied in it.
    ///
    /// The first keys of all rules precede the second key of any rule, so a flood at one rule
    /// leaves space for others.
    pub fn message(&self, minute: u64) -> Option<String> {
        let span = DenialFilter::of_minute(minute);
        let mut ranked: Vec<(usize, DeniedKey)> = Vec::new();
        let mut ranks: HashMap<(String, String), usize> = HashMap::new();
        for found in self.top(&span) {
            let rank = ranks.entry((found.domain.clone(), found.rule.clone())).or_default();
            ranked.push((*rank, found));
            *rank += 1;
        }
        // A stable sort keeps the most denied keys of each rank first.
        ranked.sort_by_key(|(rank, _)| *rank);
        let mut others = self.others(&span);
        let dropped = self.dropped(&span);
        let mut bytes = 0usize;
        let mut rules = HashMap::<(String, String), Vec<SharedKey>>::new();
        for (_, found) in ranked {
            let of = (found.domain.clone(), found.rule.clone());
            let weight = found.record.count.saturating_add(found.missed_at_most);
            let key = SharedKey::from(found);
            let key_bytes = serde_json::to_string(&key).map_or(usize::MAX, |text| text.len() + 1);
            let rule_bytes = if rules.contains_key(&of) { 0 } else { of.0.len() + of.1.len() + 64 };
            let need = bytes.saturating_add(key_bytes).saturating_add(rule_bytes);
            if need > MAX_MESSAGE {
                let most = others.entry(of).or_default();
                *most = (*most).max(weight);
                continue;
            }
            bytes = need;
            rules.entry(of).or_default().push(key);
        }
        if rules.is_empty() && dropped == 0 {
            return None;
        }
        let mut rules: Vec<SharedRule> = rules
            .into_iter()
            .map(|(of, keys)| {
                let others = others.get(&of).copied().unwrap_or_default();
                SharedRule { domain: of.0, rule: of.1, others, keys }
            })
            .collect();
        // Sorted, so that the same denials give the same text.
        rules.sort_by(|one, other| (&one.domain, &one.rule).cmp(&(&other.domain, &other.rule)));
        serde_json::to_string(&MinuteMessage { rules, dropped }).ok()
    }
}

impl PeerDenials {
    /// Parses the message for a minute; `None` if the text is not valid.
    pub fn read(minute: u64, text: &[u8]) -> Option<Self> {
        let text = text.get(..MAX_READ.min(text.len()))?;
        let message: MinuteMessage = serde_json::from_slice(text).ok()?;
        let rules = message.rules.into_iter().map(|rule| {
            let keys = rule
                .keys
                .into_iter()
                .map(|key| (key.key.clone().into(), key.count, key.missed, key.into()));
            RuleDenials::from_peer(
                rule.domain.into(),
                rule.rule.into(),
                Summary::from_peer(keys, rule.others),
            )
        });
        Some(Self(Arc::new(Slice::from_peer(minute, rules, message.dropped))))
    }
}

impl From<DeniedKey> for SharedKey {
    fn from(DeniedKey { key, record, missed_at_most, .. }: DeniedKey) -> Self {
        Self {
            key,
            first: record.first.as_micros(),
            last: record.last.as_micros(),
            count: record.count,
            missed: missed_at_most,
            passed: record.passed,
            presumed: record.presumed,
            hits: record.hits,
            last_hits: record.last_hits,
            retry_at: record.retry_at.map(Timestamp::as_micros),
            version: record.version.to_string(),
            recorded: record.recorded,
        }
    }
}

impl From<SharedKey> for DenialRecord {
    fn from(key: SharedKey) -> Self {
        Self {
            first: Timestamp::from_micros(key.first),
            last: Timestamp::from_micros(key.last),
            count: key.count,
            passed: key.passed,
            presumed: key.presumed,
            hits: key.hits,
            last_hits: key.last_hits,
            retry_at: key.retry_at.map(Timestamp::from_micros),
            version: key.version.into(),
            recorded: key.recorded,
        }
    }
}
