//! A bounded set of connections for one listener. At the bound, the connection that has been idle
//! longest makes way for a new one.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::telemetry::http::HttpCloseReason;

/// Number of evicted connections that are still open above which the listener yields to their
/// tasks before it accepts others.
const MAX_LEAVING: usize = 8;
/// Maximum number of times that it yields for one connection.
const MAX_TURNS: usize = 16;
/// Divisor of the bound for the number of connections, those admitted last, that are not evicted
/// as idle before their first request, which may be on its way.
const FRESH_SHARE: usize = 8;

/// The connections of one listener.
#[derive(Debug)]
pub(super) struct Connections {
    max: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Logical clock: incremented on every event, so the lowest number is the oldest event.
    clock: u64,
    /// Number of connections admitted so far.
    admitted: u64,
    open: HashMap<u64, OpenConnection>,
    /// Evicted connections that are not closed yet.
    leaving: usize,
}

#[derive(Debug)]
struct OpenConnection {
    /// Time of the last change of `activity`, by the clock of [`State`].
    since: u64,
    activity: Activity,
    eviction: Arc<Eviction>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Activity {
    /// No request yet. Contains its number among all admitted so far.
    New(u64),
    Answering,
    Idle,
}

/// The end of a connection that gives way.
#[derive(Debug, Default)]
struct Eviction {
    closed: CancellationToken,
    cut: OnceLock<HttpCloseReason>,
}

/// One connection. It leaves the set when dropped.
#[derive(Debug)]
pub(super) struct TrackedConnection {
    number: u64,
    all: Arc<Connections>,
    eviction: Arc<Eviction>,
}

/// A guard for a request in progress. Its connection does not count as idle until the guard is
/// dropped.
#[derive(Debug)]
pub(super) struct RequestGuard(Arc<TrackedConnection>);

impl State {
    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// Finds the connection to evict, of at most `max`: the one that has been idle longest, else
    /// the one that has been answered longest, as if its client does not read. Spares those just
    /// admitted: they are about to send a request, such as a probe.
    fn victim(&self, max: usize) -> Option<(u64, HttpCloseReason)> {
        let fresh = u64::try_from(max / FRESH_SHARE).unwrap_or(u64::MAX);
        let idle = self.longest(|activity| match activity {
            Activity::New(number) => self.admitted - number >= fresh,
            Activity::Answering => false,
            Activity::Idle => true,
        });
        if let Some(number) = idle {
            return Some((number, HttpCloseReason::Idle));
        }
        if let Some(number) = self.longest(|activity| activity == Activity::Answering) {
            return Some((number, HttpCloseReason::Full));
        }
        self.longest(|_| true).map(|number| (number, HttpCloseReason::Idle))
    }

    /// Returns the connection whose activity is one of these, and has been for the longest time.
    fn longest(&self, is_one: impl Fn(Activity) -> bool) -> Option<u64> {
        let found = self.open.iter().filter(|(_, open)| is_one(open.activity));
        found.min_by_key(|(_, open)| open.since).map(|(number, _)| *number)
    }

    fn set(&mut self, connection: u64, activity: Activity) {
        let now = self.tick();
        if let Some(open) = self.open.get_mut(&connection) {
            (open.since, open.activity) = (now, activity);
        }
    }
}

impl Connections {
    pub(super) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, state: Mutex::default() })
    }

    /// Waits, for a bounded number of yields, while too many evicted connections are still closing:
    /// they still hold file descriptors.
    pub(super) async fn settle(&self) {
        for _ in 0..MAX_TURNS {
            if self.state.lock().leaving < MAX_LEAVING {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Admits a connection, in the place of another one when all are taken.
    pub(super) fn admit(self: &Arc<Self>) -> Arc<TrackedConnection> {
        let mut state = self.state.lock();
        let victim = if state.open.len() >= self.max { state.victim(self.max) } else { None };
        if let Some((open, cut)) =
            victim.and_then(|(number, cut)| Some((state.open.remove(&number)?, cut)))
        {
            let _ = open.eviction.cut.set(cut);
            open.eviction.closed.cancel();
            state.leaving += 1;
        }
        state.admitted += 1;
        let number = state.tick();
        let activity = Activity::New(state.admitted);
        let eviction = Arc::<Eviction>::default();
        state.open.insert(
            number,
            OpenConnection { since: number, activity, eviction: Arc::clone(&eviction) },
        );
        Arc::new(TrackedConnection { number, all: Arc::clone(self), eviction })
    }
}

impl TrackedConnection {
    /// Waits until the connection has to give way, and returns why.
    pub(super) async fn closed(&self) -> HttpCloseReason {
        self.eviction.closed.cancelled().await;
        self.eviction.cut.get().copied().unwrap_or(HttpCloseReason::Idle)
    }

    /// Marks the connection as busy until the returned guard is dropped.
    pub(super) fn begin(self: &Arc<Self>) -> RequestGuard {
        self.all.state.lock().set(self.number, Activity::Answering);
        RequestGuard(Arc::clone(self))
    }
}

impl Drop for TrackedConnection {
    fn drop(&mut self) {
        let mut state = self.all.state.lock();
        if state.open.remove(&self.number).is_none() {
            state.leaving -= 1;
        }
    }
}

impl Drop for RequestGuard {
    fn drop(&mut self) {
        self.0.all.state.lock().set(self.0.number, Activity::Idle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_closed(connection: &TrackedConnection) -> bool {
        connection.eviction.closed.is_cancelled()
    }

    #[test]
    fn the_connection_that_is_idle_longest_gives_way() {
        let connections = Connections::new(2);
        let first = connections.admit();
        let second = connections.admit();
        drop(first.begin());
        let third = connections.admit();
        assert!(is_closed(&second) && !is_closed(&first));
        drop((second, third));
        let fourth = connections.admit();
        assert!(!is_closed(&first) && !is_closed(&fourth), "a place was free");
    }

    #[test]
    fn a_connection_whose_request_is_answered_gives_way_where_no_other_is_idle() {
        let connections = Connections::new(2);
        let first = connections.admit();
        let second = connections.admit();
        let under_way = [first.begin(), second.begin()];
        let third = connections.admit();
        assert_eq!(
            (is_closed(&first), is_closed(&second), is_closed(&third)),
            (true, false, false)
        );
        assert_eq!(first.eviction.cut.get(), Some(&HttpCloseReason::Full));
        let _fourth = connections.admit();
        assert_eq!((is_closed(&second), is_closed(&third)), (false, true));
        drop(under_way);
    }

    #[test]
    fn new_connections_evict_those_with_the_longest_calls() {
        let connections = Connections::new(16);
        let held: Vec<_> = (0..16).map(|_| connections.admit()).collect();
        let _under_way: Vec<_> = held.iter().map(|connection| connection.begin()).collect();
        let probe = connections.admit();
        let other = connections.admit();
        assert!(!is_closed(&probe) && !is_closed(&other));
        assert_eq!(held.iter().filter(|connection| is_closed(connection)).count(), 2);
    }
}
