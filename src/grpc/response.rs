//! Encoding of a decision as a protobuf message.

use std::fmt;

use prost::encoding;
use prost_types::Duration;

use super::headers::{self, HeaderStyle};
use super::proto::HeaderValue;
use super::proto::rate_limit_response::rate_limit::Unit;
use super::proto::rate_limit_response::{Code, DescriptorStatus, RateLimit};
use super::status_encoding;
use super::units::UNITS;
use crate::algorithm::time::Micros;
use crate::limiter::{AppliedLimit, CallerWait, Decision, Status, StatusKind};

/// Options for encoding responses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnswerStyle {
    /// Sends durations in microseconds, for callers that do not truncate them to whole seconds.
    pub exact_durations: bool,
    /// Rate limit headers for the downstream client.
    pub headers: HeaderStyle,
    /// Sends the request and the metadata of its rules to the proxy.
    pub dynamic_metadata: bool,
}

/// The receiver of an answer, on which some of its numbers depend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Receiver {
    /// A proxy: no hits remain if over limit, as the lowest number is what it shows, and no wait
    /// is absent, which it would show as zero.
    #[default]
    Proxy,
    /// Others: what remains if over limit, so that they can take fewer hits, and no wait that is
    /// never over.
    Caller,
}

/// Appends an encoded `RateLimitResponse` without its metadata, which also depends on the request.
/// The headers are those that a proxy receives, since they are for its client.
pub fn write(
    decision: &Decision<'_>,
    style: &AnswerStyle,
    receiver: Receiver,
    answer: &mut Vec<u8>,
) {
    encoding::int32::encode(1, &code(decision.is_over_limit()).into(), answer);
    // One at a time, since a list of them would be another copy.
    for one in decision.statuses() {
        status_encoding::append(2, &status(decision, one, style, receiver), answer);
    }
    for header in headers(decision, style) {
        encoding::message::encode(3, &header, answer);
    }
}

/// Returns the rate limit headers of a decision, as a proxy receives them.
pub(super) fn headers(decision: &Decision<'_>, style: &AnswerStyle) -> Vec<HeaderValue> {
    if style.headers == HeaderStyle::default() {
        return Vec::new();
    }
    let statuses = decision.statuses().iter();
    let statuses: Vec<_> =
        statuses.map(|one| status(decision, one, style, Receiver::Proxy)).collect();
    headers::of(decision, &statuses, &style.headers)
}

/// Returns `Retry-After` of a denial in seconds, rounded up; 1 if it is unknown, `None` if the
/// request is never admitted.
pub(super) fn retry_seconds(decision: &Decision<'_>) -> Option<u64> {
    match decision.retry() {
        CallerWait::For(time) => Some(time.as_secs_ceil().max(1)),
        CallerWait::Unknown => Some(1),
        CallerWait::Never(_) => None,
    }
}

/// Appends the metadata.
pub(super) fn write_metadata(metadata: &prost_types::Struct, answer: &mut Vec<u8>) {
    encoding::message::encode(6, metadata, answer);
}

fn status(
    decision: &Decision<'_>,
    status: &Status<'_>,
    style: &AnswerStyle,
    receiver: Receiver,
) -> DescriptorStatus {
    let waiting = match (decision.wait_of(status), receiver) {
        (Some(CallerWait::For(time)), _) => Some(time),
        (Some(CallerWait::Never(hint)), Receiver::Proxy) => hint,
        (Some(CallerWait::Never(_)), Receiver::Caller) | (Some(CallerWait::Unknown) | None, _) => {
            None
        }
    };
    let left = match receiver {
        Receiver::Proxy => status.remaining(),
        Receiver::Caller => status.left(),
    };
    let remaining = match status.kind() {
        StatusKind::Unlimited => u32::MAX, // as envoyproxy/ratelimit answers
        StatusKind::NoLimit
        | StatusKind::Allowed
        | StatusKind::Denied
        | StatusKind::ShadowDenied
        | StatusKind::PresumedAllowed
        | StatusKind::PresumedDenied => u32::try_from(left.unwrap_or_default()).unwrap_or(u32::MAX),
    };
    DescriptorStatus {
        code: code(status.is_over_limit()).into(),
        current_limit: status.limit().map(|applied| current_limit(applied, status)),
        limit_remaining: remaining,
        duration_until_reset: waiting.map(|waiting| duration(waiting, style)),
        quota: None,
    }
}

