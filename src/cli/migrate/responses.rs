//! Comparison of two responses to one request, field by field.

use jiff::SignedDuration;

use crate::grpc::client::ClientError;
use crate::grpc::json;
use crate::grpc::proto::rate_limit_response::{Code, DescriptorStatus};
use crate::grpc::proto::{HeaderValue, RateLimitResponse};

/// The result of a call: a response, or the error that the service returned.
pub(super) type CallResult = Result<RateLimitResponse, ClientError>;

/// The kind of requests that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ComparedCalls {
    /// Requests as they are.
    Charging,
    /// Requests with 0 hits, whose result depends on earlier hits: only the limits that apply are
    /// compared.
    Peeks,
}

/// A field in which two responses differ.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FieldDifference {
    /// Index of the descriptor; `None` for a field of the whole response.
    pub(super) descriptor: Option<usize>,
    /// Name of the field in the protocol.
    pub(super) field: &'static str,
    /// Value in the first response.
    pub(super) old: String,
    /// Value in the second response.
    pub(super) new: String,
}

/// Compares two responses. Times may differ by one second.
pub(super) fn differences(
    old: &CallResult,
    new: &CallResult,
    calls: ComparedCalls,
) -> Vec<FieldDifference> {
    let mut list = DifferenceList { descriptor: None, calls, found: Vec::new() };
    match (old, new) {
        (Ok(old), Ok(new)) => list.responses(old, new),
        (Err(ClientError::Answer(old)), Err(ClientError::Answer(new)))
            if old.code() == new.code() => {}
        (old, new) => list.push("error", result_text(old), result_text(new)),
    }
    list.found
}

/// Returns the text of a result beside one that is an error.
fn result_text(result: &CallResult) -> String {
    match result {
        Ok(response) => code_text(response.overall_code),
        Err(error) => error.to_string(),
    }
}

struct DifferenceList {
    /// Index of the descriptor that is compared.
    descriptor: Option<usize>,
    calls: ComparedCalls,
    found: Vec<FieldDifference>,
}

impl DifferenceList {
    fn push(&mut self, field: &'static str, old: String, new: String) {
        let descriptor = self.descriptor;
        self.found.push(FieldDifference { descriptor, field, old, new });
    }

    fn compare(&mut self, field: &'static str, old: impl ToString, new: impl ToString) {
        let old = old.to_string();
        let new = new.to_string();
        if old != new {
            self.push(field, old, new);
        }
    }

    fn responses(&mut self, old: &RateLimitResponse, new: &RateLimitResponse) {
        if self.calls == ComparedCalls::Charging {
            self.compare("overall_code", code_text(old.overall_code), code_text(new.overall_code));
            self.headers(&old.response_headers_to_add, &new.response_headers_to_add);
            self.compare("dynamic_metadata", metadata_text(old), metadata_text(new));
        }
        self.compare("statuses", old.statuses.len(), new.statuses.len());
        for (index, (old, new)) in old.statuses.iter().zip(&new.statuses).enumerate() {
            self.descriptor = Some(index);
            self.statuses(old, new);
        }
    }

    fn headers(&mut self, old: &[HeaderValue], new: &[HeaderValue]) {
        let is_same =
            old.len() == new.len() && old.iter().zip(new).all(|(old, new)| is_similar(old, new));
        if !is_same {
            self.push("response_headers_to_add", headers_text(old), headers_text(new));
        }
    }

    fn statuses(&mut self, old: &DescriptorStatus, new: &DescriptorStatus) {
        self.compare("current_limit", limit_text(old), limit_text(new));
        if self.calls == ComparedCalls::Charging {
            self.compare("code", code_text(old.code), code_text(new.code));
            self.compare("limit_remaining", old.limit_remaining, new.limit_remaining);
        }
        let [old, new] = [old, new]
            .map(|status| status.duration_until_reset.as_ref().map(|length| length.seconds));
        let is_same = match (old, new) {
            (Some(old), Some(new)) => old.abs_diff(new) <= 1,
            (old, new) => old == new,
        };
        if !is_same {
            self.push("duration_until_reset", reset_text(old), reset_text(new));
        }
    }
}

/// Returns the name of a code, or its number if it has none.
fn code_text(number: i32) -> String {
    Code::try_from(number).map_or(number.to_string(), |code| code.as_str_name().to_owned())
}

fn metadata_text(response: &RateLimitResponse) -> String {
    let json = json::response_of(response).ok();
    json.and_then(|json| Some(json.get("dynamicMetadata")?.to_string())).unwrap_or_else(none)
}

