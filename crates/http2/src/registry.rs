//! The open connections: a bounded number, in which idle ones give way to new ones.
//!
//! If a new connection exceeds a bound, the connection that has been idle longest is evicted,
//! starting with the network that has the most. If none is idle, one of a network that has more
//! than the new client's is evicted. An evicted connection is sent GOAWAY and has time for its
//! calls, so that its client loses nothing, and no client can lock out others from one address.
#![allow(clippy::arithmetic_side_effects, reason = "counts connections of this process")]

mod registration;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use foldhash::HashMap;
use parking_lot::Mutex;
use tokio::sync::Notify;

pub use self::registration::Registration;
pub(super) use self::registration::Usage;
use super::account::HEAVY_SHARE;
use super::budget::{Budget, HeldByConnection};
use super::observer::{CloseReason, ConnectionObserver};

/// Memory of a connection in bytes: that of an idle one, as measured, and what each may hold on top
/// of the budget.
pub const CONNECTION_COST: usize = (12 << 10) + super::account::OWN;
/// Maximum number of connections searched for one to evict. If there are more, each search
/// continues after the previous one.
const MAX_SEARCHED: usize = 1024;
/// Maximum number of evicted connections that are still open, unless another bound is lower. They
/// are few and short-lived, so they are not counted otherwise.
pub const MAX_LEAVING: usize = 1024;
/// Maximum number of evicted connections that are cut and still open; beyond it new ones are
/// refused, since both hold file descriptors.
const MAX_CLOSING: usize = 16;
/// Maximum number of idle connections evicted at a time for lack of memory; pause after that.
const RELIEVED_AT_ONCE: usize = 16;
const RELIEF_PAUSE: Duration = Duration::from_millis(100);
/// Idle milliseconds before eviction for lack of memory: a new connection is about to be used.
const RELIEVED_AFTER: u64 = 1_000;
/// [`ConnectionState::idle_since`] of a connection with calls under way.
const BUSY: u64 = u64::MAX;
/// [`ConnectionState::index`] of an evicted connection.
const LEAVING: usize = usize::MAX;

/// Bounds on the connections that are open at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionBounds {
    /// Maximum for all clients.
    pub total: usize,
    /// Maximum for one address, or one /64 network of IPv6; `None` is no bound but `total`. Unix
    /// sockets count as one address.
    pub per_address: Option<usize>,
    /// Maximum number of evicted connections, beside `total`: they still have file descriptors.
    pub leaving: usize,
}

/// The open connections of all workers.
pub struct Registry {
    bounds: ConnectionBounds,
    budget: Arc<Budget>,
    begun: Instant,
    state: Mutex<State>,
    observer: Arc<dyn ConnectionObserver>,
}

#[derive(Debug, Default)]
struct State {
    open: Vec<OpenEntry>,
    /// Number of connections in `open` by the client's network; `None` is Unix sockets. A search
    /// looks up that of each connection, so the hash must be fast.
    by_network: HashMap<Option<IpAddr>, usize>,
    /// Evicted connections that are still open, in the order of their eviction.
    leaving: VecDeque<Arc<ConnectionState>>,
    max_leaving: usize,
    /// Number of evicted connections that are cut, to make room for others, and still open.
    closing: usize,
    /// Index in `open` at which the next search begins.
    next: usize,
}

/// A connection that is not evicted.
#[derive(Debug)]
struct OpenEntry {
    shared: Arc<ConnectionState>,
    /// Released when the connection is evicted: another one takes its slot.
    _memory: HeldByConnection,
}

/// State that a connection shares with the registry.
#[derive(Debug)]
struct ConnectionState {
    network: Option<IpAddr>,
    /// Index in [`State::open`]; written under the lock.
    index: AtomicUsize,
    /// Milliseconds from the registry's creation to the end of the last call, or [`BUSY`].
    idle_since: AtomicU64,
    /// Bytes held by its calls.
    held: AtomicUsize,
    evicted: Notify,
    cut: Notify,
}

impl State {
    fn insert(&mut self, shared: &Arc<ConnectionState>, memory: HeldByConnection) {
        shared.index.store(self.open.len(), Ordering::Relaxed);
        let count = self.by_network.entry(shared.network).or_default();
        *count += 1;
        self.open.push(OpenEntry { shared: Arc::clone(shared), _memory: memory });
    }

