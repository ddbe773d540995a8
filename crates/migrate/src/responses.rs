//! Comparison of two responses to one request, field by field.

use jiff::SignedDuration;

/// The result of a call: a response, or the error that the service returned.
pub type CallResult = Result<ServiceResponse, ServiceError>;

/// An error that a service returned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct ServiceError {
    /// Name of the code, which both services are compared by.
    pub code: String,
    /// The text, which differs between the services.
    pub message: String,
}

/// A response, in the words of the protocol.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServiceResponse {
    /// Name of the overall code.
    pub overall_code: String,
    /// Names and values of the headers to add to the response.
    pub headers: Vec<(String, String)>,
    /// Dynamic metadata as JSON; `None` if there is none.
    pub dynamic_metadata: Option<String>,
    /// The status of each descriptor.
    pub statuses: Vec<ResponseStatus>,
}

/// The status of a descriptor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseStatus {
    /// Name of the code.
    pub code: String,
    /// The limit; `None` if there is none.
    pub limit: Option<ResponseLimit>,
    /// Remaining hits.
    pub remaining: u32,
    /// Seconds until the reset; `None` if there is none.
    pub resets_in: Option<i64>,
}

/// A limit in a status.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseLimit {
    /// Name of the limit; empty if it has none.
    pub name: String,
    /// Hits per unit.
    pub requests_per_unit: u32,
    /// Number of units; `None` if it is not set.
    pub unit_multiplier: Option<u32>,
    /// Name of the unit.
    pub unit: String,
}

/// The kind of requests that are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ComparedCalls {
    /// Requests as they are.
    Charging,
    /// Requests with 0 hits, whose result depends on earlier hits: only the limits that apply are
    /// compared.
    Peeks,
}

/// A field in which two responses differ.
#[derive(Debug, PartialEq, Eq)]
pub struct FieldDifference {
    /// Index of the descriptor; `None` for a field of the whole response.
    pub descriptor: Option<usize>,
    /// Name of the field in the protocol.
    pub field: &'static str,
    /// Value in the first response.
    pub old: String,
    /// Value in the second response.
    pub new: String,
}

/// Compares two responses. Times may differ by one second.
pub fn differences(
    old: &CallResult,
    new: &CallResult,
    calls: ComparedCalls,
) -> Vec<FieldDifference> {
    let mut list = DifferenceList { descriptor: None, calls, found: Vec::new() };
    match (old, new) {
        (Ok(old), Ok(new)) => list.responses(old, new),
        (Err(old), Err(new)) if old.code == new.code => {}
        (old, new) => list.push("error", result_text(old), result_text(new)),
    }
    list.found
}

