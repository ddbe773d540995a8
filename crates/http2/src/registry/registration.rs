//! A connection's side of the registry: its load, its eviction, its end.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::{BUSY, ConnectionState, LEAVING, Registry, millis_since};
use crate::connection::ConnectionLoad;

/// The registration of one connection, which ends when dropped.
pub struct Registration {
    pub(super) shared: Arc<ConnectionState>,
    pub(super) registry: Arc<Registry>,
}

/// A handle that reports a connection's load to the registry.
#[derive(Debug)]
pub(crate) struct Usage {
    pub(super) shared: Arc<ConnectionState>,
    /// Creation time of the registry.
    begun: Instant,
    /// The last stream that the client had opened.
    last_stream: u32,
}

impl Usage {
    /// Creates the handle of a connection that is not registered.
    #[cfg(test)]
    pub(crate) fn unregistered() -> Self {
        Self {
            shared: Arc::new(ConnectionState::new(None, 0)),
            begun: crate::now(),
            last_stream: 0,
        }
    }

    /// Records the connection's load. Calls are use; pings are not.
    pub(crate) fn record(&mut self, load: ConnectionLoad, now: Instant) {
        let was_busy = self.shared.idle_since.load(Ordering::Relaxed) == BUSY;
        let is_used =
            load.last_stream != std::mem::replace(&mut self.last_stream, load.last_stream);
        if load.is_busy != was_busy || is_used {
            let since = if load.is_busy { BUSY } else { millis_since(self.begun, now) };
            self.shared.idle_since.store(since, Ordering::Relaxed);
        }
        if self.shared.held.load(Ordering::Relaxed) != load.held {
            self.shared.held.store(load.held, Ordering::Relaxed);
        }
    }
}

impl Registration {
    /// Returns a handle that reports the connection's load.
    pub(crate) fn usage(&self) -> Usage {
        Usage { shared: Arc::clone(&self.shared), begun: self.registry.begun, last_stream: 0 }
    }

    /// Waits until the connection is evicted. Returns once.
    pub(crate) async fn evicted(&self) {
        self.shared.evicted.notified().await;
    }

    /// Waits until the evicted connection has to be closed immediately.
    pub(crate) async fn cut(&self) {
        self.shared.cut.notified().await;
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let mut state = self.registry.state.lock();
        match self.shared.index.load(Ordering::Relaxed) {
            LEAVING => state.remove_leaving(&self.shared),
            _ => state.remove(&self.shared),
        }
        drop(state);
        self.registry.observer.ended();
    }
}

impl std::fmt::Debug for Registration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Registration").field(&self.shared).finish()
    }
}
