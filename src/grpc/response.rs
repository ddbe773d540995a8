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
use crate::limiter::{AppliedLimit, Decision, Status, StatusKind};

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

/// The remaining hits of a status: [`Status::remaining`], 0 if over limit, or [`Status::left`].
type Remaining<'a> = fn(&Status<'a>) -> Option<u64>;

/// Appends an encoded `RateLimitResponse` without its metadata, which also depends on the request.
pub fn write(decision: &Decision<'_>, style: &AnswerStyle, answer: &mut Vec<u8>) {
    write_with(decision, style, Status::remaining, answer);
}

/// Appends the same for an operation on a hold: a denied caller also receives the hits that remain,
/// so that it can reserve fewer.
pub(super) fn write_hold(decision: &Decision<'_>, style: &AnswerStyle, answer: &mut Vec<u8>) {
    write_with(decision, style, Status::left, answer);
}

/// Appends the same for a caller that is no proxy: a denied one also receives the hits that remain,
/// so that it can take fewer. The headers are those that a proxy receives.
pub(super) fn write_to_caller(decision: &Decision<'_>, style: &AnswerStyle, answer: &mut Vec<u8>) {
    write_statuses(decision, style, Status::left, answer);
    for header in headers(decision, style) {
        encoding::message::encode(3, &header, answer);
    }
}

/// Returns the rate limit headers of a decision, as a proxy receives them.
pub(super) fn headers(decision: &Decision<'_>, style: &AnswerStyle) -> Vec<HeaderValue> {
    headers_with(decision, style, Status::remaining)
}

/// Returns `Retry-After` of a denial in seconds, rounded up; 1 if it is unknown.
pub(super) fn retry_seconds(decision: &Decision<'_>) -> u64 {
    decision.retry_after().map_or(1, Micros::as_secs_ceil).max(1)
}

/// Statuses are encoded one at a time, since a list of them would be another copy.
fn write_with<'a>(
    decision: &Decision<'a>,
    style: &AnswerStyle,
    remaining: Remaining<'a>,
    answer: &mut Vec<u8>,
) {
    write_statuses(decision, style, remaining, answer);
    if style.headers != HeaderStyle::default() {
        for header in headers_with(decision, style, remaining) {
            encoding::message::encode(3, &header, answer);
        }
    }
}

fn write_statuses<'a>(
    decision: &Decision<'a>,
    style: &AnswerStyle,
    remaining: Remaining<'a>,
    answer: &mut Vec<u8>,
) {
    encoding::int32::encode(1, &code(decision.is_over_limit()).into(), answer);
    for one in decision.statuses() {
        status_encoding::append(2, &status(one, style, remaining), answer);
    }
}

fn headers_with<'a>(
    decision: &Decision<'a>,
    style: &AnswerStyle,
    remaining: Remaining<'a>,
) -> Vec<HeaderValue> {
    if style.headers == HeaderStyle::default() {
        return Vec::new();
    }
    let statuses: Vec<_> =
        decision.statuses().iter().map(|one| status(one, style, remaining)).collect();
    headers::of(decision.statuses(), &statuses, &style.headers)
}

/// Appends the metadata.
pub(super) fn write_metadata(metadata: &prost_types::Struct, answer: &mut Vec<u8>) {
    encoding::message::encode(6, metadata, answer);
}

fn status<'a>(
    status: &Status<'a>,
    style: &AnswerStyle,
    remaining: Remaining<'a>,
) -> DescriptorStatus {
    let waiting = status.wait_hint();
    let remaining = match status.kind() {
        StatusKind::Unlimited => u32::MAX, // as envoyproxy/ratelimit answers
        StatusKind::NoLimit
        | StatusKind::Allowed
        | StatusKind::Denied
        | StatusKind::ShadowDenied
        | StatusKind::PresumedAllowed
        | StatusKind::PresumedDenied => {
            u32::try_from(remaining(status).unwrap_or_default()).unwrap_or(u32::MAX)
        }
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
