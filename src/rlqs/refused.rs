//! Buckets beyond the bounds of a stream, which keeps nothing of them.

use super::terms::{Blanket, BucketTerms};
use super::ttl::REFUSED_TTL;

impl BucketTerms {
    /// Returns the answer to a bucket of which nothing is kept, with its time to live in seconds:
    /// `without_hits` if hits would be lent, or if its terms are not known.
    pub fn answer_beyond_bounds(terms: Option<&Self>, without_hits: Blanket) -> (Blanket, u64) {
        let blanket = match terms {
            Some(Self::Open | Self::Shadow) => Blanket::Allow,
            Some(Self::Closed) => Blanket::Deny,
            Some(Self::Lent(_)) | None => without_hits,
        };
        (blanket, REFUSED_TTL.as_secs())
    }
}
