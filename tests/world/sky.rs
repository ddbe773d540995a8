//! All that the processes of a world share: time, randomness, servers, network, history.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};
use tokio::time::Instant;

use super::history::Chronicle;
use super::network::{Path, SimConnection, Target};
use super::random::Random;
use super::server::fleet::{Fleet, Moment};

/// The shared state of a world.
pub(crate) struct Sky {
    pub(crate) begun: Instant,
    pub(crate) fleet: Mutex<Fleet>,
    pub(crate) connections: Mutex<Vec<Weak<SimConnection>>>,
    pub(crate) chronicle: Mutex<Chronicle>,
    /// Longest delay of bytes in each direction, in milliseconds.
    pub(crate) most_delay_ms: usize,
    paths: Mutex<BTreeMap<(usize, Target), Path>>,
    random: Mutex<Random>,
}

impl Sky {
    /// Creates the state of a world that begins now.
    pub(crate) fn new(fleet: Fleet, most_delay_ms: usize, seed: u64) -> Arc<Self> {
        Arc::new(Self {
            begun: Instant::now(),
            fleet: Mutex::new(fleet),
            connections: Mutex::default(),
            chronicle: Mutex::default(),
            most_delay_ms,
            paths: Mutex::default(),
            random: Mutex::new(Random(seed)),
        })
    }

    /// Returns the time since the world began.
    pub(crate) fn now(&self) -> Moment {
        u64::try_from(self.begun.elapsed().as_micros()).unwrap()
    }

    /// Returns the generator of what happens while the world runs.
    pub(crate) fn random(&self) -> MutexGuard<'_, Random> {
        self.random.lock()
    }

    /// Returns the path between a process and a target.
    pub(crate) fn path(&self, process: usize, target: Target) -> Path {
        self.paths.lock().get(&(process, target)).copied().unwrap_or_default()
    }

    /// Returns the path between a process and a target, to change it.
    pub(crate) fn path_mut(&self, process: usize, target: Target) -> MappedMutexGuard<'_, Path> {
        MutexGuard::map(self.paths.lock(), |paths| paths.entry((process, target)).or_default())
    }
}
