//! Durations on the command line.

use jiff::SignedDuration;

/// Parses a duration, such as `30s` or `1h30m`.
pub(super) fn duration(text: &str) -> Result<SignedDuration, String> {
    let length = text.parse::<SignedDuration>().ok().filter(|length| !length.is_negative());
    length.ok_or_else(|| "must be a duration such as 30s or 2m".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_has_a_unit_and_is_not_negative() {
        assert_eq!(duration("1m30s"), Ok(SignedDuration::from_secs(90)));
        for text in ["1", "5x", "-5s", ""] {
            assert!(duration(text).is_err_and(|problem| problem.contains("such as 30s")), "{text}");
        }
    }
}
