//! Decoding of a request from protobuf, without copies, and without allocations for a typical
//! request.
//!
//! Content that a proxy can forward is never an error, since proxies fail open on errors; only
//! content that no proxy sends is. The fields of a request and of its descriptors are decoded here
//! with prost's primitives: prost's message would copy the domain and allocate three lists and a
//! reference-counted slice for each key and value.

use prost::DecodeError;
use prost::bytes::Buf as _;
use prost::encoding::{self, DecodeContext, WireType, decode_key, decode_varint, skip_field};
use smallvec::SmallVec;

use super::proto::rate_limit_descriptor::RateLimitOverride;
use super::proto::rate_limit_response::rate_limit::Unit;
use super::units::UNITS;
use crate::algorithm::judge::Hits;
use crate::algorithm::quota::MAX_PERIOD;
use crate::algorithm::time::Micros;
use crate::descriptor::hold::is_reserved;
use crate::descriptor::{Descriptor, Entry, Override, Request};

/// Bounds on the size of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestBounds {
    /// Maximum descriptors per request.
    pub descriptors: usize,
    /// Maximum entries per descriptor.
    pub entries: usize,
    /// Maximum entries of all descriptors of a request.
    pub all_entries: usize,
}

impl RequestBounds {
    /// Checks a request that was decoded elsewhere, by its domain and the number of entries of each
    /// descriptor.
    ///
    /// # Errors
    /// [`InvalidRequest`], with the value found and its position.
    pub fn check(
        &self,
        domain: &str,
        entries: impl ExactSizeIterator<Item = usize>,
    ) -> Result<(), InvalidRequest> {
        let descriptors = entries.len();
        if domain.is_empty() {
            return Err(InvalidRequest::NoDomain);
        }
        if descriptors == 0 {
            return Err(InvalidRequest::NoDescriptors);
        }
        if descriptors > self.descriptors {
            return Err(InvalidRequest::Descriptors {
                found: descriptors,
                allowed: self.descriptors,
            });
        }
        let mut all = 0;
        for (descriptor, found) in entries.enumerate() {
            if found > self.entries {
                return Err(InvalidRequest::Entries { descriptor, found, allowed: self.entries });
            }
            all = self.check_all(descriptor, all, found)?;
        }
        Ok(())
    }

    /// Returns the number of entries up to and including this descriptor, which has `found`.
    fn check_all(
        &self,
        descriptor: usize,
        before: usize,
        found: usize,
    ) -> Result<usize, InvalidRequest> {
        let found = before.saturating_add(found);
        let allowed = self.all_entries;
        if found > allowed {
            Err(InvalidRequest::AllEntries { descriptor, found, allowed })
        } else {
            Ok(found)
        }
    }
}

/// Reason why a request cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    /// The bytes are not a protobuf message.
    #[error("{0}")]
    Malformed(#[from] DecodeError),
    /// A length exceeds the rest of the message.
    #[error("truncated message: a field exceeds its end")]
    CutShort,
    /// The domain is not UTF-8.
    #[error("domain must be UTF-8")]
    Domain,
    /// The message is well-formed but invalid.
    #[error(transparent)]
    Invalid(#[from] InvalidRequest),
}

/// Reason why a well-formed request is invalid; no proxy sends one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the text of each variant says what its fields are")]
pub enum InvalidRequest {
    #[error("domain must not be empty")]
    NoDomain,
    #[error("descriptors must not be empty")]
    NoDescriptors,
    #[error("a request must have at most {allowed} descriptors (--max-descriptors), found {found}")]
    Descriptors { found: usize, allowed: usize },
    #[error(
        "a descriptor must have at most {allowed} entries (--max-entries), found {found} in descriptor {descriptor}"
    )]
    Entries { descriptor: usize, found: usize, allowed: usize },
    #[error(
        "a request must have at most {allowed} entries in total (--max-request-entries), found {found} up to \
         descriptor {descriptor}"
    )]
    AllEntries { descriptor: usize, found: usize, allowed: usize },
    #[error("hits_addend must be at most 4294967295, found {found} in descriptor {descriptor}")]
    Hits { descriptor: usize, found: u64 },
    #[error(
        "is_negative_hits must not be set with a last entry of tollgate.reserve, tollgate.commit or \
         tollgate.settle, found in descriptor {descriptor}"
    )]
    NegativeHold { descriptor: usize },
    #[error(
        "limit.unit must be SECOND, MINUTE, HOUR, DAY, MONTH, YEAR or 7 (WEEK), found {found} in descriptor {descriptor}"
    )]
    Unit { descriptor: usize, found: i32 },
    #[error(
        "limit.unit_multiplier must give a period of at most {MAX_PERIOD}, found {found} in descriptor {descriptor}"
    )]
    Multiplier { descriptor: usize, found: u32 },
}

