//! Comparison of two responses to one request, field by field.

use crate::grpc::json;
use crate::grpc::proto::RateLimitResponse;
use crate::grpc::proto::rate_limit_response::{Code, DescriptorStatus};

/// A response, or the error instead of one: its code and its text.
pub(super) type ComparedAnswer = Result<RateLimitResponse, String>;

/// A field in which two responses differ.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct AnswerDifference {
    /// Index of the descriptor; `None` for a field of the whole response.
    pub(super) descriptor: Option<usize>,
    /// Name of the field in the protocol.
    pub(super) field: &'static str,
    pub(super) there: String,
    pub(super) here: String,
}

/// Compares two responses. Times may differ by one second. For a `peek`, whose result depends on
/// earlier hits, only the limit that applies is compared.
pub(super) fn differences(there: &ComparedAnswer, here: &ComparedAnswer, peek: bool) -> Vec<AnswerDifference> {
    let mut list = List(Vec::new());
    match (there, here) {
        (Ok(there), Ok(here)) => responses(there, here, peek, &mut list),
        (there, here) => {
            let text = |answer: &ComparedAnswer| match answer {
                Ok(response) => code(response.overall_code),
                Err(error) => error.clone(),
            };
            let is_same = matches!((there, here), (Err(there), Err(here)) if code_of(there) == code_of(here));
            list.add(None, "error", text(there), text(here), is_same);
        }
    }
    list.0
}

/// Returns the code of an error without its text, which differs between the services.
fn code_of(error: &str) -> &str {
    error.split(':').next().unwrap_or_default()
}

struct List(Vec<AnswerDifference>);

impl List {
    fn add(&mut self, descriptor: Option<usize>, field: &'static str, there: String, here: String, is_same: bool) {
        if !is_same {
            self.0.push(AnswerDifference { descriptor, field, there, here });
        }
    }

    fn compare(&mut self, descriptor: Option<usize>, field: &'static str, there: String, here: String) {
        let is_same = there == here;
        self.add(descriptor, field, there, here, is_same);
    }
}

fn responses(there: &RateLimitResponse, here: &RateLimitResponse, peek: bool, list: &mut List) {
    if !peek {
        list.compare(None, "overall_code", code(there.overall_code), code(here.overall_code));
        let is_same = headers(there).len() == headers(here).len()
            && headers(there).iter().zip(headers(here)).all(|(there, here)| is_alike(there, &here));
        list.add(None, "response_headers_to_add", text(&headers(there)), text(&headers(here)), is_same);
        list.compare(None, "dynamic_metadata", metadata(there), metadata(here));
    }
    list.compare(None, "statuses", there.statuses.len().to_string(), here.statuses.len().to_string());
    for (index, (there, here)) in there.statuses.iter().zip(&here.statuses).enumerate() {
        statuses(index, there, here, peek, list);
    }
}

fn statuses(index: usize, there: &DescriptorStatus, here: &DescriptorStatus, peek: bool, list: &mut List) {
    list.compare(Some(index), "current_limit", limit(there), limit(here));
    if !peek {
        list.compare(Some(index), "code", code(there.code), code(here.code));
        let left = |status: &DescriptorStatus| status.limit_remaining.to_string();
        list.compare(Some(index), "limit_remaining", left(there), left(here));
    }
    let seconds = |status: &DescriptorStatus| status.duration_until_reset.as_ref().map(|length| length.seconds);
    let is_same = match (seconds(there), seconds(here)) {
        (Some(there), Some(here)) => there.abs_diff(here) <= 1,
        (there, here) => there == here,
    };
    let text = |seconds: Option<i64>| seconds.map_or_else(|| "none".to_owned(), |seconds| format!("{seconds}s"));
    list.add(Some(index), "duration_until_reset", text(seconds(there)), text(seconds(here)), is_same);
}

fn limit(status: &DescriptorStatus) -> String {
    match &status.current_limit {
        Some(limit) => {
            let name = if limit.name.is_empty() { String::new() } else { format!(" ({})", limit.name) };
            let multiplier = limit.unit_multiplier.map(|times| format!("{times} ")).unwrap_or_default();
            format!("{} per {multiplier}{}{name}", limit.requests_per_unit, limit.unit().as_str_name())
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
fn is_alike((name, value): &(String, String), (other_name, other): &(String, String)) -> bool {
    let number = |text: &str| text.parse::<i64>().ok();
    let is_near = number(value).zip(number(other)).is_some_and(|(one, other)| one.abs_diff(other) <= 1);
    name.eq_ignore_ascii_case(other_name) && (value == other || is_near)
}

fn metadata(response: &RateLimitResponse) -> String {
    let json = json::response_of(response).ok();
    json.and_then(|json| json.get("dynamicMetadata").map(ToString::to_string)).unwrap_or_else(|| "none".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grpc::proto::rate_limit_response::RateLimit;
    use crate::grpc::proto::rate_limit_response::rate_limit::Unit;

    fn answer(requests_per_unit: u32, limit_remaining: u32) -> ComparedAnswer {
        let limit = RateLimit { requests_per_unit, unit: Unit::Hour.into(), ..Default::default() };
        let status = DescriptorStatus { current_limit: Some(limit), limit_remaining, ..Default::default() };
        Ok(RateLimitResponse { statuses: vec![status], ..Default::default() })
    }

    fn fields(there: &ComparedAnswer, here: &ComparedAnswer, peek: bool) -> Vec<String> {
        let line =
            |found: AnswerDifference| format!("{:?} {} {} {}", found.descriptor, found.field, found.there, found.here);
        differences(there, here, peek).into_iter().map(line).collect()
    }

    #[test]
    fn each_field_that_differs_is_named_with_both_values() {
        assert!(fields(&answer(5, 4), &answer(5, 4), false).is_empty());
        assert_eq!(fields(&answer(5, 4), &answer(5, 3), false), ["Some(0) limit_remaining 4 3"]);
        let both = ["Some(0) current_limit 5 per HOUR 6 per HOUR", "Some(0) limit_remaining 4 5"];
        assert_eq!(fields(&answer(5, 4), &answer(6, 5), false), both);
    }

    #[test]
    fn a_peek_is_compared_by_its_limit_alone() {
        assert!(fields(&answer(5, 4), &answer(5, 0), true).is_empty());
        assert_eq!(fields(&answer(5, 4), &answer(6, 4), true).len(), 1);
    }

    #[test]
    fn errors_are_compared_by_their_codes() {
        let unknown = Err("Unknown: a".to_owned());
        let invalid = Err("InvalidArgument: b".to_owned());
        assert!(fields(&unknown, &Err("Unknown: other".to_owned()), false).is_empty());
        assert_eq!(fields(&unknown, &invalid, false), ["None error Unknown: a InvalidArgument: b"]);
        assert_eq!(fields(&unknown, &answer(1, 1), false), ["None error Unknown: a UNKNOWN"]);
    }
}