fn code(is_over_limit: bool) -> Code {
    if is_over_limit { Code::OverLimit } else { Code::Ok }
}

/// Returns the limit in the protocol's terms: the largest unit that divides its period, and the
/// multiplier.
fn current_limit(applied: AppliedLimit<'_>, status: &Status<'_>) -> RateLimit {
    let unit = UNITS.iter().find_map(|(unit, seconds)| {
        let period = applied.period?.get();
        let unit_us = Micros::from_secs(*seconds).get();
        let multiplier = period.is_multiple_of(unit_us).then_some(period / unit_us)?;
        Some((*unit, u32::try_from(multiplier).ok()?))
    });
    let (unit, multiplier) = unit.unwrap_or((Unit::Unknown, 1));
    let name = status.rule().and_then(|rule| rule.name());
    RateLimit {
        name: match name {
            Some(name) => unquoted(name),
            None if unit == Unit::Unknown || applied.limit.distinct_burst().is_some() => {
                InWords(applied).to_string()
            }
            None => String::new(),
        },
        requests_per_unit: applied.amount,
        unit: unit.into(),
        unit_multiplier: (multiplier > 1).then_some(multiplier),
    }
}

/// Replaces quotes, backslashes and control characters: Envoy quotes the name without escaping.
fn unquoted(name: &str) -> String {
    name.chars().map(|c| if c == '"' || c == '\\' || c.is_control() { '\'' } else { c }).collect()
}

/// A limit that units cannot express, such as `5 per 250ms` or `100 per 1m burst 20`.
struct InWords<'a>(AppliedLimit<'a>);

impl fmt::Display for InWords<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        self.0.limit.distinct_burst().map_or(Ok(()), |burst| write!(f, " burst {burst}"))
    }
}

/// Converts to whole seconds, rounded up since proxies truncate, or exactly.
fn duration(length: Micros, style: &AnswerStyle) -> Duration {
    if !style.exact_durations {
        return Duration { seconds: seconds(length.as_secs_ceil()), nanos: 0 };
    }
    let exact = std::time::Duration::from(length);
    Duration {
        seconds: seconds(exact.as_secs()),
        nanos: i32::try_from(exact.subsec_nanos()).unwrap_or_default(),
    }
}

/// Returns seconds as protobuf's duration has them, which is at most 10,000 years.
fn seconds(seconds: u64) -> i64 {
    const LONGEST: i64 = 315_576_000_000;
    i64::try_from(seconds).map_or(LONGEST, |seconds| seconds.min(LONGEST))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::algorithm::gcra::Gcra;
    use crate::algorithm::quota::Window;
    use crate::algorithm::{Algorithm, Charge, Limit, OnStoreError};

    fn rate(amount: u32, period: Micros, burst: Option<u32>) -> Limit {
        let gcra = Gcra::new(Window::new(amount, period).unwrap(), burst, None).unwrap();
        Limit::new(Algorithm::Gcra(gcra), Charge::Admitted, OnStoreError::Error).unwrap()
    }

    #[test]
    fn the_burst_is_reported_if_it_differs_from_the_amount_except_for_bans() {
        let minute = Micros::from_secs(60);
        let short = Micros::new(250_000);
        for (limit, words, is_shown) in [
            (rate(100, minute, Some(20)), "100 per 1m burst 20", true),
            (rate(100, minute, None), "100 per 1m", false),
            (rate(0, minute, None), "0 per 1m", false),
            (rate(0, minute, Some(20)), "0 per 1m", false),
            (rate(0, short, None), "0 per 250ms", false),
        ] {
            let [window] = limit.windows() else { panic!("one window") };
            let period = Some(window.period());
            let applied = AppliedLimit { limit: &limit, amount: window.limit(), period };
            assert_eq!(
                (InWords(applied).to_string().as_str(), limit.distinct_burst().is_some()),
                (words, is_shown)
            );
        }
    }
}
