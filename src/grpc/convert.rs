//! Protobuf to request, decision to protobuf.
//!
//! Content that a proxy can forward never fails here, since proxies let pass what fails; only what no proxy sends does.

use std::fmt;

use prost_types::Duration;
use smallvec::SmallVec;

use super::headers::{self, HeaderStyle};
use super::proto::rate_limit_descriptor::RateLimitOverride;
use super::proto::rate_limit_response::rate_limit::Unit;
use super::proto::rate_limit_response::{Code, DescriptorStatus, RateLimit};
use super::proto::{RateLimitDescriptor, RateLimitRequest, RateLimitResponse};
use crate::algorithm::judge::Hits;
use crate::algorithm::quota::{MAX_PERIOD, Window};
use crate::algorithm::time::Micros;
use crate::algorithm::{Algorithm, Limit};
use crate::descriptor::{Descriptor, Entry, Override, Request};
use crate::limiter::{Decision, Standing, Status};

const SECOND: u64 = 1;
const MINUTE: u64 = 60;
const HOUR: u64 = 3_600;
const DAY: u64 = 86_400;

/// The units of the protocol, largest first, with their numbers on the wire and their seconds.
const UNITS: [(Unit, u64); 7] = [
    (Unit::Year, 365 * DAY),
    (Unit::Month, 30 * DAY),
    (Unit::Week, 7 * DAY),
    (Unit::Day, DAY),
    (Unit::Hour, HOUR),
    (Unit::Minute, MINUTE),
    (Unit::Second, SECOND),
];

/// How large a request may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestBounds {
    /// Descriptors in a request.
    pub descriptors: usize,
    /// Entries in a descriptor.
    pub entries: usize,
}

/// How an answer is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnswerStyle {
    /// Durations to the microsecond, for callers that do not truncate them to whole seconds.
    pub exact_durations: bool,
    /// Headers for the client at the far end.
    pub headers: HeaderStyle,
    /// Whether the request and the metadata of its rules are told to the proxy.
    pub dynamic_metadata: bool,
}

/// A request that no proxy sends.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the text of each variant says what its fields are")]
pub enum InvalidRequest {
    #[error("domain must not be empty")]
    NoDomain,
    #[error("descriptors must not be empty")]
    NoDescriptors,
    #[error("a request has at most {allowed} descriptors, found {found}")]
    Descriptors { found: usize, allowed: usize },
    #[error("a descriptor has at most {allowed} entries, found {found} in descriptor {descriptor}")]
    Entries { descriptor: usize, found: usize, allowed: usize },
    #[error("hits_addend must be at most 4294967295, found {found} in descriptor {descriptor}")]
    Hits { descriptor: usize, found: u64 },
    #[error(
        "limit.unit must be SECOND, MINUTE, HOUR, DAY, MONTH, YEAR or 7 (WEEK), found {found} in descriptor {descriptor}"
    )]
    Unit { descriptor: usize, found: i32 },
    #[error(
        "limit.unit_multiplier must give a period of at most {MAX_PERIOD}, found {found} in descriptor {descriptor}"
    )]
    Multiplier { descriptor: usize, found: u32 },
}

/// Reads a request. The result borrows from the message.
///
/// # Errors
/// [`InvalidRequest`], with what was found and where.
pub fn request<'a>(message: &'a RateLimitRequest, bounds: &RequestBounds) -> Result<Request<'a>, InvalidRequest> {
    if message.domain.is_empty() {
        return Err(InvalidRequest::NoDomain);
    }
    if message.descriptors.is_empty() {
        return Err(InvalidRequest::NoDescriptors);
    }
    let (found, allowed) = (message.descriptors.len(), bounds.descriptors);
    if found > allowed {
        return Err(InvalidRequest::Descriptors { found, allowed });
    }
    let descriptors = message.descriptors.iter().enumerate();
    let descriptors = descriptors.map(|(number, one)| descriptor(number, one, message.hits_addend, bounds));
    Ok(Request { domain: &message.domain, descriptors: descriptors.collect::<Result<SmallVec<_>, _>>()? })
}

fn descriptor<'a>(
    number: usize,
    message: &'a RateLimitDescriptor,
    request_hits: u32,
    bounds: &RequestBounds,
) -> Result<Descriptor<'a>, InvalidRequest> {
    let (found, allowed) = (message.entries.len(), bounds.entries);
    if found > allowed {
        return Err(InvalidRequest::Entries { descriptor: number, found, allowed });
    }
    let hits = match message.hits_addend {
        Some(found) => u32::try_from(found).map_err(|_| InvalidRequest::Hits { descriptor: number, found })?,
        None => request_hits.max(1),
    };
    Ok(Descriptor {
        entries: message.entries.iter().map(|entry| Entry { key: &entry.key, value: &entry.value }).collect(),
        hits: match (hits, message.is_negative_hits) {
            (hits, true) => Hits::Refund(hits),
            (0, false) => Hits::Peek,
            (hits, false) => Hits::Charge(hits),
        },
        limit: message.limit.as_ref().map(|limit| wanted(number, limit)).transpose()?,
    })
}

