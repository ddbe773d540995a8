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
