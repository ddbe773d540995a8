//! Rate limit headers that the proxy adds to the downstream client's response.

use std::fmt::Write as _;

use super::proto::HeaderValue;
use super::proto::rate_limit_response::{Code, DescriptorStatus};
use crate::algorithm::time::Micros;
use crate::limiter::{CallerWait, Decision, Status};

/// Maximum number of limits in the IETF fields; a request may match more.
const MAX_ITEMS: usize = 16;
/// Maximum length of a limit's name in the IETF fields, in characters.
const MAX_NAME: usize = 64;

/// Headers to add.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderStyle {
    /// Limit, remaining and reset of one descriptor, under these names, as envoyproxy/ratelimit
    /// sends them.
    pub legacy: Option<[String; 3]>,
    /// `RateLimit-Policy` and `RateLimit` of draft-ietf-httpapi-ratelimit-headers-10, with all
    /// limits of the request.
    pub ietf: bool,
}

/// Returns the headers of a decision. `answers` are its statuses in wire form.
pub(super) fn of(
    decision: &Decision<'_>,
    answers: &[DescriptorStatus],
    style: &HeaderStyle,
) -> Vec<HeaderValue> {
    let mut headers = Vec::new();
    let statuses = decision.statuses();
    if let Some(names) = &style.legacy {
        let votes = statuses.iter().map(Status::is_vote);
        if let Some(chosen) = choose(answers.iter().zip(votes)) {
            let limit = chosen.current_limit.as_ref().map_or(0, |limit| limit.requests_per_unit);
            let values = [
                u64::from(limit),
                chosen.limit_remaining.into(),
                reset(chosen).unwrap_or_default(),
            ];
            headers.extend(
                names.iter().zip(values).map(|(name, value)| header(name, value.to_string())),
            );
        }
    }
    if style.ietf {
        let (policies, limits) = fields(decision, answers);
        if !policies.is_empty() {
            headers.extend([header("RateLimit-Policy", policies), header("RateLimit", limits)]);
        }
    }
    headers
}

/// Chooses the descriptor of the legacy headers, as envoyproxy/ratelimit does: the last one that
/// denies the request by itself, else the first of those with the least remaining.
fn choose<'a>(
    answers: impl Iterator<Item = (&'a DescriptorStatus, bool)>,
) -> Option<&'a DescriptorStatus> {
    let limited = answers.filter(|(answer, _)| answer.current_limit.is_some());
    let chosen = limited.reduce(|chosen, next| {
        let denies = next.0.code() == Code::OverLimit && !next.1;
        if denies || next.0.limit_remaining < chosen.0.limit_remaining { next } else { chosen }
    });
    chosen.map(|(answer, _)| answer)
}

/// Returns the values of `RateLimit-Policy` and `RateLimit`, as lists of structured fields (RFC
/// 9651): the limits and their current state, without a time if the hits are never admitted. Both
/// are empty if no descriptor has a limit.
fn fields(decision: &Decision<'_>, answers: &[DescriptorStatus]) -> (String, String) {
    let mut policies = Vec::<String>::new();
    let mut limits = Vec::new();
    let limited = decision
        .statuses()
        .iter()
        .zip(answers)
        .filter_map(|(status, answer)| Some((status, answer, status.limit()?)));
    for (status, answer, applied) in limited.take(MAX_ITEMS) {
        let name =
            quoted(status.rule().map_or("override", |rule| rule.name().unwrap_or(rule.path())));
        let mut policy = format!("{name};q={}", applied.amount);
        // Only whole seconds are sent: a rounded period would describe another limit.
        if let Some(seconds) = applied.period.and_then(Micros::as_whole_secs) {
            let _ = write!(policy, ";w={seconds}");
        }
        let mut limit = format!("{name};r={}", answer.limit_remaining);
        let is_never = matches!(decision.wait_of(status), Some(CallerWait::Never(_)));
        if let Some(seconds) = reset(answer).filter(|_| !is_never) {
            let _ = write!(limit, ";t={seconds}");
        }
        // Two descriptors of one rule share a policy but have two counters.
        if !policies.contains(&policy) {
            policies.push(policy);
        }
        limits.push(limit);
    }
    (policies.join(", "), limits.join(", "))
}