    fn remove(&mut self, shared: &ConnectionState) {
        let index = shared.index.swap(LEAVING, Ordering::Relaxed);
        if index >= self.open.len() {
            return;
        }
        self.open.swap_remove(index);
        if let Some(moved) = self.open.get(index) {
            moved.shared.index.store(index, Ordering::Relaxed);
        }
        if let Some(count) = self.by_network.get_mut(&shared.network) {
            *count -= 1;
            if *count == 0 {
                self.by_network.remove(&shared.network);
            }
        }
    }

    fn count_of(&self, network: Option<IpAddr>) -> usize {
        self.by_network.get(&network).copied().unwrap_or_default()
    }

    /// Returns the connection with the largest key, of up to [`MAX_SEARCHED`].
    fn search<K: Ord>(
        &mut self,
        key: impl Fn(&Self, &ConnectionState) -> Option<K>,
    ) -> Option<Arc<ConnectionState>> {
        let length = self.open.len();
        let searched = length.min(MAX_SEARCHED);
        let begin = self.next.checked_rem(length).unwrap_or_default();
        self.next = begin + searched;
        let found = self.open.iter().cycle().skip(begin).take(searched);
        let found = found.filter_map(|open| Some((key(self, &open.shared)?, &open.shared)));
        found.max_by(|(one, _), (other, _)| one.cmp(other)).map(|(_, shared)| Arc::clone(shared))
    }

    /// Returns the connection that has been idle longest, of the network that has the most.
    fn idle(&mut self, of: impl Fn(&ConnectionState) -> bool) -> Option<Arc<ConnectionState>> {
        self.search(|state, shared| {
            let idle_since = shared.idle_since.load(Ordering::Relaxed);
            let is_candidate = idle_since != BUSY && of(shared);
            is_candidate.then(|| (state.count_of(shared.network), std::cmp::Reverse(idle_since)))
        })
    }

    /// Returns the connection that holds the most in the network with the most connections, if that
    /// has more than `network` would have.
    fn busy_beside(&mut self, network: Option<IpAddr>) -> Option<Arc<ConnectionState>> {
        let own = self.count_of(network) + 1;
        self.search(|state, shared| {
            let count = state.count_of(shared.network);
            (count > own).then(|| (count, shared.held.load(Ordering::Relaxed)))
        })
    }

    /// Returns the connection whose calls hold the most, if that is more than `least`.
    fn heaviest(&mut self, least: usize) -> Option<Arc<ConnectionState>> {
        self.search(|_, shared| {
            Some(shared.held.load(Ordering::Relaxed)).filter(|held| *held > least)
        })
    }

    /// Evicts a connection: its slot and memory are free at once. At the maximum of evicted ones,
    /// the first of them is cut: clients that ignore GOAWAY keep no others out.
    fn evict(&mut self, shared: Option<Arc<ConnectionState>>) -> bool {
        let Some(shared) = shared else { return false };
        if self.leaving.len() >= self.max_leaving {
            if self.closing >= MAX_CLOSING {
                return false;
            }
            let Some(first) = self.leaving.pop_front() else { return false };
            self.closing += 1;
            first.cut.notify_one();
        }
        self.remove(&shared);
        shared.evicted.notify_one();
        self.leaving.push_back(shared);
        true
    }

    /// Removes an evicted connection that has closed.
    fn remove_leaving(&mut self, shared: &Arc<ConnectionState>) {
        match self.leaving.iter().position(|leaving| Arc::ptr_eq(leaving, shared)) {
            Some(position) => drop(self.leaving.remove(position)),
            None => self.closing -= 1,
        }
    }
}

impl Registry {
    /// Creates a registry without connections, which are charged to `budget`.
    pub fn new(
        bounds: ConnectionBounds,
        budget: Arc<Budget>,
        observer: Arc<dyn ConnectionObserver>,
    ) -> Arc<Self> {
        let state = Mutex::new(State { max_leaving: bounds.leaving, ..State::default() });
        Arc::new(Self { bounds, budget, begun: super::now(), state, observer })
    }

