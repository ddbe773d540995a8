//! The journals of all processes on a store as one: each leaves there what it denied, and reads what others left when asked.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};
use tracing::debug;

use super::serving::Service;
use crate::admin::desk::Others;
use crate::journal::{Journal, Told};

/// How often what was denied is left for others: they are behind by no more.
const TELL_EVERY: Duration = Duration::from_secs(5);

/// A process among those on its store.
#[derive(Clone)]
pub(super) struct Telling {
    /// What this one is called there.
    id: Arc<str>,
    journal: Arc<Journal>,
    /// The service of HTTP, whose store is asked.
    service: Arc<Service>,
}

impl Telling {
    /// `id`: one that no other process has.
    pub(super) fn new(id: &Arc<str>, journal: &Arc<Journal>, service: &Arc<Service>) -> Self {
        Self { id: Arc::clone(id), journal: Arc::clone(journal), service: Arc::clone(service) }
    }

    /// Tells what was denied, for ever; where counters are in this process there is nobody to tell.
    pub(super) async fn tell(self) {
        let Some(store) = self.service.limiter().store().redis() else { return };
        if !self.journal.is_on() {
            return;
        }
        let mut told: BTreeMap<u64, String> = BTreeMap::new();
        let mut ticks = interval(TELL_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let last = *Journal::minutes().end();
            // The minute before may have ended since it was told.
            let minutes = last.saturating_sub(1)..=last;
            told.retain(|minute, _| minutes.contains(minute));
            for minute in minutes {
                let Some(text) = self.journal.tell(minute).filter(|text| told.get(&minute) != Some(text)) else {
                    continue;
                };
                match store.leave(&self.id, minute, &text).await {
                    Ok(()) => drop(told.insert(minute, text)),
                    // What is the matter with the store is told where it decides.
                    Err(error) => debug!(%error, "what was denied was not left for other processes"),
                }
            }
        }
    }

    /// What others have told of these minutes.
    pub(super) async fn others(self, minutes: RangeInclusive<u64>) -> Others {
        let Some(store) = self.service.limiter().store().redis() else { return Others::default() };
        let left = match store.left(minutes).await {
            Ok(left) => left,
            Err(error) => return Others { missing: Some(error.to_string()), is_shared: true, ..Others::default() },
        };
        let left: Vec<_> = left.into_iter().filter(|left| *left.by != *self.id).collect();
        let processes: BTreeSet<_> = left.iter().map(|left| &left.by).collect();
        let processes = processes.len();
        let told: Vec<_> = left.iter().filter_map(|left| Told::read(left.minute, &left.text)).collect();
        let unread = left.len().saturating_sub(told.len());
        let missing =
            (unread > 0).then(|| format!("{unread} texts of other processes cannot be read: of another version?"));
        Others { is_shared: true, told, processes, missing }
    }
}
