//! Comparison of two responses to one request, field by field.

use crate::cli::output::seconds_text;
use crate::grpc::json;
use crate::grpc::proto::RateLimitResponse;
use crate::grpc::proto::rate_limit_response::{Code, DescriptorStatus};

/// The response of a call, or its error: code and message.
pub(super) type CallResult = Result<RateLimitResponse, String>;

/// A field in which two responses differ.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FieldDifference {
    /// Index of the descriptor; `None` for a field of the whole response.
    pub(super) descriptor: Option<usize>,
    /// Name of the field in the protocol.
    pub(super) field: &'static str,
    pub(super) old: String,
    pub(super) new: String,
}

/// Compares two responses. Times may differ by one second. For a `peek`, whose result depends on
/// earlier hits, only the limit that applies is compared.
pub(super) fn differences(old: &CallResult, new: &CallResult, peek: bool) -> Vec<FieldDifference> {
    let mut list = List(Vec::new());
    match (old, new) {
        (Ok(old), Ok(new)) => responses(old, new, peek, &mut list),
        (old, new) => {
            let text = |result: &CallResult| match result {
                Ok(response) => code(response.overall_code),
                Err(error) => error.clone(),
            };
            let is_same =
                matches!((old, new), (Err(old), Err(new)) if code_of(old) == code_of(new));
            list.add(None, "error", text(old), text(new), is_same);
        }
    }
    list.0
}

/// Returns the code of an error without its text, which differs between the services.
fn code_of(error: &str) -> &str {
    error.split(':').next().unwrap_or_default()
}

struct List(Vec<FieldDifference>);

impl List {
    fn add(
        &mut self,
        descriptor: Option<usize>,
        field: &'static str,
        old: String,
        new: String,
        is_same: bool,
    ) {
        if !is_same {
            self.0.push(FieldDifference { descriptor, field, old, new });
        }
    }

    fn compare(
        &mut self,
        descriptor: Option<usize>,
        field: &'static str,
        old: String,
        new: String,
    ) {
        let is_same = old == new;
        self.add(descriptor, field, old, new, is_same);
    }
}

fn responses(old: &RateLimitResponse, new: &RateLimitResponse, peek: bool, list: &mut List) {
    if !peek {
        list.compare(None, "overall_code", code(old.overall_code), code(new.overall_code));
        let is_same = headers(old).len() == headers(new).len()
            && headers(old).iter().zip(headers(new)).all(|(old, new)| is_similar(old, &new));
        list.add(
            None,
            "response_headers_to_add",
            text(&headers(old)),
            text(&headers(new)),
            is_same,
        );
        list.compare(None, "dynamic_metadata", metadata(old), metadata(new));
    }
    list.compare(None, "statuses", old.statuses.len().to_string(), new.statuses.len().to_string());
    for (index, (old, new)) in old.statuses.iter().zip(&new.statuses).enumerate() {
        statuses(index, old, new, peek, list);
    }
}

fn statuses(
    index: usize,
    old: &DescriptorStatus,
    new: &DescriptorStatus,
    peek: bool,
    list: &mut List,
) {
    list.compare(Some(index), "current_limit", limit(old), limit(new));
    if !peek {
        list.compare(Some(index), "code", code(old.code), code(new.code));
        let remaining = |status: &DescriptorStatus| status.limit_remaining.to_string();
        list.compare(Some(index), "limit_remaining", remaining(old), remaining(new));
    }
    let seconds = |status: &DescriptorStatus| {
        status.duration_until_reset.as_ref().map(|length| length.seconds)
    };
    let is_same = match (seconds(old), seconds(new)) {
        (Some(old), Some(new)) => old.abs_diff(new) <= 1,
        (old, new) => old == new,
    };
    let text = |seconds: Option<i64>| seconds.map_or_else(|| "none".to_owned(), seconds_text);
    list.add(Some(index), "duration_until_reset", text(seconds(old)), text(seconds(new)), is_same);
}

