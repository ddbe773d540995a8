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
use super::proto::{RateLimitDescriptor, RateLimitRequest};
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

/// Memory of a descriptor with its check, outcome, status and part of a Redis call, in bytes.
const OF_DESCRIPTOR: usize = 1536;
/// Memory of an entry in a list that doubles when full, in bytes.
const OF_ENTRY: usize = 64;

/// Returns the memory of that many descriptors and entries, which may be any numbers, in bytes.
pub fn memory_of(descriptors: usize, entries: usize) -> usize {
    descriptors.saturating_mul(OF_DESCRIPTOR).saturating_add(entries.saturating_mul(OF_ENTRY))
}

impl RequestBounds {
    /// Returns the memory of a request of the maximum size in bytes: each descriptor has an entry.
    pub fn memory(&self) -> usize {
        memory_of(self.descriptors, self.all_entries.max(self.descriptors))
    }

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
        self.check_descriptors(domain, entries.len())?;
        let mut all = 0;
        for (descriptor, found) in entries.enumerate() {
            if found > self.entries {
                return Err(InvalidRequest::Entries { descriptor, found, allowed: self.entries });
            }
            all = self.check_all(descriptor, all, found)?;
        }
        Ok(())
    }

    /// Checks the domain and the number of descriptors.
    fn check_descriptors(&self, domain: &str, found: usize) -> Result<(), InvalidRequest> {
        let allowed = self.descriptors;
        match found {
            _ if domain.is_empty() => Err(InvalidRequest::NoDomain),
            0 => Err(InvalidRequest::NoDescriptors),
            _ if found > allowed => Err(InvalidRequest::Descriptors { found, allowed }),
            _ => Ok(()),
        }
    }

    /// Returns the number of entries up to and including this descriptor, which has `found`.
    fn check_all(
        &self,
        descriptor: usize,
        before: usize,
        found: usize,
    ) -> Result<usize, InvalidRequest> {
        let found = before + found;
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
    let mut found = 0;
    fields(message, |tag, wire_type, rest| {
        match tag {
            1 => {
                domain = std::str::from_utf8(bytes_of(wire_type, rest)?)
                    .map_err(|_| RequestError::Domain)?
            }
            2 => {
                found += 1;
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
    bounds.check_descriptors(domain, found)?;
    let mut request = Request { domain, descriptors: SmallVec::with_capacity(descriptors.len()) };
    let mut entries = 0;
    for (number, message) in descriptors.into_iter().enumerate() {
        let mut fields = DescriptorFields::default();
        fields.read(message, bounds)?;
        let found = fields.append_to(&mut request.descriptors, number, hits, bounds)?;
        entries = bounds.check_all(number, entries, found)?;
    }
    Ok(request)
}

/// Returns the request of a decoded message, as [`read`] returns that of an encoded one.
///
/// # Errors
/// [`InvalidRequest`], with the value found and its position.
pub(super) fn of_message<'a>(
    message: &'a RateLimitRequest,
    bounds: &RequestBounds,
) -> Result<Request<'a>, InvalidRequest> {
    let RateLimitRequest { domain, descriptors, hits_addend: hits } = message;
    bounds.check_descriptors(domain, descriptors.len())?;
    let mut request = Request { domain, descriptors: SmallVec::with_capacity(descriptors.len()) };
    let mut entries = 0;
    for (number, message) in descriptors.iter().enumerate() {
        let fields = DescriptorFields::of(message, bounds);
        let found = fields.append_to(&mut request.descriptors, number, *hits, bounds)?;
        entries = bounds.check_all(number, entries, found)?;
    }
    Ok(request)
}

/// Returns the number of descriptors of a message, up to `max`; of a malformed one, those before
/// the error.
pub(super) fn count_descriptors(mut message: &[u8], max: usize) -> usize {
    let mut found = 0;
    while found < max && message.has_remaining() {
        let Ok((tag, wire_type)) = decode_key(&mut message) else { break };
        if skip_field(wire_type, tag, &mut message, DecodeContext::default()).is_err() {
            break;
        }
        found += usize::from(tag == 2);
    }
    found
}

/// The fields of a descriptor's message.
#[derive(Default)]
struct DescriptorFields<'a> {
    /// Entries up to the bound.
    entries: SmallVec<[Entry<'a>; 4]>,
    /// Number of all entries.
    found: usize,
    limit: Option<RateLimitOverride>,
    hits: Option<u64>,
    is_negative: bool,
}

impl<'a> DescriptorFields<'a> {
    /// Returns the fields of a decoded message.
    fn of(message: &'a RateLimitDescriptor, bounds: &RequestBounds) -> Self {
        let RateLimitDescriptor { entries, limit, hits_addend, is_negative_hits } = message;
        let kept = entries.iter().take(bounds.entries);
        Self {
            entries: kept.map(|entry| Entry { key: &entry.key, value: &entry.value }).collect(),
            found: entries.len(),
            limit: *limit,
            hits: *hits_addend,
            is_negative: *is_negative_hits,
        }
    }

    /// Reads the fields of an encoded message.
    fn read(&mut self, message: &'a [u8], bounds: &RequestBounds) -> Result<(), RequestError> {
        let Self { entries, found, limit, hits, is_negative } = self;
        fields(message, |tag, wire_type, rest| {
            let context = DecodeContext::default();
            match tag {
                1 => {
                    *found += 1;
                    let entry = entry(bytes_of(wire_type, rest)?)?;
                    if *found <= bounds.entries {
                        entries.push(entry);
                    }
                }
                2 => {
                    let limit = limit.get_or_insert_default();
                    encoding::message::merge(wire_type, limit, rest, context)?
                }
                3 => encoding::message::merge(
                    wire_type,
                    hits.get_or_insert_default(),
                    rest,
                    context,
                )?,
                4 => encoding::bool::merge(wire_type, is_negative, rest, context)?,
                _ => skip_field(wire_type, tag, rest, context)?,
            }
            Ok(())
        })
    }

    /// Checks the fields of descriptor `number`, appends it to others, and returns the number of
    /// its entries.
    #[inline]
    fn append_to(
        self,
        descriptors: &mut SmallVec<[Descriptor<'a>; 2]>,
        number: usize,
        request_hits: u32,
        bounds: &RequestBounds,
    ) -> Result<usize, InvalidRequest> {
        let Self { entries, found, limit, hits, is_negative } = self;
        let allowed = bounds.entries;
        if found > allowed {
            return Err(InvalidRequest::Entries { descriptor: number, found, allowed });
        }
        let own_hits = hits.map(|found| {
            u32::try_from(found).map_err(|_| InvalidRequest::Hits { descriptor: number, found })
        });
        let own_hits = own_hits.transpose()?;
        let hits = own_hits.unwrap_or(request_hits.max(1));
        if is_negative && entries.last().is_some_and(|last| is_reserved(last.key)) {
            return Err(InvalidRequest::NegativeHold { descriptor: number });
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
