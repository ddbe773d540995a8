//! Decodes header blocks, and finds the routes of their lists.

use super::{Connection, ConnectionFailure, KnownBlock};
use crate::fields::FieldsVerdict;
use crate::frame::Reason;
use crate::service::{Route, Service};

/// Maximum size of a header block that is remembered, in bytes.
const MAX_KNOWN_BLOCK: usize = 2 << 10;

/// Result of reading a request's header block.
pub(super) enum Routed<H> {
    /// The route, and the length of the body if the client announced it.
    To(Route<H>, Option<u64>),
    Malformed,
    TooLarge,
}

impl<S: Service> Connection<S> {
    /// Decodes or recognizes a request's header block, and returns its route.
    pub(super) fn route(&mut self, block: &[u8]) -> Result<Routed<S::Head>, ConnectionFailure> {
        if let Some(known) = self.known.as_ref().filter(|known| known.block == block) {
            return Ok(Routed::To(known.route(), known.content_length));
        }
        let leaves_table = self.decode(block)?;
        match self.fields.request_verdict() {
            FieldsVerdict::WellFormed => {}
            FieldsVerdict::Malformed => return Ok(Routed::Malformed),
            FieldsVerdict::TooLarge => return Ok(Routed::TooLarge),
        }
        let content_length = self.fields.content_length();
        let route = self.service.route(&self.fields);
        let is_kept = leaves_table && block.len() <= MAX_KNOWN_BLOCK;
        if is_kept && let Route::Unary { head, max_message } = &route {
            let (block, head, max_message) = (block.to_vec(), head.clone(), *max_message);
            self.known = Some(KnownBlock { block, head, max_message, content_length });
        }
        Ok(Routed::To(route, content_length))
    }

    /// Decodes a block into `fields`. Returns `true` if the decoder's table is unchanged.
    pub(super) fn decode(&mut self, block: &[u8]) -> Result<bool, ConnectionFailure> {
        let fields = &mut self.fields;
        let max_size = self.limits.max_header_list as usize;
        fields.clear();
        let leaves_table = self
            .decoder
            .decode(block, |name, value| fields.add(name, value, max_size))
            .map_err(|_| Reason::COMPRESSION_ERROR)?;
        if !leaves_table {
            self.known = None;
        }
        Ok(leaves_table)
    }
}