    /// Returns the budget that connections are charged to.
    pub fn budget(&self) -> Arc<Budget> {
        Arc::clone(&self.budget)
    }

    /// Registers a connection, evicting an idle one if a bound is reached. The caller must close a
    /// connection that is not registered at once, and not leave it waiting: its client goes to
    /// another replica, while a client in the kernel's queue believes that it is connected, and
    /// times out call by call.
    pub fn register(self: &Arc<Self>, peer: Option<SocketAddr>) -> Option<Registration> {
        let network = peer.map(network_of);
        let mut state = self.state.lock();
        let admitted = self.make_room(&mut state, network);
        let memory = match admitted {
            Ok(memory) => memory,
            Err(cut) => {
                drop(state);
                self.observer.closed(cut, peer);
                return None;
            }
        };
        let shared =
            Arc::new(ConnectionState::new(network, millis_since(self.begun, super::now())));
        state.insert(&shared, memory);
        self.observer.opened();
        Some(Registration { shared, registry: Arc::clone(self) })
    }

    /// Evicts idle, then heavy connections while the memory budget is exhausted. Never returns.
    pub async fn relieve(&self) {
        loop {
            self.budget.exceeded().await;
            self.relieve_once(super::now());
            tokio::time::sleep(RELIEF_PAUSE).await;
        }
    }

    /// Makes room for a connection, and reserves its memory; evicts another one if necessary.
    fn make_room(
        &self,
        state: &mut State,
        network: Option<IpAddr>,
    ) -> Result<HeldByConnection, CloseReason> {
        if self.bounds.per_address.is_some_and(|max| state.count_of(network) >= max) {
            let idle = state.idle(|other| other.network == network);
            self.evict_counted(state, idle).then_some(()).ok_or(CloseReason::Address)?;
        }
        if state.open.len() >= self.bounds.total {
            self.evict_for(state, network).then_some(()).ok_or(CloseReason::Full)?;
        }
        let mut held = self.budget.hold_connection(CONNECTION_COST);
        if held.is_err() && self.evict_for(state, network) {
            held = self.budget.hold_connection(CONNECTION_COST);
        }
        held.map_err(|_| CloseReason::Memory)
    }

    /// Evicts a connection in favour of one of this network.
    fn evict_for(&self, state: &mut State, network: Option<IpAddr>) -> bool {
        let victim = state.idle(|_| true).or_else(|| state.busy_beside(network));
        self.evict_counted(state, victim)
    }

    fn relieve_once(&self, now: Instant) {
        let now = millis_since(self.begun, now);
        let mut state = self.state.lock();
        for number in 0..RELIEVED_AT_ONCE {
            let idle = state.idle(|shared| {
                shared.idle_since.load(Ordering::Relaxed).saturating_add(RELIEVED_AFTER) <= now
            });
            if self.evict_counted(&mut state, idle) {
                continue;
            }
            if number == 0 && self.budget.is_scarce() {
                let heaviest = state.heaviest(self.budget.max().div_euclid(HEAVY_SHARE));
                self.evict_counted(&mut state, heaviest);
            }
            return;
        }
    }

    /// Evicts a connection, and counts it.
    fn evict_counted(&self, state: &mut State, shared: Option<Arc<ConnectionState>>) -> bool {
        let is_evicted = state.evict(shared);
        if is_evicted {
            self.observer.closed(CloseReason::Evicted, None);
        }
        is_evicted
    }
}

impl ConnectionState {
    fn new(network: Option<IpAddr>, idle_since: u64) -> Self {
        Self {
            network,
            index: AtomicUsize::new(LEAVING),
            idle_since: AtomicU64::new(idle_since),
            held: AtomicUsize::new(0),
            evicted: Notify::new(),
            cut: Notify::new(),
        }
    }
}

fn millis_since(begun: Instant, now: Instant) -> u64 {
    u64::try_from(now.saturating_duration_since(begun).as_millis()).unwrap_or(BUSY)
}

/// Returns the network of an address: itself, or the /64 that an IPv6 host has to itself.
fn network_of(peer: SocketAddr) -> IpAddr {
    match peer.ip().to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()
        }
        address @ IpAddr::V4(_) => address,
    }
}