/// Decodes a `RateLimitRequest`. The result borrows from `message`.
///
/// # Errors
/// [`RequestError`], with the value found and its position.
pub fn read<'a>(message: &'a [u8], bounds: &RequestBounds) -> Result<Request<'a>, RequestError> {
    let mut domain = "";
    let mut hits = 0;
    let mut descriptors = SmallVec::<[&[u8]; 4]>::new();
    let mut found = 0usize;
    fields(message, |tag, wire_type, rest| {
        match tag {
            1 => {
                domain = std::str::from_utf8(bytes_of(wire_type, rest)?)
                    .map_err(|_| RequestError::Domain)?
            }
            2 => {
                found = found.saturating_add(1);
                let descriptor = bytes_of(wire_type, rest)?;
                // Beyond the bound they are only counted: an empty one takes 2 bytes in the message
                // and 16 in the list.
                if found <= bounds.descriptors {
                    descriptors.push(descriptor);
                }
            }
            3 => encoding::uint32::merge(wire_type, &mut hits, rest, DecodeContext::default())?,
            _ => skip_field(wire_type, tag, rest, DecodeContext::default())?,
        }
        Ok(())
    })?;
    if domain.is_empty() {
        return Err(InvalidRequest::NoDomain.into());
    }
    if found == 0 {
        return Err(InvalidRequest::NoDescriptors.into());
    }
    if found > bounds.descriptors {
        return Err(InvalidRequest::Descriptors { found, allowed: bounds.descriptors }.into());
    }
    let mut request = Request { domain, descriptors: SmallVec::with_capacity(descriptors.len()) };
    let mut entries = 0usize;
    for (number, message) in descriptors.into_iter().enumerate() {
        let found = read_descriptor(number, message, hits, bounds, &mut request.descriptors)?;
        entries = bounds.check_all(number, entries, found)?;
    }
    Ok(request)
}

/// Returns the number of descriptors of a message, up to `max`; of a malformed one, those before
/// the error.
pub(super) fn count_descriptors(mut message: &[u8], max: usize) -> usize {
    let mut found = 0usize;
    while found < max && message.has_remaining() {
        let Ok((tag, wire_type)) = decode_key(&mut message) else { break };
        if skip_field(wire_type, tag, &mut message, DecodeContext::default()).is_err() {
            break;
        }
        found = found.saturating_add(usize::from(tag == 2));
    }
    found
}

