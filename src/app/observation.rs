//! Observation of decisions: rates of rules, the journal of denials, and their metrics.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::time::{MissedTickBehavior, interval};

use crate::limiter::InForce;
use crate::telemetry::journal::rates::Rates;
use crate::telemetry::journal::undecided::UndecidedWindow;
use crate::telemetry::journal::{DenialLosses, Journal};
use crate::telemetry::metrics::Metrics;

/// Interval at which the counts of rules are sampled.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);

/// The observed state of decisions.
#[derive(Clone)]
pub(super) struct Observation {
    pub(super) journal: Arc<Journal>,
    pub(super) rates: Arc<Mutex<Rates>>,
    pub(super) undecided: Arc<Mutex<UndecidedWindow>>,
}

impl Observation {
    /// Creates an empty state. `journal_bytes` is the memory for denials, divided among `workers`.
    pub(super) fn new(journal_bytes: usize, workers: usize) -> Self {
        Self {
            journal: Journal::new(journal_bytes, workers),
            rates: Arc::default(),
            undecided: Arc::default(),
        }
    }

    /// Samples rates and updates metrics, forever.
    pub(super) async fn follow(self, policies: Arc<InForce>, metrics: Arc<Metrics>) {
        let mut ticks = interval(SAMPLE_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last = Instant::now();
        let mut reported = DenialLosses::default();
        loop {
            ticks.tick().await;
            let now = Instant::now();
            let elapsed = now - last;
            if let Some(live) = policies.snapshot().as_deref() {
                self.rates.lock().sample(live.generation(), live.samples(), elapsed);
                self.undecided.lock().sample(&metrics, elapsed);
                last = now;
            }
            self.journal.expire();
            metrics.journal.bytes.set(i64::try_from(self.journal.bytes()).unwrap_or(i64::MAX));
            let lost = self.journal.lost();
            metrics.journal.dropped.inc_by(lost.dropped.saturating_sub(reported.dropped));
            metrics.journal.replaced.inc_by(lost.replaced.saturating_sub(reported.replaced));
            reported = lost;
        }
    }
}