fn wanted(number: usize, message: &RateLimitOverride) -> Result<Override, InvalidRequest> {
    // The protocol's enumeration for overrides has no WEEK; envoyproxy/ratelimit takes the response's number for it.
    let unit = Unit::try_from(message.unit).ok().and_then(|unit| UNITS.iter().find(|(known, _)| *known == unit));
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

/// Writes an answer, but for its metadata: that is of the request too.
pub fn response(decision: &Decision<'_>, style: &AnswerStyle) -> RateLimitResponse {
    let statuses: Vec<_> = decision.statuses().iter().map(|one| status(one, style)).collect();
    RateLimitResponse {
        overall_code: code(decision.is_over_limit()).into(),
        response_headers_to_add: headers::of(decision.statuses(), &statuses, &style.headers),
        statuses,
        ..Default::default()
    }
}

fn status(status: &Status<'_>, style: &AnswerStyle) -> DescriptorStatus {
    let waiting = status.retry_after().or_else(|| status.reset_after());
    let remaining = match status.standing() {
        Standing::Unlimited => u32::MAX, // as envoyproxy/ratelimit answers
        Standing::NoLimit
        | Standing::Allowed
        | Standing::Denied
        | Standing::ShadowDenied
        | Standing::PresumedAllowed
        | Standing::PresumedDenied => u32::try_from(status.remaining().unwrap_or_default()).unwrap_or(u32::MAX),
    };
    DescriptorStatus {
        code: code(status.is_over_limit()).into(),
        current_limit: status.limit().map(|(limit, window)| current_limit(limit, window, status)),
        limit_remaining: remaining,
        duration_until_reset: waiting.map(|waiting| duration(waiting, style)),
        quota: None,
    }
}

fn code(is_over_limit: bool) -> Code {
    if is_over_limit { Code::OverLimit } else { Code::Ok }
}

/// The limit in the protocol's words: the largest unit that divides its period, and how many of it.
fn current_limit(limit: &Limit, window: &Window, status: &Status<'_>) -> RateLimit {
    let period = window.period().get();
    let unit = UNITS.iter().find_map(|(unit, seconds)| {
        let unit_us = Micros::from_secs(*seconds).get();
        let multiplier = period.checked_div(unit_us).filter(|_| period.checked_rem(unit_us) == Some(0))?;
        Some((*unit, u32::try_from(multiplier).ok()?))
    });
    let (unit, multiplier) = unit.unwrap_or((Unit::Unknown, 1));
    let name = status.rule().and_then(|rule| rule.name());
    RateLimit {
        name: match name {
            Some(name) => unquoted(name),
            None if unit == Unit::Unknown || has_burst(limit) => InWords(limit, window).to_string(),
            None => String::new(),
        },
        requests_per_unit: window.limit(),
        unit: unit.into(),
        unit_multiplier: (multiplier > 1).then_some(multiplier),
    }
}

/// Envoy writes the name between quotes and escapes nothing.
fn unquoted(name: &str) -> String {
    name.chars().map(|c| if c == '"' || c == '\\' || c.is_control() { '\'' } else { c }).collect()
}

fn has_burst(limit: &Limit) -> bool {
    match limit.algorithm() {
        Algorithm::Gcra(gcra) => limit.windows().iter().all(|window| window.limit() != gcra.burst()),
        Algorithm::FixedWindow(_) | Algorithm::SlidingWindow(_) | Algorithm::SlidingLog(_) => false,
    }
}

/// What units cannot say, `5 per 250ms` or `100 per 1m burst 20`.
struct InWords<'a>(&'a Limit, &'a Window);

impl fmt::Display for InWords<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} per {}", self.1.limit(), self.1.period())?;
        match self.0.algorithm() {
            Algorithm::Gcra(gcra) if has_burst(self.0) => write!(f, " burst {}", gcra.burst()),
            Algorithm::Gcra(_) | Algorithm::FixedWindow(_) | Algorithm::SlidingWindow(_) | Algorithm::SlidingLog(_) => {
                Ok(())
            }
        }
    }
}

/// Whole seconds, rounded up since proxies truncate, or exactly.
fn duration(length: Micros, style: &AnswerStyle) -> Duration {
    /// The longest that protobuf's type holds, 10,000 years.
    const LONGEST: i64 = 315_576_000_000;
    let seconds = |seconds: u64| i64::try_from(seconds).map_or(LONGEST, |seconds| seconds.min(LONGEST));
    if !style.exact_durations {
        return Duration { seconds: seconds(length.as_secs_ceil()), nanos: 0 };
    }
    let exact = std::time::Duration::from(length);
    Duration { seconds: seconds(exact.as_secs()), nanos: i32::try_from(exact.subsec_nanos()).unwrap_or_default() }
}