fn limit(status: &DescriptorStatus) -> String {
    match &status.current_limit {
        Some(limit) => {
            let name =
                if limit.name.is_empty() { String::new() } else { format!(" ({})", limit.name) };
            let multiplier =
                limit.unit_multiplier.map(|times| format!("{times} ")).unwrap_or_default();
            format!(
                "{} per {multiplier}{}{name}",
                limit.requests_per_unit,
                limit.unit().as_str_name()
            )
        }
        None if status.limit_remaining == u32::MAX => "unlimited".to_owned(),
        None => "none".to_owned(),
    }
}

fn code(number: i32) -> String {
    Code::try_from(number).map_or_else(|_| number.to_string(), |code| code.as_str_name().to_owned())
}

/// Returns the name and value of each header, in order.
fn headers(response: &RateLimitResponse) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let headers = response.response_headers_to_add.iter();
    headers.map(|header| (text(header.key.as_bytes()), text(header.value.as_bytes()))).collect()
}

fn text(headers: &[(String, String)]) -> String {
    headers.iter().map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>().join(", ")
}

/// Returns `true` if two headers match. A value may be a time in seconds, so numbers may differ by
/// one; a different count is detected from the count itself.
fn is_similar((name, value): &(String, String), (other_name, other): &(String, String)) -> bool {
    let number = |text: &str| text.parse::<i64>().ok();
    let is_near =
        number(value).zip(number(other)).is_some_and(|(one, other)| one.abs_diff(other) <= 1);
    name.eq_ignore_ascii_case(other_name) && (value == other || is_near)
}

fn metadata(response: &RateLimitResponse) -> String {
    let json = json::response_of(response).ok();
    json.and_then(|json| json.get("dynamicMetadata").map(ToString::to_string))
        .unwrap_or_else(|| "none".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grpc::proto::rate_limit_response::RateLimit;
    use crate::grpc::proto::rate_limit_response::rate_limit::Unit;

    fn response(requests_per_unit: u32, limit_remaining: u32) -> CallResult {
        let limit = RateLimit { requests_per_unit, unit: Unit::Hour.into(), ..Default::default() };
        let status =
            DescriptorStatus { current_limit: Some(limit), limit_remaining, ..Default::default() };
        Ok(RateLimitResponse { statuses: vec![status], ..Default::default() })
    }

    fn fields(old: &CallResult, new: &CallResult, peek: bool) -> Vec<String> {
        let line = |found: FieldDifference| {
            format!("{:?} {} {} {}", found.descriptor, found.field, found.old, found.new)
        };
        differences(old, new, peek).into_iter().map(line).collect()
    }

    #[test]
    fn each_field_that_differs_is_named_with_both_values() {
        assert!(fields(&response(5, 4), &response(5, 4), false).is_empty());
        assert_eq!(
            fields(&response(5, 4), &response(5, 3), false),
            ["Some(0) limit_remaining 4 3"]
        );
        let both = ["Some(0) current_limit 5 per HOUR 6 per HOUR", "Some(0) limit_remaining 4 5"];
        assert_eq!(fields(&response(5, 4), &response(6, 5), false), both);
    }

    #[test]
    fn times_until_a_reset_are_readable_and_may_differ_by_a_second() {
        let resets_in = |seconds| {
            let mut response = response(5, 4).unwrap();
            response.statuses[0].duration_until_reset =
                Some(prost_types::Duration { seconds, nanos: 0 });
            Ok(response)
        };
        assert!(fields(&resets_in(60), &resets_in(61), false).is_empty());
        assert_eq!(
            fields(&resets_in(3_661), &resets_in(60), false),
            ["Some(0) duration_until_reset 1h 1m 1s 1m"]
        );
    }

    #[test]
    fn a_peek_is_compared_by_its_limit_alone() {
        assert!(fields(&response(5, 4), &response(5, 0), true).is_empty());
        assert_eq!(fields(&response(5, 4), &response(6, 4), true).len(), 1);
    }

    #[test]
    fn errors_are_compared_by_their_codes() {
        let unknown = Err("Unknown: a".to_owned());
        let invalid = Err("InvalidArgument: b".to_owned());
        assert!(fields(&unknown, &Err("Unknown: other".to_owned()), false).is_empty());
        assert_eq!(fields(&unknown, &invalid, false), ["None error Unknown: a InvalidArgument: b"]);
        assert_eq!(fields(&unknown, &response(1, 1), false), ["None error Unknown: a UNKNOWN"]);
    }
}
