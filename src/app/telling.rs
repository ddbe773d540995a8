//! The journals of all processes on a store as one: each leaves there what it denied, and reads what others left when asked.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use tokio::time::{MissedTickBehavior, interval};
use tracing::debug;

use super::serving::Service;
use crate::admin::desk::Others;
use crate::journal::{Journal, Told};
use crate::store::StoreError;
use crate::store::redis::{Left, RedisStore};

/// How often what was denied is left for others: they are behind by no more.
const TELL_EVERY: Duration = Duration::from_secs(5);
/// What others left is forgotten when nobody has asked for so long.
const ASKED_FOR: Duration = Duration::from_secs(60);

/// A process among those on its store.
#[derive(Clone)]
pub(super) struct Telling {
    /// What this one is called there.
    id: Arc<str>,
    journal: Arc<Journal>,
    /// The service of HTTP, whose store is asked.
    service: Arc<Service>,
    /// What this one has left, by minutes.
    told: Arc<Mutex<BTreeMap<u64, String>>>,
    /// What others have, by minutes: many who ask at once wait for one who reads.
    read: Arc<Mutex<BTreeMap<u64, Minute>>>,
}

/// What others left of a minute.
struct Minute {
    /// When that was read.
    at: Instant,
    /// Whether nobody will leave more.
    is_over: bool,
    /// The processes, and what they told; `None`: it cannot be read.
    told: Vec<(String, Option<Told>)>,
}

impl Telling {
    /// `id`: one that no other process has.
    pub(super) fn new(id: &Arc<str>, journal: &Arc<Journal>, service: &Arc<Service>) -> Self {
        let (id, journal, service) = (Arc::clone(id), Arc::clone(journal), Arc::clone(service));
        Self { id, journal, service, told: Arc::default(), read: Arc::default() }
    }

    /// Tells what was denied, for ever; where counters are in this process there is nobody to tell.
    pub(super) async fn tell(self) {
        if self.store().is_none() {
            return;
        }
        let mut ticks = interval(TELL_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.tell_now().await;
            self.read.lock().await.retain(|_, minute| minute.at.elapsed() < ASKED_FOR);
        }
    }

    /// Tells what is new.
    pub(super) async fn tell_now(&self) {
        let Some(store) = self.store().filter(|_| self.journal.is_on()) else { return };
        let (mut told, last) = (self.told.lock().await, *Journal::minutes().end());
        // The minute before may have ended since it was told.
        let minutes = last.saturating_sub(1)..=last;
        told.retain(|minute, _| minutes.contains(minute));
        let denials = self.journal.read();
        for minute in minutes {
            let Some(text) = denials.tell(minute).filter(|text| told.get(&minute) != Some(text)) else { continue };
            match store.leave(&self.id, minute, &text).await {
                Ok(()) => drop(told.insert(minute, text)),
                // Why it refused, or that it is away, is in the log already.
                Err(error) => debug!(%error, "what was denied was not left for other processes"),
            }
        }
    }

    /// What others have told of these minutes.
    pub(super) async fn others(self, minutes: RangeInclusive<u64>) -> Others {
        let Some(store) = self.store() else { return Others::default() };
        let mut read = self.read.lock().await;
        let missing = self.read_again(store, &mut read, minutes.clone()).await.err().map(|error| error.to_string());
        let known = Journal::minutes();
        read.retain(|minute, _| known.contains(minute));
        let all: Vec<_> = minutes.filter_map(|minute| read.get(&minute)).flat_map(|minute| &minute.told).collect();
        let processes: BTreeSet<_> = all.iter().map(|(by, _)| by).collect();
        let told: Vec<_> = all.iter().filter_map(|(_, told)| told.clone()).collect();
        let unread = all.len().saturating_sub(told.len());
        let unread =
            (unread > 0).then(|| format!("{unread} texts of other processes cannot be read: of another version?"));
        Others { is_shared: true, told, processes: processes.len(), missing: missing.or(unread) }
    }

    /// Reads those minutes of which there may be more than was read.
    async fn read_again(
        &self,
        store: &RedisStore,
        read: &mut BTreeMap<u64, Minute>,
        minutes: RangeInclusive<u64>,
    ) -> Result<(), StoreError> {
        let is_new = |minute: &Minute| minute.is_over || minute.at.elapsed() < TELL_EVERY;
        let wanted: Vec<u64> = minutes.filter(|minute| !read.get(minute).is_some_and(is_new)).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let (at, last) = (Instant::now(), *Journal::minutes().end());
        let left = store.left(wanted.iter().copied()).await?;
        let own = Arc::clone(&self.id);
        // On a thread of its own: it may be megabytes, and this one answers probes.
        let parsed = tokio::task::spawn_blocking(move || parse(left, &own)).await.unwrap_or_default();
        for minute in wanted {
            let is_over = minute.saturating_add(1) < last;
            read.insert(minute, Minute { at, is_over, told: Vec::new() });
        }
        for (minute, by, told) in parsed {
            if let Some(minute) = read.get_mut(&minute) {
                minute.told.push((by, told));
            }
        }
        Ok(())
    }

    fn store(&self) -> Option<&RedisStore> {
        self.service.limiter().store().redis()
    }
}

/// What others than `own` told, of which minutes.
fn parse(left: Vec<Left>, own: &str) -> Vec<(u64, String, Option<Told>)> {
    let others = left.into_iter().filter(|left| *left.by != *own);
    others.map(|Left { by, minute, text }| (minute, by, Told::read(minute, &text))).collect()
}