fn limit_text(status: &DescriptorStatus) -> String {
    match &status.current_limit {
        Some(limit) => {
            let name = if limit.name.is_empty() { "" } else { &format!(" ({})", limit.name) };
            let multiplier = limit.unit_multiplier.map(|times| format!("{times} "));
            let multiplier = multiplier.unwrap_or_default();
            let unit = limit.unit().as_str_name();
            format!("{} per {multiplier}{unit}{name}", limit.requests_per_unit)
        }
        None if status.limit_remaining == u32::MAX => "unlimited".to_owned(),
        None => none(),
    }
}

fn reset_text(seconds: Option<i64>) -> String {
    seconds.map_or_else(none, |seconds| format!("{:#}", SignedDuration::from_secs(seconds)))
}

/// Returns the text for a field that is not set.
fn none() -> String {
    "none".to_owned()
}

fn headers_text(headers: &[HeaderValue]) -> String {
    let lines = headers.iter().map(|header| format!("{}: {}", header.key, header.value));
    lines.collect::<Vec<_>>().join(", ")
}

/// Returns `true` if two headers match. A value may be a time in seconds, so numbers may differ by
/// one; a different count is detected from the count itself.
fn is_similar(one: &HeaderValue, other: &HeaderValue) -> bool {
    let is_near = match (one.value.parse::<i64>(), other.value.parse::<i64>()) {
        (Ok(one), Ok(other)) => one.abs_diff(other) <= 1,
        (_, _) => false,
    };
    one.key.eq_ignore_ascii_case(&other.key) && (one.value == other.value || is_near)
}

#[cfg(test)]
mod tests {
    use tonic::{Code, Status};

    use super::*;
    use crate::grpc::proto::rate_limit_response::{RateLimit, rate_limit};

    const CHARGING: ComparedCalls = ComparedCalls::Charging;

    fn response(requests_per_unit: u32, limit_remaining: u32) -> CallResult {
        let unit = rate_limit::Unit::Hour.into();
        let current_limit = Some(RateLimit { requests_per_unit, unit, ..Default::default() });
        let status = DescriptorStatus { current_limit, limit_remaining, ..Default::default() };
        Ok(RateLimitResponse { statuses: vec![status], ..Default::default() })
    }

    fn error(code: Code, message: &str) -> CallResult {
        Err(Status::new(code, message).into())
    }

    fn fields(old: &CallResult, new: &CallResult, calls: ComparedCalls) -> Vec<String> {
        let line = |found: FieldDifference| {
            format!("{:?} {} {} {}", found.descriptor, found.field, found.old, found.new)
        };
        differences(old, new, calls).into_iter().map(line).collect()
    }

    #[test]
    fn each_field_that_differs_is_named_with_both_values() {
        assert!(fields(&response(5, 4), &response(5, 4), CHARGING).is_empty());
        let one = fields(&response(5, 4), &response(5, 3), CHARGING);
        assert_eq!(one, ["Some(0) limit_remaining 4 3"]);
        let both = ["Some(0) current_limit 5 per HOUR 6 per HOUR", "Some(0) limit_remaining 4 5"];
        assert_eq!(fields(&response(5, 4), &response(6, 5), CHARGING), both);
    }

    #[test]
    fn times_until_a_reset_are_readable_and_may_differ_by_a_second() {
        let resets_in = |seconds| {
            let mut response = response(5, 4).unwrap();
            let reset = prost_types::Duration { seconds, nanos: 0 };
            response.statuses[0].duration_until_reset = Some(reset);
            Ok(response)
        };
        assert!(fields(&resets_in(60), &resets_in(61), CHARGING).is_empty());
        let apart = fields(&resets_in(3_661), &resets_in(60), CHARGING);
        assert_eq!(apart, ["Some(0) duration_until_reset 1h 1m 1s 1m"]);
    }

    #[test]
    fn a_peek_is_compared_by_its_limit_alone() {
        assert!(fields(&response(5, 4), &response(5, 0), ComparedCalls::Peeks).is_empty());
        assert_eq!(fields(&response(5, 4), &response(6, 4), ComparedCalls::Peeks).len(), 1);
    }

    #[test]
    fn errors_are_compared_by_their_codes() {
        let unknown = error(Code::Unknown, "a");
        let invalid = error(Code::InvalidArgument, "b");
        assert!(fields(&unknown, &error(Code::Unknown, "other"), CHARGING).is_empty());
        let codes = fields(&unknown, &invalid, CHARGING);
        assert_eq!(codes, ["None error Unknown: a InvalidArgument: b"]);
        assert_eq!(fields(&unknown, &response(1, 1), CHARGING), ["None error Unknown: a UNKNOWN"]);
    }
}