/// Appends descriptor `number`, and returns the number of its entries.
fn read_descriptor<'a>(
    number: usize,
    message: &'a [u8],
    request_hits: u32,
    bounds: &RequestBounds,
    descriptors: &mut SmallVec<[Descriptor<'a>; 2]>,
) -> Result<usize, RequestError> {
    let mut limit = None::<RateLimitOverride>;
    let mut hits = None::<u64>;
    let mut is_negative = false;
    let mut entries = SmallVec::new();
    let mut found = 0usize;
    fields(message, |tag, wire_type, rest| {
        let context = DecodeContext::default();
        match tag {
            1 => {
                found = found.saturating_add(1);
                let entry = entry(bytes_of(wire_type, rest)?)?;
                if found <= bounds.entries {
                    entries.push(entry);
                }
            }
            2 => encoding::message::merge(wire_type, limit.get_or_insert_default(), rest, context)?,
            3 => encoding::message::merge(wire_type, hits.get_or_insert_default(), rest, context)?,
            4 => encoding::bool::merge(wire_type, &mut is_negative, rest, context)?,
            _ => skip_field(wire_type, tag, rest, context)?,
        }
        Ok(())
    })?;
    if found > bounds.entries {
        return Err(
            InvalidRequest::Entries { descriptor: number, found, allowed: bounds.entries }.into()
        );
    }
    let exact = |found: u64| {
        u32::try_from(found).map_err(|_| InvalidRequest::Hits { descriptor: number, found })
    };
    let own_hits = hits.map(exact).transpose()?;
    let hits = own_hits.unwrap_or(request_hits.max(1));
    if is_negative && entries.last().is_some_and(|last: &Entry<'_>| is_reserved(last.key)) {
        return Err(InvalidRequest::NegativeHold { descriptor: number }.into());
    }
    let wanted = match (hits, is_negative) {
        (hits, true) => Hits::Refund(hits),
        (0, false) => Hits::Peek(0),
        (hits, false) => Hits::Charge(hits),
    };
    let limit = limit.map(|limit| wanted_limit(number, &limit)).transpose()?;
    let descriptor = Descriptor::new(entries, wanted, own_hits, limit);
    let count = descriptor.entries.len();
    descriptors.push(descriptor);
    Ok(count)
}

fn entry(message: &[u8]) -> Result<Entry<'_>, RequestError> {
    let mut entry = Entry { key: &[], value: &[] };
    fields(message, |tag, wire_type, rest| {
        match tag {
            1 => entry.key = bytes_of(wire_type, rest)?,
            2 => entry.value = bytes_of(wire_type, rest)?,
            _ => skip_field(wire_type, tag, rest, DecodeContext::default())?,
        }
        Ok(())
    })?;
    Ok(entry)
}

/// Calls `see` for each field of a message with its number, its wire type and the remaining bytes,
/// of which `see` consumes the value.
pub(super) fn fields<'a>(
    mut message: &'a [u8],
    mut see: impl FnMut(u32, WireType, &mut &'a [u8]) -> Result<(), RequestError>,
) -> Result<(), RequestError> {
    while message.has_remaining() {
        let (tag, wire_type) = decode_key(&mut message)?;
        see(tag, wire_type, &mut message)?;
    }
    Ok(())
}

/// Consumes a length-delimited value.
#[inline]
pub(super) fn bytes_of<'a>(
    wire_type: WireType,
    rest: &mut &'a [u8],
) -> Result<&'a [u8], RequestError> {
    encoding::check_wire_type(WireType::LengthDelimited, wire_type)?;
    let length = usize::try_from(decode_varint(rest)?).map_err(|_| RequestError::CutShort)?;
    let (value, after) = rest.split_at_checked(length).ok_or(RequestError::CutShort)?;
    *rest = after;
    Ok(value)
}

fn wanted_limit(number: usize, message: &RateLimitOverride) -> Result<Override, InvalidRequest> {
    // The protocol's enum for overrides has no WEEK; envoyproxy/ratelimit accepts the number of the
    // response enum.
    let unit = Unit::try_from(message.unit)
        .ok()
        .and_then(|unit| UNITS.iter().find(|(known, _)| *known == unit));
    let Some((_, seconds)) = unit else {
        return Err(InvalidRequest::Unit { descriptor: number, found: message.unit });
    };
    let multiplier = message.unit_multiplier.unwrap_or(1);
    let period = Micros::from_secs(seconds.saturating_mul(multiplier.into()));
    if multiplier == 0 || period > MAX_PERIOD {
        return Err(InvalidRequest::Multiplier { descriptor: number, found: multiplier });
    }
    Ok(Override { limit: message.requests_per_unit, period })
}

#[cfg(test)]
mod tests;
