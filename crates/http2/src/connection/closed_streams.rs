//! Closed streams of which frames may still arrive, and are ignored.

use std::collections::VecDeque;

/// Maximum number of streams that are remembered one by one.
const MAX_RECENT: usize = 64;

/// Closed streams of which frames may still arrive.
#[derive(Debug, Default)]
pub(super) struct ClosedStreams {
    recent: VecDeque<u32>,
    /// The last stream refused because too many were open: a client may refer to all before it.
    refused_up_to: u32,
}

impl ClosedStreams {
    /// Adds a stream.
    pub(super) fn push(&mut self, stream: u32) {
        if self.recent.len() >= MAX_RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(stream);
    }

    /// Adds a stream that was refused because too many were open, and all before it.
    pub(super) fn push_refused(&mut self, stream: u32) {
        self.refused_up_to = stream;
    }

    pub(super) fn contains(&self, stream: u32) -> bool {
        stream <= self.refused_up_to || self.recent.contains(&stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_streams_are_remembered_and_all_up_to_the_last_refused_one() {
        let mut closed = ClosedStreams::default();
        (0..64).for_each(|number| closed.push(11 + 2 * number));
        assert!(closed.contains(11) && closed.contains(137) && !closed.contains(9));
        closed.push(139);
        assert!(!closed.contains(11) && closed.contains(13) && closed.contains(139));
        closed.push_refused(11);
        assert!(closed.contains(1) && closed.contains(11));
    }
}
