//! The connections of a listener: at most so many, of which the one that is idle longest gives way to a new one.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// All connections of a listener.
#[derive(Debug)]
pub(super) struct Connections {
    max: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Counts what happens, so that what happened longest ago has the lowest number.
    clock: u64,
    open: HashMap<u64, Open>,
}

#[derive(Debug)]
struct Open {
    /// When its last request was answered, or when it began; `None` while one is answered.
    idle_since: Option<u64>,
    closed: CancellationToken,
}

/// One connection, until it is dropped.
#[derive(Debug)]
pub(super) struct Connection {
    number: u64,
    all: Arc<Connections>,
    closed: CancellationToken,
}

/// A request that is being answered. Its connection is not idle until this is dropped.
#[derive(Debug)]
pub(super) struct UnderWay(Arc<Connection>);

impl State {
    fn tick(&mut self) -> u64 {
        self.clock = self.clock.saturating_add(1);
        self.clock
    }
}

impl Connections {
    pub(super) fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, state: Mutex::default() })
    }

    /// Admits a connection, in the place of the one that is idle longest when all are taken. Returns nothing when every
    /// connection has a request that is being answered.
    pub(super) fn admit(self: &Arc<Self>) -> Option<Arc<Connection>> {
        let mut state = self.state.lock();
        if state.open.len() >= self.max {
            let idle = state.open.iter().filter_map(|(number, open)| Some((open.idle_since?, *number)));
            let (_, longest) = idle.min()?;
            state.open.remove(&longest)?.closed.cancel();
        }
        let number = state.tick();
        let closed = CancellationToken::new();
        state.open.insert(number, Open { idle_since: Some(number), closed: closed.clone() });
        Some(Arc::new(Connection { number, all: Arc::clone(self), closed }))
    }
}

impl Connection {
    /// Waits until the connection has to give way.
    pub(super) async fn closed(&self) {
        self.closed.cancelled().await;
    }

    /// Begins a request.
    pub(super) fn begin(self: &Arc<Self>) -> UnderWay {
        if let Some(open) = self.all.state.lock().open.get_mut(&self.number) {
            open.idle_since = None;
        }
        UnderWay(Arc::clone(self))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.all.state.lock().open.remove(&self.number);
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut state = self.0.all.state.lock();
        let now = state.tick();
        if let Some(open) = state.open.get_mut(&self.0.number) {
            open.idle_since = Some(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_connection_that_is_idle_longest_gives_way() {
        let connections = Connections::new(2);
        let first = connections.admit().unwrap();
        let second = connections.admit().unwrap();
        drop(first.begin());
        let third = connections.admit().unwrap();
        assert!(second.closed.is_cancelled() && !first.closed.is_cancelled());
        drop((second, third));
        let fourth = connections.admit().unwrap();
        assert!(!first.closed.is_cancelled() && !fourth.closed.is_cancelled(), "a place was free");
    }

    #[test]
    fn a_connection_whose_request_is_being_answered_does_not_give_way() {
        let connections = Connections::new(1);
        let only = connections.admit().unwrap();
        let under_way = only.begin();
        assert!(connections.admit().is_none());
        drop(under_way);
        assert!(connections.admit().is_some());
    }
}
