//! Invariants of a connection, for tests and fuzz targets.
#![allow(
    clippy::arithmetic_side_effects,
    clippy::panic,
    reason = "a check that panics has found something"
)]

use super::{Connection, MAX_SPARE};
use crate::service::Service;

impl<S: Service> Connection<S> {
    /// Asserts invariants between events: charges match what is held, and all lists are bounded.
    pub(crate) fn check(&self) {
        if self.end.is_some() {
            return;
        }
        let streams: usize = self.streams.values().map(|stream| stream.charged).sum();
        let block = self.block.as_ref().map_or(0, |block| block.bytes.len());
        assert_eq!(
            self.account.charged(),
            streams + block + self.buffered,
            "charges are those of what is held"
        );
        let max_streams = self.limits.max_streams as usize;
        let max_list = max_streams * 4 + 200;
        assert!(self.blocked.len() <= max_list, "{} streams wait in turn", self.blocked.len());
        assert!(self.timers.deadlines() <= max_list, "{} deadlines", self.timers.deadlines());
        for (id, stream) in &self.streams {
            let mut deadlines = stream.deadlines().into_iter().flatten();
            let is_scheduled = deadlines.all(|at| self.timers.is_scheduled(at, *id));
            assert!(is_scheduled, "stream {id} is in the queue of deadlines");
        }
        assert!(self.spare.len() <= MAX_SPARE);
        assert!(self.streams.len() <= max_streams);
    }
}