/// Returns the text of a result beside one that is an error.
fn result_text(result: &CallResult) -> String {
    match result {
        Ok(response) => response.overall_code.clone(),
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

    fn responses(&mut self, old: &ServiceResponse, new: &ServiceResponse) {
        if self.calls == ComparedCalls::Charging {
            self.compare("overall_code", &old.overall_code, &new.overall_code);
            self.headers(&old.headers, &new.headers);
            let [old, new] =
                [old, new].map(|response| response.dynamic_metadata.clone().unwrap_or_else(none));
            self.compare("dynamic_metadata", old, new);
        }
        self.compare("statuses", old.statuses.len(), new.statuses.len());
        for (index, (old, new)) in old.statuses.iter().zip(&new.statuses).enumerate() {
            self.descriptor = Some(index);
            self.statuses(old, new);
        }
    }

    fn headers(&mut self, old: &[(String, String)], new: &[(String, String)]) {
        let is_same =
            old.len() == new.len() && old.iter().zip(new).all(|(old, new)| is_similar(old, new));
        if !is_same {
            self.push("response_headers_to_add", headers_text(old), headers_text(new));
        }
    }

    fn statuses(&mut self, old: &ResponseStatus, new: &ResponseStatus) {
        self.compare("current_limit", old.limit_text(), new.limit_text());
        if self.calls == ComparedCalls::Charging {
            self.compare("code", &old.code, &new.code);
            self.compare("limit_remaining", old.remaining, new.remaining);
        }
        let is_same = match (old.resets_in, new.resets_in) {
            (Some(old), Some(new)) => old.abs_diff(new) <= 1,
            (old, new) => old == new,
        };
        if !is_same {
            self.push("duration_until_reset", old.reset_text(), new.reset_text());
        }
    }
}

impl ResponseStatus {
    fn limit_text(&self) -> String {
        match &self.limit {
            Some(limit) => limit.text(),
            None if self.remaining == u32::MAX => "unlimited".to_owned(),
            None => none(),
        }
    }

    fn reset_text(&self) -> String {
        self.resets_in
            .map_or_else(none, |seconds| format!("{:#}", SignedDuration::from_secs(seconds)))
    }
}

impl ResponseLimit {
    fn text(&self) -> String {
        let Self { name, requests_per_unit, unit_multiplier, unit } = self;
        let name = if name.is_empty() { String::new() } else { format!(" ({name})") };
        let multiplier = unit_multiplier.map(|times| format!("{times} ")).unwrap_or_default();
        format!("{requests_per_unit} per {multiplier}{unit}{name}")
    }
}

/// Returns the text for a field that is not set.
fn none() -> String {
    "none".to_owned()
}

fn headers_text(headers: &[(String, String)]) -> String {
    headers.iter().map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>().join(", ")
}

/// Returns `true` if two headers match. A value may be a time in seconds, so numbers may differ by
/// one; a different count is detected from the count itself.
fn is_similar((name, value): &(String, String), (other_name, other): &(String, String)) -> bool {
    let is_near = match (value.parse::<i64>(), other.parse::<i64>()) {
        (Ok(one), Ok(other)) => one.abs_diff(other) <= 1,
        (_, _) => false,
    };
    name.eq_ignore_ascii_case(other_name) && (value == other || is_near)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHARGING: ComparedCalls = ComparedCalls::Charging;

    fn response(requests_per_unit: u32, remaining: u32) -> CallResult {
        let unit = "HOUR".to_owned();
        let limit = ResponseLimit { requests_per_unit, unit, ..Default::default() };
        let status = ResponseStatus { limit: Some(limit), remaining, ..Default::default() };
        let overall_code = "UNKNOWN".to_owned();
        Ok(ServiceResponse { overall_code, statuses: vec![status], ..Default::default() })
    }

    fn error(code: &str, message: &str) -> CallResult {
        Err(ServiceError { code: code.to_owned(), message: message.to_owned() })
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
        assert_eq!(
            fields(&response(5, 4), &response(5, 3), CHARGING),
            ["Some(0) limit_remaining 4 3"]
        );
        let both = ["Some(0) current_limit 5 per HOUR 6 per HOUR", "Some(0) limit_remaining 4 5"];
        assert_eq!(fields(&response(5, 4), &response(6, 5), CHARGING), both);
    }

    #[test]
    fn times_until_a_reset_are_readable_and_may_differ_by_a_second() {
        let resets_in = |seconds| {
            let mut response = response(5, 4).unwrap();
            response.statuses[0].resets_in = Some(seconds);
            Ok(response)
        };
        assert!(fields(&resets_in(60), &resets_in(61), CHARGING).is_empty());
        assert_eq!(
            fields(&resets_in(3_661), &resets_in(60), CHARGING),
            ["Some(0) duration_until_reset 1h 1m 1s 1m"]
        );
    }

    #[test]
    fn a_peek_is_compared_by_its_limit_alone() {
        assert!(fields(&response(5, 4), &response(5, 0), ComparedCalls::Peeks).is_empty());
        assert_eq!(fields(&response(5, 4), &response(6, 4), ComparedCalls::Peeks).len(), 1);
    }

    #[test]
    fn errors_are_compared_by_their_codes() {
        let unknown = error("Unknown", "a");
        let invalid = error("InvalidArgument", "b");
        assert!(fields(&unknown, &error("Unknown", "other"), CHARGING).is_empty());
        assert_eq!(
            fields(&unknown, &invalid, CHARGING),
            ["None error Unknown: a InvalidArgument: b"]
        );
        assert_eq!(fields(&unknown, &response(1, 1), CHARGING), ["None error Unknown: a UNKNOWN"]);
    }
}
