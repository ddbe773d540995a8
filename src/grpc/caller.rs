//! Who is at the other end of a connection, and how that one behaves.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};

use super::rights::Rights;

/// Calls that a client may give up before it has an answer, more than it waited for. Real ones have patience: a proxy tells how
/// long it waits, and is answered before that. Who opens calls only to reset them (CVE-2023-44487) evades the bound of calls at
/// once, and has each begun.
const MAX_GIVEN_UP: u32 = 2048;

/// The client of a connection. Read and written on one thread; only the compiler does not know that.
#[derive(Debug, Default)]
pub(super) struct Caller {
    /// Where it is; `None` at a Unix socket.
    pub(super) address: Option<SocketAddr>,
    /// What it may ask for.
    pub(super) rights: Rights,
    given_up: AtomicU32,
}

impl Caller {
    pub(super) fn new(address: Option<SocketAddr>, rights: Rights) -> Self {
        Self { address, rights, given_up: AtomicU32::new(0) }
    }

    /// It took an answer, which makes up for a call that it gave up.
    pub(super) fn was_answered(&self) {
        let given_up = self.given_up.load(Ordering::Relaxed);
        if given_up > 0 {
            self.given_up.store(given_up.saturating_sub(1), Ordering::Relaxed);
        }
    }

    /// It gave up a call.
    pub(super) fn gave_up(&self) {
        self.given_up.store(self.given_up.load(Ordering::Relaxed).saturating_add(1), Ordering::Relaxed);
    }

    /// Whether it asks in order not to be answered.
    pub(super) fn wastes_calls(&self) -> bool {
        self.given_up.load(Ordering::Relaxed) > MAX_GIVEN_UP
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_that_are_answered_make_up_for_calls_that_were_given_up() {
        let caller = Caller::default();
        for _ in 0..MAX_GIVEN_UP {
            caller.gave_up();
        }
        assert!(!caller.wastes_calls());
        caller.was_answered();
        caller.gave_up();
        assert!(!caller.wastes_calls());
        caller.gave_up();
        assert!(caller.wastes_calls());
    }
}
