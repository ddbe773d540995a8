//! All that the processes of a world share: time, randomness, servers, network, history.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};
use tokio::time::Instant;

use super::history::Chronicle;
use super::network::{Path, SimConnection, Target};
use super::server::fleet::{Fleet, Moment};
use crate::random::Random;

/// The shared state of a world.
pub struct SharedWorld {
    pub begun: Instant,
    pub fleet: Mutex<Fleet>,
    pub connections: Mutex<Vec<Weak<SimConnection>>>,
    pub chronicle: Mutex<Chronicle>,
    /// Longest delay of bytes in each direction, in milliseconds.
    pub most_delay_ms: usize,
    paths: Mutex<BTreeMap<(usize, Target), Path>>,
    /// Moments at which processes go on that are stopped.
    stops: Mutex<BTreeMap<usize, Moment>>,
    random: Mutex<Random>,
}

impl SharedWorld {
    /// Creates the state of a world that begins now.
    pub fn new(fleet: Fleet, most_delay_ms: usize, seed: u64) -> Arc<Self> {
        Arc::new(Self {
            begun: Instant::now(),
            fleet: Mutex::new(fleet),
            connections: Mutex::default(),
            chronicle: Mutex::default(),
            most_delay_ms,
            paths: Mutex::default(),
            stops: Mutex::default(),
            random: Mutex::new(Random(seed)),
        })
    }

    /// Returns the time since the world began.
    pub fn now(&self) -> Moment {
        u64::try_from(self.begun.elapsed().as_micros()).unwrap()
    }

    /// Returns the generator of events while the world runs.
    pub fn random(&self) -> MutexGuard<'_, Random> {
        self.random.lock()
    }

    /// Returns the path between a process and a target.
    pub fn path(&self, process: usize, target: Target) -> Path {
        self.paths.lock().get(&(process, target)).copied().unwrap_or_default()
    }

    /// Stops a process until a moment.
    pub fn stop(&self, process: usize, until: Moment) {
        let mut stops = self.stops.lock();
        let known = stops.entry(process).or_default();
        *known = until.max(*known);
    }

    /// Returns the moment at which a process goes on, if it is stopped; else one that is past.
    pub fn stopped_until(&self, process: usize) -> Moment {
        self.stops.lock().get(&process).copied().unwrap_or_default()
    }

    /// Runs a future of a process, which makes no progress while the process is stopped.
    pub async fn while_running<F: Future>(&self, process: usize, future: F) -> F::Output {
        let mut future = pin!(future);
        let mut until = Box::pin(tokio::time::sleep(Duration::ZERO));
        poll_fn(|cx| {
            let goes_on = self.stopped_until(process);
            if goes_on > self.now() {
                until.as_mut().reset(self.begun + Duration::from_micros(goes_on));
                if until.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
            }
            future.as_mut().poll(cx)
        })
        .await
    }

    /// Waits while a process is stopped.
    pub async fn running(&self, process: usize) {
        self.while_running(process, std::future::ready(())).await;
    }

    /// Returns the path between a process and a target, to change it.
    pub fn path_mut(&self, process: usize, target: Target) -> MappedMutexGuard<'_, Path> {
        MutexGuard::map(self.paths.lock(), |paths| paths.entry((process, target)).or_default())
    }
}
