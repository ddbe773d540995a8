//! Exchange of denials between the processes on a store: each publishes its own denials there, and
//! fetches those of the others on demand.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use tokio::time::{MissedTickBehavior, interval};
use tracing::debug;

use super::workers::WorkerService;
use crate::store::backend::{Backend, BackendError, PublishedDenials};
use crate::telemetry::journal::{Journal, PeerDenials};

/// Interval at which denials are published; other processes lag behind by no more.
const PUBLISH_INTERVAL: Duration = Duration::from_secs(5);
/// Time after which fetched denials are dropped.
const KEEP_FETCHED: Duration = Duration::from_secs(60);

/// Denials published by the other replicas on the same store.
#[derive(Debug, Default)]
pub struct PeerReport {
    /// `true` if there is a shared store to exchange denials through.
    pub is_shared: bool,
    /// The published denials.
    pub denials: Vec<PeerDenials>,
    /// Number of replicas that published denials.
    pub processes: usize,
    /// The reason why denials may be missing.
    pub missing: Option<String>,
}

/// A process that exchanges denials with others on its store.
#[derive(Clone)]
pub struct DenialSync<B> {
    /// Unique id of this process on the store.
    id: Arc<str>,
    journal: Arc<Journal>,
    /// The HTTP service, whose store is used.
    service: Arc<WorkerService<B>>,
    /// Denials published by this process, by minute.
    published: Arc<Mutex<BTreeMap<u64, String>>>,
    /// Denials fetched from other processes, by minute. Concurrent readers wait for a single fetch.
    fetched: Arc<Mutex<BTreeMap<u64, PeerMinute>>>,
}

/// Denials of other processes for one minute.
struct PeerMinute {
    /// Time of the fetch.
    at: Instant,
    /// `true` if no process will publish more for this minute.
    is_over: bool,
    /// Denials by process; `None` if they cannot be parsed.
    denials: Vec<(String, Option<PeerDenials>)>,
}

impl PeerMinute {
    /// Returns `true` if another fetch would find little or nothing new.
    fn is_current(&self) -> bool {
        self.is_over || self.at.elapsed() < PUBLISH_INTERVAL
    }
}

impl<B: Backend> DenialSync<B> {
    /// Creates the exchange. `id` must be unique among the processes on the store.
    pub fn new(id: &Arc<str>, journal: &Arc<Journal>, service: &Arc<WorkerService<B>>) -> Self {
        let id = Arc::clone(id);
        let journal = Arc::clone(journal);
        let service = Arc::clone(service);
        Self { id, journal, service, published: Arc::default(), fetched: Arc::default() }
    }

    /// Publishes denials, forever. Returns at once if counters live in this process, since no other
    /// process shares them.
    pub async fn run(self) {
        if self.store().is_none() {
            return;
        }
        let mut ticks = interval(PUBLISH_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.publish().await;
            self.fetched.lock().await.retain(|_, minute| minute.at.elapsed() < KEEP_FETCHED);
        }
    }

    /// Publishes new denials.
    pub async fn publish(&self) {
        let Some(store) = self.store().filter(|_| self.journal.is_on()) else { return };
        let mut published = self.published.lock().await;
        let last = *Journal::minutes().end();
        // The previous minute may have ended after the last publish.
        let minutes = last.saturating_sub(1)..=last;
        published.retain(|minute, _| minutes.contains(minute));
        let denials = self.journal.read();
        for minute in minutes {
            let Some(text) =
                denials.message(minute).filter(|text| published.get(&minute) != Some(text))
            else {
                continue;
            };
            match store.publish_denials(&self.id, minute, &text).await {
                Ok(()) => drop(published.insert(minute, text)),
                // The reason, a refusal or an unreachable store, is already in the log.
                Err(error) => debug!(%error, "failed to publish denials to other replicas"),
            }
        }
    }

    /// Returns the denials that other processes published for `minutes`.
    pub(super) async fn peers(&self, minutes: RangeInclusive<u64>) -> PeerReport {
        let Some(store) = self.store() else { return PeerReport::default() };
        let mut fetched = self.fetched.lock().await;
        let missing = self
            .fetch(store, &mut fetched, minutes.clone())
            .await
            .err()
            .map(|error| error.to_string());
        let known = Journal::minutes();
        fetched.retain(|minute, _| known.contains(minute));
        let all: Vec<_> = minutes
            .filter_map(|minute| fetched.get(&minute))
            .flat_map(|minute| &minute.denials)
            .collect();
        let processes: BTreeSet<_> = all.iter().map(|(by, _)| by).collect();
        let denials: Vec<_> = all.iter().filter_map(|(_, denials)| denials.clone()).collect();
        let unread = all.len() - denials.len();
        let unread = (unread > 0).then(|| {
            format!(
                "{unread} messages of other replicas cannot be parsed; they may run another version"
            )
        });
        PeerReport {
            is_shared: true,
            denials,
            processes: processes.len(),
            missing: missing.or(unread),
        }
    }

    /// Fetches those minutes that may have changed since the last fetch.
    async fn fetch(
        &self,
        store: &B,
        fetched: &mut BTreeMap<u64, PeerMinute>,
        minutes: RangeInclusive<u64>,
    ) -> Result<(), BackendError> {
        let wanted: Vec<u64> = minutes
            .filter(|minute| !fetched.get(minute).is_some_and(PeerMinute::is_current))
            .collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let at = Instant::now();
        let last = *Journal::minutes().end();
        let left = store.fetch_denials(&wanted).await?;
        let own = Arc::clone(&self.id);
        // Parses on a blocking thread: the reply may have megabytes, and this thread serves probes.
        let parsed =
            tokio::task::spawn_blocking(move || parse(left, &own)).await.unwrap_or_default();
        for minute in wanted {
            let is_over = minute.saturating_add(1) < last;
            fetched.insert(minute, PeerMinute { at, is_over, denials: Vec::new() });
        }
        for (minute, by, denials) in parsed {
            if let Some(minute) = fetched.get_mut(&minute) {
                minute.denials.push((by, denials));
            }
        }
        Ok(())
    }

    /// Returns the store, if other processes share it.
    fn store(&self) -> Option<&B> {
        Some(self.service.limiter().store().backend()).filter(|store| store.is_shared())
    }
}

/// Parses the denials of all processes except `own`, with their minutes.
fn parse(left: Vec<PublishedDenials>, own: &str) -> Vec<(u64, String, Option<PeerDenials>)> {
    let others = left.into_iter().filter(|left| *left.by != *own);
    others
        .map(|PublishedDenials { by, minute, text }| (minute, by, PeerDenials::read(minute, &text)))
        .collect()
}
