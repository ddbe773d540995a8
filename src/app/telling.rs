//! Exchange of denials between the processes on a store: each publishes its own denials there, and
//! fetches those of the others on demand.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use tokio::time::{MissedTickBehavior, interval};
use tracing::debug;

use super::serving::WorkerService;
use crate::admin::desk::Others;
use crate::journal::{Journal, PeerDenials};
use crate::store::StoreError;
use crate::store::redis::{Left, RedisStore};

/// Interval at which denials are published; other processes lag behind by no more.
const TELL_EVERY: Duration = Duration::from_secs(5);
/// Time after which fetched denials are dropped.
const ASKED_FOR: Duration = Duration::from_secs(60);

/// A process that exchanges denials with others on its store.
#[derive(Clone)]
pub(super) struct Telling {
    /// Unique id of this process on the store.
    id: Arc<str>,
    journal: Arc<Journal>,
    /// The HTTP service, whose store is used.
    service: Arc<WorkerService>,
    /// Denials published by this process, by minute.
    told: Arc<Mutex<BTreeMap<u64, String>>>,
    /// Denials fetched from other processes, by minute. Concurrent readers wait for a single fetch.
    read: Arc<Mutex<BTreeMap<u64, PeerMinute>>>,
}

/// Denials of other processes for one minute.
struct PeerMinute {
    /// Time of the fetch.
    at: Instant,
    /// `true` if no process will publish more for this minute.
    is_over: bool,
    /// Denials by process; `None` if they cannot be parsed.
    told: Vec<(String, Option<PeerDenials>)>,
}

impl Telling {
    /// Creates the exchange. `id` must be unique among the processes on the store.
    pub(super) fn new(id: &Arc<str>, journal: &Arc<Journal>, service: &Arc<WorkerService>) -> Self {
        let id = Arc::clone(id);
        let journal = Arc::clone(journal);
        let service = Arc::clone(service);
        Self { id, journal, service, told: Arc::default(), read: Arc::default() }
    }

    /// Publishes denials, forever. Returns at once if counters live in this process, since no other
    /// process shares them.
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

    /// Publishes new denials.
    pub(super) async fn tell_now(&self) {
        let Some(store) = self.store().filter(|_| self.journal.is_on()) else { return };
        let mut told = self.told.lock().await;
        let last = *Journal::minutes().end();
        // The previous minute may have ended after the last publish.
        let minutes = last.saturating_sub(1)..=last;
        told.retain(|minute, _| minutes.contains(minute));
        let denials = self.journal.read();
        for minute in minutes {
            let Some(text) = denials.tell(minute).filter(|text| told.get(&minute) != Some(text)) else { continue };
            match store.leave(&self.id, minute, &text).await {
                Ok(()) => drop(told.insert(minute, text)),
                // The reason, a refusal or an unreachable store, is already in the log.
                Err(error) => debug!(%error, "what was denied was not left for other processes"),
            }
        }
    }

    /// Returns the denials that other processes published for `minutes`.
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

    /// Fetches those minutes that may have changed since the last fetch.
    async fn read_again(
        &self,
        store: &RedisStore,
        read: &mut BTreeMap<u64, PeerMinute>,
        minutes: RangeInclusive<u64>,
    ) -> Result<(), StoreError> {
        let is_new = |minute: &PeerMinute| minute.is_over || minute.at.elapsed() < TELL_EVERY;
        let wanted: Vec<u64> = minutes.filter(|minute| !read.get(minute).is_some_and(is_new)).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let at = Instant::now();
        let last = *Journal::minutes().end();
        let left = store.left(wanted.iter().copied()).await?;
        let own = Arc::clone(&self.id);
        // Parses on a blocking thread: the reply may have megabytes, and this thread serves probes.
        let parsed = tokio::task::spawn_blocking(move || parse(left, &own)).await.unwrap_or_default();
        for minute in wanted {
            let is_over = minute.saturating_add(1) < last;
            read.insert(minute, PeerMinute { at, is_over, told: Vec::new() });
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

/// Parses the denials of all processes except `own`, with their minutes.
fn parse(left: Vec<Left>, own: &str) -> Vec<(u64, String, Option<PeerDenials>)> {
    let others = left.into_iter().filter(|left| *left.by != *own);
    others.map(|Left { by, minute, text }| (minute, by, PeerDenials::read(minute, &text))).collect()
}