/// Quotes a string for structured fields, which allow only visible ASCII and spaces.
fn quoted(name: &str) -> String {
    let mut text = String::from("\"");
    for letter in name.chars().take(MAX_NAME) {
        match letter {
            '"' | '\\' => text.extend(['\\', letter]),
            ' '..='~' => text.push(letter),
            _ => text.push('?'),
        }
    }
    text.push('"');
    text
}

/// Returns the seconds until more hits are available, rounded up.
fn reset(answer: &DescriptorStatus) -> Option<u64> {
    let duration = answer.duration_until_reset.as_ref()?;
    Some(u64::try_from(duration.seconds).unwrap_or_default() + u64::from(duration.nanos > 0))
}

fn header(name: &str, value: String) -> HeaderValue {
    HeaderValue { key: name.to_owned(), value, ..Default::default() }
}

#[cfg(test)]
mod tests {
    use super::super::proto::rate_limit_response::RateLimit;
    use super::*;

    /// Creates a status from its remaining hits (`None`: no limit) and code.
    fn status(left: Option<u32>, is_over: bool) -> DescriptorStatus {
        DescriptorStatus {
            code: if is_over { Code::OverLimit } else { Code::Ok }.into(),
            current_limit: left.map(|_| RateLimit::default()),
            limit_remaining: left.unwrap_or_default(),
            ..Default::default()
        }
    }

    /// Returns the index of the chosen status. Each tuple is (remaining, over limit, vote).
    fn chosen(all: &[(Option<u32>, bool, bool)]) -> Option<usize> {
        let answers: Vec<_> =
            all.iter().map(|(left, is_over, _)| status(*left, *is_over)).collect();
        let votes = all.iter().map(|(_, _, is_vote)| *is_vote);
        let chosen = choose(answers.iter().zip(votes))?;
        answers.iter().position(|answer| std::ptr::eq(answer, chosen))
    }

    #[test]
    fn the_least_remaining_is_chosen_and_the_first_of_several() {
        let left = |hits| (Some(hits), false, false);
        let without_limit = (None, false, false);
        assert_eq!(chosen(&[left(5), left(2), left(2)]), Some(1));
        assert_eq!(chosen(&[without_limit, left(9)]), Some(1), "without a limit, no headers");
        assert_eq!([chosen(&[without_limit]), chosen(&[])], [None, None]);
    }

    #[test]
    fn the_last_that_denies_by_itself_wins_and_a_vote_does_not() {
        let [allows, denies] = [false, true].map(|is_over| (Some(0), is_over, false));
        let vote = (Some(0), true, true);
        assert_eq!(chosen(&[denies, denies, allows]), Some(1));
        assert_eq!(chosen(&[allows, denies]), Some(1));
        assert_eq!([chosen(&[vote, vote]), chosen(&[denies, vote])], [Some(0); 2]);
    }

    #[test]
    fn names_are_encoded_as_strings_of_structured_fields() {
        assert_eq!(quoted("plan=free > user"), r#""plan=free > user""#);
        assert_eq!(quoted(r#"a"b\c"#), r#""a\"b\\c""#);
        assert_eq!(quoted("für\n\u{7f}"), r#""f?r??""#);
        assert_eq!(quoted(&"x".repeat(1_000)).len(), MAX_NAME + 2);
    }

    #[test]
    fn a_reset_is_rounded_up() {
        let after = |seconds, nanos| DescriptorStatus {
            duration_until_reset: Some(prost_types::Duration { seconds, nanos }),
            ..Default::default()
        };
        assert_eq!(reset(&after(7, 0)), Some(7));
        assert_eq!(reset(&after(7, 1)), Some(8));
        assert_eq!(reset(&status(None, false)), None);
    }
}
